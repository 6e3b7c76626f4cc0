/**
 * Writes what a bridge has in hand: asks which keys were taken before, decides each delivery, and commits jobs, ledger,
 * keys and findings in one transaction. It acknowledges nothing and knows no connection.
 */
import type { Queryable } from '../../src/jobs/job.js';
import type { Store } from '../../src/jobs/store.js';
import { type DrainStep, type PreparedMessage, writeBatch } from './batch-writer.js';
import type { BridgeLedger, Key } from './bridge-ledger.js';
import { type RawDelivery, readDelivery } from './delivery.js';
import { type Findings, publisherOf } from './findings.js';
import { fingerprint } from './fingerprint.js';
import { findField, integerOf } from './headers.js';
import { asJudged, judge, type KeyScope, type NamedMessage, nameMessage, type Verdict } from './late.js';
import type { AbsorbedRow, Ledger, RunKey } from './ledger.js';
import { type MappingContext, mapDelivery, type QueueFacts } from './mapping.js';
import { MessageWriter } from './message-rows.js';
import { leaseLost } from './run-lease.js';

/** A queue as a bridge reads it. */
export interface QueueToBridge extends QueueFacts {
  /** One consumer at a time gets messages: ours may have to wait. */
  readonly singleActive: boolean;
  /** Goes with its last consumer. */
  readonly autoDelete: boolean;
  /** Read by offset; it keeps what is acked. */
  readonly stream: boolean;
}

/** The open run of one group. */
export interface GroupRun {
  readonly id: string;
  readonly key: RunKey;
  readonly scope: KeyScope;
  readonly source: MappingContext['source'];
  readonly findings: Findings;
  /** Some ack may not have reached the broker: what comes back without an id may be written already. */
  readonly inDoubt: boolean;
}

export interface LateWriterOptions {
  readonly client: Queryable;
  readonly store: Store;
  readonly ledger: Ledger;
  readonly bridgeLedger: BridgeLedger;
  readonly holder: string;
  readonly leaseMs: number;
  readonly rules: MappingContext['rules'];
  readonly onStep: (step: DrainStep) => void;
}

export interface LateBatch {
  readonly id: string;
  /** Of a stream: the offset to go on with. */
  readonly nextOffset: number | null;
  readonly verdicts: Readonly<Record<Verdict, number>>;
}

/** Its row stays in the batch that wrote it: this run may not even be the one. */
const ELSEWHERE = {
  batch: '0',
  position: 0,
  queue: '',
  exchange: '',
  routingKey: '',
  fingerprint: Buffer.alloc(0),
};

export class LateWriter {
  /** Bodies are parsed before they are sent once the database has refused one. */
  #careful = false;
  readonly #messageWriter = new MessageWriter();

  constructor(private readonly options: LateWriterOptions) {}

