/**
 * Reckons the books again, from what is there: each message of the ledger is read and hashed, each job's input is compared
 * with what its message says, the counts of the time are compared with the rows, and the queues are counted. Sums are
 * over 64-bit hashes modulo 2^64, so the order does not matter. It writes nothing and explains nothing away: every
 * difference is a finding.
 */
import { createHash } from 'node:crypto';
import { UnbrokerError } from '../../src/errors.js';
import type { Queryable } from '../../src/jobs/job.js';
import { patient } from '../../src/jobs/patience.js';
import type { Broker } from './broker.js';
import { readDelivery } from './delivery.js';
import type { Rules } from './drain-config.js';
import { fingerprint } from './fingerprint.js';
import { mapDelivery, type QueueFacts, sourceOf } from './mapping.js';
import {
  createVerifier,
  type ExpectedJob,
  type LedgerRow,
  type VerifiedRun,
  type Verifier,
} from './verify-statements.js';
import { hash64 } from './way-back.js';

export interface Side {
  readonly messages: number;
  /** Sixteen hex digits. */
  readonly hash: string;
}

export interface GroupProof {
  readonly group: string;
  readonly runs: readonly (Pick<VerifiedRun, 'id' | 'mode' | 'initial' | 'counted' | 'moved'> & {
    readonly finished: boolean;
  })[];
  /** As the fingerprints were written, and reckoned again from the bytes. */
  readonly written: Side;
  readonly reckoned: Side;
  /** Inputs that the ledger gives for the jobs that are there, and the inputs that they have. */
  readonly inputs: Side;
  readonly jobs: Side;
  /** No longer there: worked and pruned. The ledger is the book. */
  readonly pruned: number;
  readonly states: Readonly<Record<string, number>>;
  readonly excluded: number;
  readonly givenBack: number;
  /** Of bridges: rows that may be the second one of their message. */
  readonly possibleDoubles: number;
  /** Ready messages now, and what the last books left there; null = there is nothing to compare with. */
  readonly inQueues: number;
  readonly expectedInQueues: number | null;
  /** What an undo put there and what lies there, read; null = not looked at. */
  readonly sent: Side | null;
  readonly seen: Side | null;
  /** Differences, one sentence each. */
  readonly findings: readonly string[];
  /** What could not be compared, one sentence each. */
  readonly remarks: readonly string[];
  readonly balanced: boolean;
}

export interface VerifyOptions {
  readonly pool: Queryable;
  readonly schema: string;
  readonly broker: Broker;
  readonly rules: Rules;
  /** Groups by name; undefined = all. */
  readonly groups?: readonly string[] | undefined;
  readonly factsOf: (queue: string) => QueueFacts;
  /** Queues that may be read message by message without harm; others are only counted. */
  readonly mayLook: (queue: string) => boolean;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: (
    group: string,
    progress: { readonly taken: number; readonly initial: number },
  ) => void;
}

const PAGE = { rows: 1_000, bytes: 8 * 1_048_576 } as const;
/** Some questions read the whole ledger. */
const DATABASE_WITHIN_MS = 600_000;
/** Messages that one look at a queue reads. */
const MAX_LOOKED_AT = 10_000;
const LISTED = 20;

export async function verifyDrains(options: VerifyOptions): Promise<GroupProof[]> {
  const { pool, schema, broker, groups } = options;
  const verifier = createVerifier(schema);
  const bounded = { ...options, pool: patient(pool, DATABASE_WITHIN_MS) };
  const proofs: GroupProof[] = [];
  try {
    const runs = await verifier.runs(bounded.pool, broker.cluster, broker.vhost);
    const names = [...new Set(runs.map(({ group }) => group))];
    for (const name of names.filter((each) => groups?.includes(each) ?? true)) {
      const own = runs.filter(({ group }) => group === name);
      proofs.push(await new GroupVerifier(bounded, verifier, name, own).prove());
    }
    return proofs;
  } catch (error) {
    if (!(error instanceof UnbrokerError) || error.code !== 'database-slow') throw error;
    throw new UnbrokerError('database-slow', error.message, {
      hint: 'Look at the database, then run again: verify writes nothing.',
      cause: error,
    });
  }
}

/** A sum of 64-bit hashes that forgets the order. */
class HashSum {
  #messages = 0;
  #sum = 0n;

  add(hash: bigint, messages = 1): void {
    this.#messages += messages;
    this.#sum = BigInt.asUintN(64, this.#sum + hash);
  }

  get side(): Side {
    return { messages: this.#messages, hash: this.#sum.toString(16).padStart(16, '0') };
  }
}

class GroupVerifier {
  readonly #findings: string[] = [];
  readonly #remarks: string[] = [];
  readonly #written = new HashSum();
  readonly #reckoned = new HashSum();
  readonly #inputs = new HashSum();
  readonly #jobs = new HashSum();
  readonly #sent = new HashSum();
  readonly #damaged: string[] = [];
  readonly #differing: string[] = [];
  #pruned = 0;
  #excluded = 0;
  #givenBack = 0;

