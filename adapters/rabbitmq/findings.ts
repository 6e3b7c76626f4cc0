/**
 * Who publishes late: messages counted by what they say of their publisher. Bounded: after so many different ones the
 * rest is counted as one. It holds no message.
 */
import type { BridgeLedger, LateCounts, LateFinding, LatePublisher } from './bridge-ledger.js';
import type { Delivery } from './delivery.js';
import type { Verdict } from './late.js';
import { shortText } from './row-headers.js';

const MAX_PUBLISHERS = 1_000;
/** Stands for queue, exchange and routing key of all that did not fit. */
export const OTHERS = '(others)';
const COUNTED: Readonly<Record<Verdict, Omit<LateCounts, 'messages'>>> = {
  new: { again: 0, repeats: 0, otherContents: 0, possibleDoubles: 0 },
  again: { again: 1, repeats: 0, otherContents: 0, possibleDoubles: 0 },
  repeat: { again: 0, repeats: 1, otherContents: 0, possibleDoubles: 0 },
  'other-contents': { again: 0, repeats: 0, otherContents: 1, possibleDoubles: 0 },
  'possible-double': { again: 0, repeats: 0, otherContents: 0, possibleDoubles: 1 },
};

export function publisherOf({ queue, exchange, routingKey, properties }: Delivery): LatePublisher {
  const short = (text: string | undefined): string | null => (text === undefined ? null : shortText(text));
  return {
    ...{ queue: shortText(queue), exchange: shortText(exchange), routingKey: shortText(routingKey) },
    ...{ userId: short(properties.userId), appId: short(properties.appId) },
  };
}

/** Numbers the publishers of one run. A batch that is rolled back leaves a number without a row, nothing else. */
export class Findings {
  readonly #numbers = new Map<string, number>();
  readonly #onNew: (publisher: LatePublisher) => void;

  constructor(known: readonly LateFinding[], onNew: (publisher: LatePublisher) => void) {
    for (const each of known) this.#numbers.set(keyOf(each), each.number);
    this.#onNew = onNew;
  }

  static async load(
    ledger: BridgeLedger,
    db: Parameters<BridgeLedger['findings']>[0],
    run: string,
    onNew: (publisher: LatePublisher) => void,
  ): Promise<Findings> {
    return new Findings(await ledger.findings(db, run), onNew);
  }

  /** One entry a publisher, for addFindings. */
  counted(messages: readonly (readonly [LatePublisher, Verdict])[]) {
    const sums = new Map<number, LatePublisher & Mutable<LateCounts> & { readonly number: number }>();
    for (const [publisher, verdict] of messages) {
      const number = this.#numberOf(publisher);
      const shown = number === MAX_PUBLISHERS ? ALL_OTHERS : publisher;
      const sum = sums.get(number) ?? { ...shown, number, messages: 0, ...COUNTED.new };
      sum.messages += verdict === 'again' ? 0 : 1;
      sum.again += COUNTED[verdict].again;
      sum.repeats += COUNTED[verdict].repeats;
      sum.otherContents += COUNTED[verdict].otherContents;
      sum.possibleDoubles += COUNTED[verdict].possibleDoubles;
      sums.set(number, sum);
    }
    return [...sums.values()];
  }

  #numberOf(publisher: LatePublisher): number {
    const key = keyOf(publisher);
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    if (this.#numbers.size >= MAX_PUBLISHERS) return MAX_PUBLISHERS;
    const number = this.#numbers.size;
    this.#numbers.set(key, number);
    this.#onNew(publisher);
    return number;
  }
}

type Mutable<T> = { -readonly [name in keyof T]: T[name] };

const ALL_OTHERS: LatePublisher = {
  queue: OTHERS,
  exchange: OTHERS,
  routingKey: OTHERS,
  userId: null,
  appId: null,
};

const keyOf = ({ queue, exchange, routingKey, userId, appId }: LatePublisher): string =>
  JSON.stringify([queue, exchange, routingKey, userId, appId]);

/** All of a run together. */
export function sumFindings(findings: readonly LateCounts[]): LateCounts {
  const sum = (name: keyof LateCounts): number => findings.reduce((total, each) => total + each[name], 0);
  return {
    ...{ messages: sum('messages'), again: sum('again'), repeats: sum('repeats') },
    ...{ otherContents: sum('otherContents'), possibleDoubles: sum('possibleDoubles') },
  };
}