  /**
   * One batch of one queue, in its order. `acked`: batches of the run whose ack was proved. `offset`: of a stream, where
   * this batch begins. Throws `drain-lease-lost`.
   */
  async write(
    deliveries: readonly RawDelivery[],
    queue: QueueToBridge,
    run: GroupRun,
    acked: readonly string[],
    offset: number,
  ): Promise<LateBatch> {
    const prepared = deliveries.map((raw, index) => this.#prepare(raw, index + 1, queue, run));
    this.options.onStep('prepared');
    const judged = queue.stream
      ? prepared.map((message): Judged => ({ message, verdict: 'new', key: null }))
      : await this.#judge(prepared, run);
    const absorbed: AbsorbedRow[] = judged
      .filter(({ verdict }) => verdict === 'again')
      .map(({ message }) => ({ row: ELSEWHERE, position: message.position }));
    const messages = judged
      .filter(({ verdict }) => verdict !== 'again')
      .map(({ message, verdict }) => asJudged(message, verdict));
    const nextOffset = queue.stream ? nextAfter(prepared, offset) : null;
    const lastTag = deliveries.at(-1)?.deliveryTag ?? 0;
    const batch = { queue: queue.name, messages, absorbed, size: deliveries.length, lastTag };
    const { id } = await writeBatch(
      {
        ...this.options,
        messageWriter: this.#messageWriter,
        ledger: this.#remembering(judged, queue, run, offset, nextOffset),
        run: { id: run.id, holder: this.options.holder, leaseMs: this.options.leaseMs },
        mapCarefully: (message) => {
          this.#careful = true;
          const { verdict = 'new' } = judged.find((each) => each.message.position === message.position) ?? {};
          return asJudged(this.#map(message, queue, run), verdict).mapped;
        },
      },
      batch,
      acked,
    );
    return { id, nextOffset, verdicts: countVerdicts(judged) };
  }

  #prepare(raw: RawDelivery, position: number, queue: QueueToBridge, run: GroupRun): PreparedMessage {
    const delivery = readDelivery(raw);
    const context = this.#context(run);
    return {
      delivery,
      position,
      fingerprint: fingerprint(delivery),
      mapped: mapDelivery(delivery, queue, context),
    };
  }

  #map(message: PreparedMessage, queue: QueueToBridge, run: GroupRun): PreparedMessage {
    return { ...message, mapped: mapDelivery(message.delivery, queue, this.#context(run)) };
  }

  /** The quorum counter is never an attempt here: a bridge's own crashes raise it, and a key must not change. */
  #context({ source }: GroupRun): MappingContext {
    const { rules } = this.options;
    return { source, rules, nowMs: Date.now(), trustDeliveryCount: false, careful: this.#careful };
  }

  async #judge(prepared: readonly PreparedMessage[], { scope, inDoubt }: GroupRun): Promise<Judged[]> {
    const { bridgeLedger, client, rules } = this.options;
    const reused = (queue: string): boolean => rules.for({ queue }).ids === 'reused';
    const named = prepared.map((message) => nameMessage(message, scope, reused));
    const asked = named.flatMap((each) =>
      each.identities.map((identity) => ({
        ...{ identity, fingerprint: each.message.fingerprint, named: each.named },
      })),
    );
    const answers = await bridgeLedger.findKeys(client, asked);
    const before = new Map<string, Set<string>>();
    let next = 0;
    return named.map((each) => {
      const own = answers.slice(next, next + each.identities.length);
      next += each.identities.length;
      return decide(each, own, before, inDoubt);
    });
  }

  /** The ledger, which also notes keys, offset and findings in the transaction of each batch. */
  #remembering(
    judged: readonly Judged[],
    queue: QueueToBridge,
    run: GroupRun,
    offset: number,
    nextOffset: number | null,
  ): Ledger {
    const { ledger, bridgeLedger } = this.options;
    return {
      ...ledger,
      record: async (db, by, batch, acked) => {
        const id = await ledger.record(db, by, batch, acked);
        if (id === null) return null;
        const keys = judged.map(({ key }) => key).filter((key) => key !== null);
        await bridgeLedger.takeKeys(db, keys);
        if (nextOffset !== null) {
          const moved = await bridgeLedger.moveOffset(db, run.key, queue.name, offset, nextOffset);
          if (!moved) throw leaseLost();
        }
        const found = judged.map(({ message, verdict }) => [publisherOf(message.delivery), verdict] as const);
        await bridgeLedger.addFindings(db, run.id, run.findings.counted(found));
        return id;
      },
    };
  }
}

interface Judged {
  readonly message: PreparedMessage;
  readonly verdict: Verdict;
  readonly key: Key | null;
}

/** `before`: what this very batch has taken so far. */
function decide(
  each: NamedMessage,
  answers: readonly { readonly same: boolean; readonly otherContents: boolean }[],
  before: Map<string, Set<string>>,
  inDoubt: boolean,
): Judged {
  const { message, identities } = each;
  const { fingerprint: print } = message;
  const identity = identities[0] as string;
  const here = before.get(identity) ?? new Set();
  const takenBefore = answers.some((answer) => answer.same);
  const inHand = identities.some((name) => before.get(name)?.has(print) === true);
  const same = takenBefore || inHand;
  const otherContents =
    answers[0]?.otherContents === true || (each.named && here.size > 0 && !here.has(print));
  before.set(identity, here.add(print));
  return {
    message,
    // Both in hand at once are two messages, whatever flag they carry.
    verdict: judge(takenBefore ? each : { ...each, mayBeBack: false }, { same, otherContents }, inDoubt),
    key: { identity, fingerprint: print },
  };
}

function countVerdicts(judged: readonly Judged[]): Record<Verdict, number> {
  const counts = { new: 0, again: 0, repeat: 0, 'other-contents': 0, 'possible-double': 0 };
  for (const { verdict } of judged) counts[verdict] += 1;
  return counts;
}

function nextAfter(prepared: readonly PreparedMessage[], offset: number): number {
  const last = prepared.at(-1);
  return ((last === undefined ? undefined : offsetOf(last.delivery)) ?? offset + prepared.length - 1) + 1;
}

/** The place of a message in its stream. */
export function offsetOf({ headers }: Pick<PreparedMessage['delivery'], 'headers'>): number | undefined {
  return integerOf(findField(headers, 'x-stream-offset'));
}
