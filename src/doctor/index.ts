/**
 * Looks at a database as the jobs table needs it and says what is well, what deserves a look and what must be acted on.
 * It reads only, in one short transaction a question, so that it never holds what it looks for; a question that
 * this role may not ask becomes a finding, not the end. What the answers mean is rules.ts's to say.
 */
import { UnbrokerError } from '../errors.js';
import { createBacklog } from '../jobs/backlog.js';
import type { Queryable } from '../jobs/job.js';
import { checkSchema } from '../migrate.js';
import { NEEDS } from '../roles.js';
import {
  type Finding,
  type GrantRow,
  type HorizonRow,
  judgeConnections,
  judgeDeadRows,
  judgeGrants,
  judgeHorizon,
  judgeIndexes,
  judgeNotifyQueue,
  judgeOptions,
  judgePrepared,
  judgeSchedules,
  judgeSequences,
  judgeServer,
  judgeSettings,
  judgeSlots,
  judgeSolo,
  judgeUnnamed,
  judgeWork,
  judgeXidAge,
  type PreparedRow,
  type SequenceRow,
  type ServerRow,
  type SlotRow,
  type TableRow,
  THRESHOLDS,
  type UnnamedRow,
  type XidRow,
} from './rules.js';
import { createDoctorStatements } from './statements.js';

export type { Finding, Status } from './rules.js';

export interface DoctorOptions {
  readonly schema: string;
  /** Show what the oldest transactions run. The text may hold data. Default false. */
  readonly queries?: boolean;
  /** A job due for longer is bad, a tenth of it deserves a look. Default 600,000. */
  readonly maxLagMs?: number;
}

/** Kinds with a priority that are looked at, more than a scrape would. */
const MAX_LEVELS = 1_000;
/** Unfinished jobs looked at, of each sort, for one that runs and is nowhere noted. */
const MAX_UNFINISHED = 500_000;
/** A kind of which nothing finished for so long is not worked on. */
const RECENT_MS = 600_000;
const MAX_STATEMENT_MS = 5_000;
/** What is not there (yet): a schema, a table, a column, a function. */
const MISSING = new Set(['3F000', '42P01', '42703', '42883']);
const MIGRATE = 'Run: unbroker migrate';
/** insufficient_privilege, statement_timeout, lock_timeout. */
const NOT_ANSWERED = new Set([...MISSING, '42501', '57014', '55P03']);

/** `client` is one connection. Throws what a lost connection throws; whatever else goes wrong is a finding. */
export async function examine(client: Queryable, options: DoctorOptions): Promise<Finding[]> {
  const doctor = new Doctor(client, options);
  const server = await doctor.server();
  const schema = await doctor.schema();
  const rest = [
    ...(await doctor.work()),
    ...(await doctor.table()),
    ...(await doctor.horizon()),
    ...(await doctor.limits()),
  ];
  // That there is no schema yet is said once, with what to do.
  const known = schema.some(({ status }) => status === 'bad');
  return [...server, ...schema, ...rest.filter(({ next }) => !(known && next === MIGRATE))];
}

/** One entry a privilege, by column of the statement's parameters. */
const needed = Object.entries(NEEDS).flatMap(([part, needs]) =>
  needs.flatMap(({ on, name, privileges, columns = [null] }) =>
    privileges.flatMap((privilege) => columns.map((column) => [part, on, column, privilege, name])),
  ),
);
const NEEDED = [0, 1, 2, 3, 4].map((at) => needed.map((entry) => entry[at]));

class Doctor {
  readonly #client: Queryable;
  readonly #schema: string;
  readonly #queries: boolean;
  readonly #maxLagMs: number;
  readonly #sql: ReturnType<typeof createDoctorStatements>;

  constructor(client: Queryable, options: DoctorOptions) {
    this.#client = client;
    this.#schema = options.schema;
    this.#queries = options.queries ?? false;
    this.#maxLagMs = options.maxLagMs ?? THRESHOLDS.lagMs.bad;
    this.#sql = createDoctorStatements(options.schema);
  }

  async server(): Promise<Finding[]> {
    const sentAt = Date.now();
    const row = await this.#row<ServerRow>(this.#sql.server);
    // Half of the way there and back: the moment at which the server looked at its clock.
    return judgeServer(row, (sentAt + Date.now()) / 2);
  }

  async schema(): Promise<Finding[]> {
    try {
      await checkSchema(this.#client, this.#schema);
    } catch (error) {
      if (!(error instanceof UnbrokerError)) return [notAnswered('schema', error)];
      return [{ check: 'schema', status: 'bad', found: error.message, next: error.hint, details: [] }];
    }
    const found = `${this.#schema} is at this package’s version`;
    return [
      { check: 'schema', status: 'ok', found, next: null, details: [] },
      ...(await this.#check('grants', async () => [
        judgeGrants(await this.#rows<GrantRow>(this.#sql.grants, NEEDED)),
      ])),
    ];
  }