  constructor(
    private readonly options: VerifyOptions,
    private readonly verifier: Verifier,
    private readonly group: string,
    private readonly runs: readonly VerifiedRun[],
  ) {}

  async prove(): Promise<GroupProof> {
    for (const run of this.runs) this.#checkCounts(run);
    const drains = this.runs.filter(({ mode }) => mode !== 'undo');
    for (const run of drains) await this.#readLedger(run);
    await this.#checkKeys();
    const states = await this.#countJobs(drains);
    const { inQueues, expectedInQueues } = await this.#countQueues();
    const seen = await this.#look(expectedInQueues === inQueues);
    this.#compareSides(seen);
    return {
      group: this.group,
      runs: this.runs.map(({ id, mode, initial, counted, moved, books }) => ({
        ...{ id, mode, initial, counted, moved, finished: books !== null },
      })),
      ...{ written: this.#written.side, reckoned: this.#reckoned.side },
      ...{ inputs: this.#inputs.side, jobs: this.#jobs.side, pruned: this.#pruned, states },
      ...{ excluded: this.#excluded, givenBack: this.#givenBack, inQueues, expectedInQueues },
      possibleDoubles: this.runs.reduce((sum, run) => sum + run.possibleDoubles, 0),
      ...{ sent: seen === null ? null : this.#sent.side, seen },
      ...{ findings: this.#findings, remarks: this.#remarks, balanced: this.#findings.length === 0 },
    };
  }

  #checkCounts(run: VerifiedRun): void {
    const { id, mode, books, counted, ledger, moved, moving, initial, ambiguous } = run;
    const find = (text: string): void => void this.#findings.push(`Run ${id}: ${text}`);
    if (ambiguous)
      this.#remarks.push(`Run ${id}: a person chose what became of messages that counts could not tell.`);
    if (books === null) find(`the ${mode} is not finished; run it again.`);
    if (moving > 0) find(`${moving} messages are on their way back, neither here nor there.`);
    if (mode === 'undo') {
      if (books !== null && books.moved !== moved)
        find(`${books.moved} were given back by its books, ${moved} are marked.`);
    } else if (counted !== ledger) {
      find(`${counted} messages were taken by its batches, ${ledger} are in the ledger.`);
    }
    if (mode === 'bridge') this.#checkLate(run, find);
    if (books === null) return;
    const { difference, remaining = 0, arrived = 0 } = books;
    if (difference !== undefined && difference !== 0)
      find(`its books were off by ${difference} when it ended.`);
    if (mode === 'drain' && initial !== null) {
      const again = counted + remaining - initial - arrived;
      if (again !== difference) find(`reckoned again its books are off by ${again}, not by ${difference}.`);
    }
  }

  /** Publishers live while a bridge runs: what came is counted by publisher, in the transaction of its rows. */
  #checkLate(
    { id, late, counted, repeats, possibleDoubles }: VerifiedRun,
    find: (text: string) => void,
  ): void {
    if (late !== counted) find(`${late} came late by its findings, ${counted} were taken by its batches.`);
    if (repeats > 0)
      this.#remarks.push(
        `Run ${id}: ${repeats} came again with id and contents: in the ledger without a job.`,
      );
    if (possibleDoubles > 0)
      this.#remarks.push(
        `Run ${id}: ${possibleDoubles} rows could be doubles: they came back after an interruption without an id.`,
      );
  }

  async #checkKeys(): Promise<void> {
    const { pool, broker } = this.options;
    const bridges = this.runs.filter(({ mode }) => mode === 'bridge');
    if (bridges.length === 0) return;
    const streams = await this.verifier.streams(pool, broker.cluster, broker.vhost);
    for (const { id } of bridges) {
      const forgotten = await this.verifier.forgotten(pool, id, streams);
      if (forgotten > 0)
        this.#findings.push(
          `Run ${id}: ${forgotten} of its messages have no key: a bridge would take them for new if they came again.`,
        );
    }
  }

  async #readLedger(run: VerifiedRun): Promise<void> {
    const { pool, signal, onProgress } = this.options;
    let read = 0;
    for (const batch of await this.verifier.batches(pool, run.id)) {
      let position = 0;
      for (;;) {
        signal?.throwIfAborted();
        const page = await this.verifier.ledger(pool, batch, position, PAGE);
        const last = page.at(-1);
        if (last === undefined) break;
        ({ position } = last);
        await this.#readPage(page);
        read += page.length;
        onProgress?.(this.group, { taken: read, initial: run.ledger });
      }
    }
  }

  async #readPage(page: readonly LedgerRow[]): Promise<void> {
    const lastDrain = this.runs.findLast(({ mode }) => mode !== 'undo')?.id ?? '0';
    const expected: ExpectedJob[] = [];
    for (const row of page) {
      const delivery = readDelivery({ ...row, propertyBytes: row.properties, deliveryTag: 0 });
      const print = fingerprint(delivery);
      this.#reckoned.add(hash64(print));
      this.#written.add(row.fingerprint.readBigInt64BE());
      if (print !== row.fingerprint.toString('latin1') && this.#damaged.length < LISTED) {
        this.#damaged.push(`${row.batch}/${row.position}`);
      }
      if (row.sentHash !== null) {
        this.#givenBack += 1;
        // What was drained again afterwards is no longer in its queue.
        if (BigInt(row.undo ?? 0) > BigInt(lastDrain)) this.#sent.add(BigInt(row.sentHash));
      }
      if (row.job === null) this.#excluded += 1;
      else expected.push({ job: row.job, ...this.#inputOf(row, delivery) });
    }
    const compared = await this.verifier.compare(this.options.pool, expected);
    this.#pruned += compared.gone;
    this.#inputs.add(BigInt(compared.ledgerSum), compared.there);
    this.#jobs.add(BigInt(compared.jobsSum), compared.there);
    this.#differing.push(...compared.differing.slice(0, LISTED - this.#differing.length));
  }

  /** What the message makes of itself by today's rules. */
  #inputOf(row: LedgerRow, delivery: ReturnType<typeof readDelivery>): Omit<ExpectedJob, 'job'> {
    const { job } = mapDelivery(delivery, this.options.factsOf(row.queue), {
      ...{
        source: () => '',
        rules: this.options.rules,
        nowMs: Date.now(),
        trustDeliveryCount: false,
        careful: true,
      },
    });
    const bodyMd5 = createHash('md5')
      .update(job?.body ?? row.body)
      .digest('hex');
    return { payloadText: job?.payloadText ?? null, bodyMd5 };
  }

  async #countJobs(drains: readonly VerifiedRun[]): Promise<Record<string, number>> {
    const { pool, broker } = this.options;
    const sources = drains.flatMap(({ id, queues }) => queues.map(sourceOf(broker.vhost, id)));
    const states = Object.fromEntries(
      (await this.verifier.states(pool, sources)).map(({ state, count }) => [state, count]),
    );
    const there = Object.values(states).reduce((sum, count) => sum + count, 0);
    const known = this.#jobs.side.messages;
    if (there > known)
      this.#findings.push(
        `${there - known} jobs say that they come from these runs and have no message in the ledger.`,
      );
    return states;
  }

  async #countQueues(): Promise<{ inQueues: number; expectedInQueues: number | null }> {
    const { broker } = this.options;
    const queues = [...new Set(this.runs.flatMap((run) => run.queues))];
    let inQueues = 0;
    let consumers = 0;
    for (const queue of queues) {
      const count = await broker.count(queue);
      inQueues += count?.ready ?? 0;
      consumers += count?.consumers ?? 0;
    }
    // What was in no queue says nothing about what is in one.
    const last = this.runs.findLast(({ books, mode }) => books !== null && mode !== 'delayed');
    const expected = last?.books?.remaining;
    if (expected === undefined || this.runs.at(-1)?.books === null)
      return { inQueues, expectedInQueues: null };
    const difference = inQueues - expected;
    if (consumers > 0) {
      this.#remarks.push(
        `${consumers} consumers work on the queues: what lies there says nothing about the books.`,
      );
    } else if (difference > 0) {
      this.#findings.push(
        `${difference} more lie in the queues than the last books left there: somebody publishes.`,
      );
    } else if (difference < 0) {
      this.#findings.push(
        `${-difference} fewer lie in the queues than the last books left there: consumed, purged, expired or dropped since.`,
      );
    }
    return { inQueues, expectedInQueues: expected };
  }

  /** Reads what an undo put into the queues, where that does no harm and the counts agree. */
  async #look(countsAgree: boolean): Promise<Side | null> {
    const { broker, mayLook } = this.options;
    const wanted = this.#sent.side.messages;
    if (wanted === 0 || !countsAgree) return null;
    const queues = [...new Set(this.runs.flatMap((run) => run.queues))];
    const counts = await Promise.all(queues.map(async (name) => ({ name, count: await broker.count(name) })));
    const filled = counts.filter(({ count }) => (count?.ready ?? 0) > 0);
    const total = filled.reduce((sum, { count }) => sum + (count?.ready ?? 0), 0);
    if (total !== wanted || total > MAX_LOOKED_AT || !filled.every(({ name }) => mayLook(name))) {
      this.#remarks.push('What lies in the queues was counted, not read.');
      return null;
    }
    const seen = new HashSum();
    for (const { name, count } of filled) {
      for (const raw of await broker.look(name, count?.ready ?? 0))
        seen.add(hash64(fingerprint(readDelivery(raw))));
    }
    return seen.side;
  }

  #compareSides(seen: Side | null): void {
    if (seen !== null && seen.hash !== this.#sent.side.hash) {
      this.#findings.push('What lies in the queues is not what was given back, though as much.');
    }
    if (this.#damaged.length > 0) {
      this.#findings.push(
        `Messages of the ledger are not what they were written as: ${this.#damaged.join(', ')}.`,
      );
    }
    if (this.#differing.length > 0) {
      this.#findings.push(
        `Jobs hold another input than their message gives by today's rules: ${this.#differing.join(', ')}.`,
      );
    }
  }
}