  async work(): Promise<Finding[]> {
    return [
      ...(await this.#check('jobs', async () => {
        const { backlog, leases } = createBacklog(this.#schema);
        const facts = {
          backlog: await this.#readOnly((db) => backlog(db, { maxLevels: MAX_LEVELS })),
          leases: await this.#readOnly((db) => leases(db)),
          recentKinds: (await this.#rows<{ kind: string }>(this.#sql.recentKinds, [RECENT_MS])).map(
            ({ kind }) => kind,
          ),
        };
        const table = await this.#row<TableRow>(this.#sql.table);
        return judgeWork(facts, table, { maxLagMs: this.#maxLagMs });
      })),
      ...(await this.#check('unnamed-leases', async () => [
        judgeUnnamed(
          (
            await this.#rows<UnnamedRow>(this.#sql.unnamedLeases, [MAX_UNFINISHED])
          )[0] as UnnamedRow,
          this.#schema,
        ),
      ])),
      ...(await this.#check('solo-jobs', async () => [
        judgeSolo(await this.#row(this.#sql.solo), this.#maxLagMs),
      ])),
      ...(await this.#check('schedules', async () => [
        judgeSchedules(await this.#rows(this.#sql.schedules)),
      ])),
    ];
  }

  async table(): Promise<Finding[]> {
    const named = [this.#schema];
    return [
      ...(await this.#check('table-options', async () => {
        const row = await this.#row<TableRow>(this.#sql.table);
        return [judgeDeadRows(row), judgeOptions(row)];
      })),
      ...(await this.#check('indexes', async () => [
        judgeIndexes(await this.#rows(this.#sql.invalidIndexes, named)),
      ])),
      ...(await this.#check('sequences', async () => [
        judgeSequences(await this.#rows<SequenceRow>(this.#sql.sequences, named)),
      ])),
    ];
  }

  async horizon(): Promise<Finding[]> {
    return [
      ...(await this.#check('horizon', async () => [
        judgeHorizon(await this.#rows<HorizonRow>(this.#sql.horizon, [this.#queries])),
      ])),
      ...(await this.#check('prepared-transactions', async () => [
        judgePrepared(await this.#rows<PreparedRow>(this.#sql.prepared)),
      ])),
      ...(await this.#check('replication-slots', async () => [
        judgeSlots(await this.#rows<SlotRow>(this.#sql.slots)),
      ])),
    ];
  }

  async limits(): Promise<Finding[]> {
    return [
      ...(await this.#check('xid-age', async () => [judgeXidAge(await this.#row<XidRow>(this.#sql.xidAge))])),
      ...(await this.#check('notify-queue', async () => [
        judgeNotifyQueue(await this.#row(this.#sql.notifyQueue)),
      ])),
      ...(await this.#check('connections', async () => [
        judgeConnections(await this.#row(this.#sql.connections)),
      ])),
      ...(await this.#check('settings', async () => judgeSettings(await this.#rows(this.#sql.settings)))),
    ];
  }

  async #check(name: string, look: () => Promise<Finding[]>): Promise<Finding[]> {
    try {
      return await look();
    } catch (error) {
      return [notAnswered(name, error)];
    }
  }

  #rows<Row>(text: string, values: unknown[] = []): Promise<Row[]> {
    return this.#readOnly(async (db) => (await db.query(text, values)).rows as Row[]);
  }

  async #row<Row>(text: string): Promise<Row> {
    return (await this.#rows<Row>(text))[0] as Row;
  }

  /** With a limit on time, and the plan that the statements are meant for. Nothing is left behind in the session. */
  async #readOnly<Answer>(ask: (db: Queryable) => Promise<Answer>): Promise<Answer> {
    await this.#client.query('begin transaction read only');
    try {
      await this.#client.query(`set local statement_timeout = ${MAX_STATEMENT_MS}`);
      await this.#client.query(`set local lock_timeout = '1s'`);
      await this.#client.query('set local enable_seqscan = off');
      await this.#client.query('set local jit = off');
      return await ask(this.#client);
    } finally {
      await this.#client.query('rollback').catch(() => undefined);
    }
  }
}

/** Rethrows what is not about the question. */
function notAnswered(check: string, error: unknown): Finding {
  const code =
    typeof error === 'object' && error !== null && 'code' in error ? String(error.code) : 'no code';
  if (!NOT_ANSWERED.has(code)) throw error;
  const next =
    code === '42501'
      ? 'Run as a role that may read the schema, with pg_monitor.'
      : MISSING.has(code)
        ? MIGRATE
        : 'The server took too long: look at horizon and dead-rows, then run it again.';
  return { check, status: 'warn', found: `could not be looked at (${code})`, next, details: [] };
}
