/**
 * What is well, what deserves a look, what must be acted on: pure judgements of what the server answered. Every
 * threshold is in LIMITS with its reason in docs/do/doctor.md. It refuses to know how a fact was found.
 */
import type { KindBacklog, KindLeases } from '../jobs/backlog.js';

export type Status = 'ok' | 'warn' | 'bad';

export interface Finding {
  /** Kebab-case, stable: what a monitor may select by. */
  readonly check: string;
  readonly status: Status;
  /** One line: what was found. */
  readonly found: string;
  /** The next step, in the imperative; null when all is well. */
  readonly next: string | null;
  /** The facts behind it, for programs. */
  readonly details: readonly object[];
}

interface Pair {
  readonly warn: number;
  readonly bad: number;
}

const MINUTE = 60_000;

/** From `warn` on it deserves a look, from `bad` on somebody must act. Reasons: docs/do/doctor.md. */
export const THRESHOLDS = {
  transactionMs: { warn: MINUTE, bad: 10 * MINUTE },
  xminAge: { warn: 1_000_000, bad: 50_000_000 },
  walBytes: { warn: 10_737_418_240, bad: 107_374_182_400 },
  deadRows: { warn: 50_000, bad: 500_000 },
  deadRatio: { warn: 0.2, bad: 0.5 },
  xidAge: { warn: 500_000_000, bad: 1_000_000_000 },
  sequenceUsed: { warn: 0.5, bad: 0.8 },
  notifyUsed: { warn: 0.1, bad: 0.5 },
  connectionsUsed: { warn: 0.8, bad: 0.95 },
  lagMs: { warn: MINUTE, bad: 10 * MINUTE },
  expiredMs: { warn: 15_000, bad: MINUTE },
  scheduleMs: { warn: 15_000, bad: MINUTE },
  clockMs: { warn: 5_000, bad: Number.POSITIVE_INFINITY },
  statementTimeoutMs: 1_000,
} as const satisfies Record<string, Pair | number>;

/** The options that the migrations give the table. */
export const SHIPPED_OPTIONS: Readonly<Record<string, string>> = {
  fillfactor: '30',
  autovacuum_vacuum_scale_factor: '0',
  autovacuum_vacuum_threshold: '5000',
  autovacuum_vacuum_cost_delay: '0',
  autovacuum_analyze_scale_factor: '0',
  autovacuum_analyze_threshold: '10000',
};

const level = (value: number | null, { warn, bad }: Pair): Status =>
  value === null || value < warn ? 'ok' : value < bad ? 'warn' : 'bad';

const ORDER: readonly Status[] = ['ok', 'warn', 'bad'];

/** The worst of them. */
export const worst = (statuses: readonly Status[]): Status =>
  ORDER[Math.max(0, ...statuses.map((status) => ORDER.indexOf(status)))] as Status;

function finding(
  check: string,
  status: Status,
  found: string,
  next: string,
  details: readonly object[] = [],
): Finding {
  return { check, status, found, next: status === 'ok' ? null : next, details };
}

/** `90s`, `3m`, `5h`, `2d`: two digits are enough for a person. */
export function ago(ms: number | null): string {
  if (ms === null) return 'never';
  const seconds = Math.max(0, Math.round(ms / 1_000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)}m`;
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)}h` : `${Math.round(seconds / 86_400)}d`;
}

const count = (n: number): string => Math.round(n).toLocaleString('en-US');
const percent = (share: number): string => `${(share * 100).toFixed(share < 0.01 ? 2 : 0)}%`;
const list = (names: readonly string[]): string =>
  names.length <= 5 ? names.join(', ') : `${names.slice(0, 5).join(', ')} and ${names.length - 5} more`;

export interface ServerRow {
  readonly version: string;
  readonly standby: boolean;
  readonly readOnly: boolean;
  readonly seesAll: boolean;
  readonly nowMs: number;
}

/** `clockMs` is this machine's clock, read beside the server's. */
export function judgeServer(row: ServerRow, clockMs: number): Finding[] {
  const where = row.standby ? 'a standby' : row.readOnly ? 'read-only for this role' : 'writable';
  const skewMs = Math.abs(row.nowMs - clockMs);
  return [
    finding(
      'server',
      row.standby || row.readOnly ? 'bad' : 'ok',
      `PostgreSQL ${row.version}, ${where}`,
      row.standby
        ? 'Point DATABASE_URL at the primary: nothing can be enqueued or claimed here.'
        : 'Reset default_transaction_read_only for this role or database.',
      [{ ...row, nowMs: undefined }],
    ),
    finding(
      'rights',
      row.seesAll ? 'ok' : 'warn',
      row.seesAll ? 'sees every session' : 'sees its own sessions only',
      'Run as a role with pg_monitor (grant pg_monitor to …): the horizon may be held by a session that is not shown.',
    ),
    finding(
      'clock',
      level(skewMs, THRESHOLDS.clockMs),
      `this machine and the server differ by ${(skewMs / 1_000).toFixed(1)}s`,
      'Synchronise the clocks (the server’s decides when jobs run; only log lines and metrics are off).',
      [{ skewMs }],
    ),
  ];
}

export interface GrantRow {
  readonly role: string;
  readonly part: string;
  readonly lacks: readonly string[];
}

/** A migration brings tables that nobody was granted yet. */
export function judgeGrants(rows: readonly GrantRow[]): Finding {
  const lacking = rows.filter(({ lacks }) => lacks.length > 0);
  const [first] = lacking;
  return finding(
    'grants',
    first === undefined ? 'ok' : 'bad',
    first === undefined
      ? `${count(rows.length)} roles work or enqueue here by grants, and have them all`
      : lacking.map(({ role, lacks }) => `${role} lacks ${list(lacks)}`).join('; '),
    `Run as the schema’s owner: unbroker roles --${first?.part} ${first?.role} --apply`,
    rows,
  );
}

export interface HorizonRow {
  readonly pid: number;
  readonly applicationName: string;
  readonly backendType: string;
  readonly state: string | null;
  readonly waitsFor: string | null;
  readonly transactionMs: number | null;
  readonly queryMs: number | null;
  readonly xidAge: number;
  readonly query: string | null;
}

export function judgeHorizon(rows: readonly HorizonRow[]): Finding {
  const oldest = rows[0];
  if (oldest === undefined) return finding('horizon', 'ok', 'no transaction is open', '');
  const age =
    oldest.transactionMs === null
      ? `${count(oldest.xidAge)} xids old`
      : `open for ${ago(oldest.transactionMs)}`;
  const status =
    oldest.transactionMs === null
      ? level(oldest.xidAge, THRESHOLDS.xminAge)
      : level(oldest.transactionMs, THRESHOLDS.transactionMs);
  return finding(
    'horizon',
    status,
    `held by pid ${oldest.pid} (${oldest.applicationName || 'no application_name'}, ${oldest.state ?? oldest.backendType}), ${age}`,
    `Find out what it does and end it: select pg_terminate_backend(${oldest.pid}). Until then no dead row is removed and claims get slower. idle_in_transaction_session_timeout prevents the next one.`,
    rows,
  );
}

export interface PreparedRow {
  readonly name: string;
  readonly owner: string;
  readonly preparedMs: number;
}

export function judgePrepared(rows: readonly PreparedRow[]): Finding {
  const oldest = rows[0];
  if (oldest === undefined) return finding('prepared-transactions', 'ok', 'none', '');
  return finding(
    'prepared-transactions',
    level(oldest.preparedMs, THRESHOLDS.transactionMs),
    `${rows.length}, the oldest (${oldest.name}) prepared ${ago(oldest.preparedMs)} ago`,
    'Have its coordinator end it, or do it yourself: commit prepared or rollback prepared.',
    rows,
  );
}

export interface SlotRow {
  readonly name: string;
  readonly active: boolean;
  readonly xidAge: number | null;
  readonly walStatus: string | null;
  readonly walBytes: number | null;
}

export function judgeSlots(rows: readonly SlotRow[]): Finding {
  const judged = rows.map((row) => ({
    row,
    status: worst([
      level(row.xidAge, THRESHOLDS.xminAge),
      // Nobody will move it on.
      row.xidAge !== null && !row.active ? 'warn' : 'ok',
      level(row.walBytes, THRESHOLDS.walBytes),
      row.walStatus === 'lost' || row.walStatus === 'unreserved' ? 'warn' : 'ok',
    ]),
  }));
  const status = worst(judged.map((each) => each.status));
  const troubled = judged.filter((each) => each.status === status).map(({ row }) => row.name);
  return finding(
    'replication-slots',
    status,
    status === 'ok' ? `${rows.length}` : `held back by ${list(troubled)}`,
    'Bring its consumer back, or drop it: select pg_drop_replication_slot(name).',
    rows,
  );
}

export interface TableRow {
  readonly estimatedRows: number;
  readonly bytes: number;
  readonly options: readonly string[] | null;
  readonly live: number | null;
  readonly dead: number | null;
  readonly vacuumedMs: number | null;
  readonly autovacuumedMs: number | null;
}

/** Both must be past their limit: half of a table of ten rows is dead all the time. */
export function judgeDeadRows(row: TableRow): Finding {
  const dead = row.dead ?? 0;
  const ratio = dead / Math.max(1, dead + (row.live ?? 0));
  const byCount = level(dead, THRESHOLDS.deadRows);
  const byRatio = level(ratio, THRESHOLDS.deadRatio);
  const status = ORDER[Math.min(ORDER.indexOf(byCount), ORDER.indexOf(byRatio))] as Status;
  return finding(
    'dead-rows',
    status,
    `${count(dead)} dead (${percent(ratio)}), vacuumed ${row.vacuumedMs === null ? 'never' : `${ago(row.vacuumedMs)} ago`}`,
    'See horizon first: while that is held no vacuum helps. Else run: vacuum (verbose) on the jobs table, and read what it could not remove.',
    [{ dead, live: row.live, ratio, vacuumedMs: row.vacuumedMs, autovacuumedMs: row.autovacuumedMs }],
  );
}

export function judgeOptions(row: TableRow): Finding {
  const options = new Map((row.options ?? []).map((option) => option.split('=', 2) as [string, string]));
  const off = options.get('autovacuum_enabled') === 'false' || options.get('autovacuum_enabled') === 'off';
  const changed = Object.entries(SHIPPED_OPTIONS).filter(([name, value]) => options.get(name) !== value);
  const said = changed.map(([name, value]) => `${name} ${options.get(name) ?? 'unset'} instead of ${value}`);
  if (off) said.unshift('autovacuum is off for the table');
  return finding(
    'table-options',
    off ? 'bad' : changed.length > 0 ? 'warn' : 'ok',
    said.length === 0 ? 'as shipped' : list(said),
    off
      ? 'Run: alter table … reset (autovacuum_enabled).'
      : 'Put them back with alter table … set (…), unless you measured yours; docs/understand/table.md has the reasons.',
    [{ options: row.options }],
  );
}

export function judgeIndexes(rows: readonly { readonly name: string }[]): Finding {
  return finding(
    'indexes',
    rows.length === 0 ? 'ok' : 'bad',
    rows.length === 0 ? 'all valid' : `invalid: ${list(rows.map(({ name }) => name))}`,
    'Run: reindex index concurrently on each; an invalid index is written to and never read.',
    rows,
  );
}

export interface SequenceRow {
  readonly name: string;
  readonly lastValue: string;
  readonly used: number;
}

export function judgeSequences(rows: readonly SequenceRow[]): Finding {
  const fullest = rows[0];
  return finding(
    'sequences',
    level(fullest?.used ?? 0, THRESHOLDS.sequenceUsed),
    fullest === undefined ? 'none' : `${fullest.name} is the furthest, ${percent(fullest.used)} used`,
    'A bigint does not run out by use: find who set it (setval, an import with ids of its own), then set it back above max(id).',
    rows,
  );
}

export interface XidRow {
  readonly xidAge: number;
  readonly multixactAge: number;
}

export function judgeXidAge(row: XidRow): Finding {
  return finding(
    'xid-age',
    worst([level(row.xidAge, THRESHOLDS.xidAge), level(row.multixactAge, THRESHOLDS.xidAge)]),
    `${count(row.xidAge)} transactions, ${count(row.multixactAge)} multixacts since the oldest frozen row`,
    'Free the horizon, then run vacuum (freeze) on the oldest tables; at 2,147 million the server refuses writes.',
    [row],
  );
}

export function judgeNotifyQueue(row: { readonly used: number }): Finding {
  return finding(
    'notify-queue',
    level(row.used, THRESHOLDS.notifyUsed),
    `${percent(row.used)} used`,
    'Find the session that listens inside an open transaction (state idle in transaction) and end it; when the queue is full every NOTIFY fails.',
    [row],
  );
}

export function judgeConnections(row: { readonly used: number; readonly max: number }): Finding {
  return finding(
    'connections',
    level(row.used / Math.max(1, row.max), THRESHOLDS.connectionsUsed),
    `${row.used} of ${row.max}`,
    'Lower the pools of what connects, or put a pooler in between; raising max_connections costs memory.',
    [row],
  );
}

export function judgeSettings(rows: readonly { readonly name: string; readonly value: string }[]): Finding[] {
  const values = new Map(rows.map(({ name, value }) => [name, value]));
  const dangers = [
    ['fsync', 'a crash may corrupt the database'],
    ['full_page_writes', 'a crash may leave torn pages'],
    ['synchronous_commit', 'a crash loses jobs that an enqueue or a drain had already confirmed'],
    ['autovacuum', 'dead rows pile up'],
  ] as const;
  const durable = dangers.map(([name, danger]) =>
    finding(
      `setting-${name.replaceAll('_', '-')}`,
      values.get(name) === 'off' ? 'bad' : 'ok',
      `${values.get(name) ?? 'unknown'}${values.get(name) === 'off' ? `: ${danger}` : ''}`,
      `Run: alter system reset ${name}, or look for it in alter role … set and alter database … set.`,
    ),
  );
  const timeoutMs = Number(values.get('statement_timeout') ?? 0);
  return [
    ...durable,
    finding(
      'setting-statement-timeout',
      timeoutMs > 0 && timeoutMs < THRESHOLDS.statementTimeoutMs ? 'warn' : 'ok',
      timeoutMs === 0 ? 'none' : `${timeoutMs} ms`,
      'Give the worker’s role a second or more: a settle that is cut short means a job that ran and is not finished.',
    ),
    ...sessionFindings(values),
    finding('setting-timezone', 'ok', values.get('TimeZone') ?? 'unknown', ''),
  ];
}

/** What a role or a database may say of its sessions that this package, or the driver below it, was not made for. */
function sessionFindings(values: ReadonlyMap<string, string>): Finding[] {
  const isolation = values.get('default_transaction_isolation') ?? 'read committed';
  const digits = Number(values.get('extra_float_digits') ?? 1);
  return [
    finding(
      'setting-isolation',
      /^read (un)?committed$/.test(isolation) ? 'ok' : 'warn',
      isolation,
      "Run: alter role … set default_transaction_isolation = 'read committed' for the workers’ role: claims, ends and checkpoints that meet are else refused and asked again.",
    ),
    finding(
      'setting-float-digits',
      digits >= 0 ? 'ok' : 'bad',
      digits >= 0 ? String(digits) : `${digits}: times lose their last digits`,
      'Run: alter role … set extra_float_digits = 1, or reset it.',
    ),
  ];
}

export interface WorkFacts {
  readonly backlog: readonly KindBacklog[];
  readonly leases: readonly KindLeases[];
  /** Of which kinds a job finished lately. */
  readonly recentKinds: readonly string[];
}

export interface WorkOptions {
  /** A job due for longer is bad, a tenth of it deserves a look. */
  readonly maxLagMs: number;
}

export function judgeWork(facts: WorkFacts, table: TableRow, { maxLagMs }: WorkOptions): Finding[] {
  return [
    judgeCounts(facts, table),
    judgeLag(facts.backlog, maxLagMs),
    judgeUnworked(facts, maxLagMs),
    judgeExpired(facts.leases),
  ];
}

function judgeCounts({ backlog, leases }: WorkFacts, table: TableRow): Finding {
  const sum = (numbers: readonly number[]): number => numbers.reduce((all, n) => all + n, 0);
  const due = sum(backlog.map((kind) => kind.due));
  const running = sum(leases.map((kind) => kind.running));
  const more = backlog.some((kind) => kind.capped) ? ' or more' : '';
  const rows = table.estimatedRows < 0 ? 'never analysed' : `about ${count(table.estimatedRows)} rows`;
  return finding('jobs', 'ok', `${count(due)}${more} due, ${count(running)} running, ${rows}`, '', [
    { due, dueCapped: more !== '', running, estimatedRows: table.estimatedRows, bytes: table.bytes },
    ...backlog,
  ]);
}

function judgeLag(backlog: readonly KindBacklog[], maxLagMs: number): Finding {
  const late = [...backlog].sort((a, b) => (b.oldestDueMs ?? 0) - (a.oldestDueMs ?? 0));
  const oldest = late[0];
  const lagMs = oldest?.oldestDueMs ?? null;
  return finding(
    'lag',
    level(lagMs, { warn: maxLagMs / 10, bad: maxLagMs }),
    oldest === undefined || lagMs === null ? 'nothing is due' : `${oldest.kind}: due for ${ago(lagMs)}`,
    'Start more workers or raise their concurrency; see unworked-kinds and horizon first.',
    late.filter((kind) => (kind.oldestDueMs ?? 0) >= maxLagMs / 10).slice(0, 50),
  );
}

/** A kind nobody runs now and nobody finished lately, whose jobs wait: no worker knows it. */
function judgeUnworked({ backlog, leases, recentKinds }: WorkFacts, maxLagMs: number): Finding {
  const worked = new Set([...recentKinds, ...leases.map(({ kind }) => kind)]);
  const waiting = backlog.filter(
    ({ kind, oldestDueMs }) => !worked.has(kind) && (oldestDueMs ?? 0) >= maxLagMs / 10,
  );
  const oldestMs = Math.max(0, ...waiting.map(({ oldestDueMs }) => oldestDueMs ?? 0));
  return finding(
    'unworked-kinds',
    level(waiting.length === 0 ? null : oldestMs, { warn: maxLagMs / 10, bad: maxLagMs }),
    waiting.length === 0 ? 'none' : list(waiting.map(({ kind, due }) => `${kind} (${due} due)`)),
    'Start a worker that has a handler for them, or correct the kind where they are enqueued.',
    waiting.slice(0, 50),
  );
}

function judgeExpired(leases: readonly KindLeases[]): Finding {
  const expired = leases.filter((kind) => kind.expired > 0);
  const oldestMs = Math.max(0, ...expired.map((kind) => kind.oldestExpiredMs ?? 0));
  return finding(
    'expired-leases',
    level(expired.length === 0 ? null : oldestMs, THRESHOLDS.expiredMs),
    expired.length === 0
      ? 'none'
      : `${list(expired.map((kind) => `${kind.kind} (${kind.expired})`))}, the oldest for ${ago(oldestMs)}`,
    'No worker takes them back: start one with upkeep (upkeepMs above 0), of any kind.',
    expired,
  );
}

/** Of running jobs that no claim names. */
export interface UnnamedRow {
  readonly count: number;
  readonly first: string | null;
}

export function judgeUnnamed(row: UnnamedRow, schema: string): Finding {
  return finding(
    'unnamed-leases',
    row.count === 0 ? 'ok' : 'bad',
    row.count === 0
      ? 'none'
      : `${count(row.count)} running jobs that no sweep will find, the first is ${row.first}`,
    // Restored alone they have tokens that the sequence still has before it: a claim that draws one of them is refused.
    `They were leased past the claim, or restored without the table claims. Run as the owner of the schema: select setval('${schema}.lease_tokens', greatest(nextval('${schema}.lease_tokens'), (select max(lease_token) from ${schema}.jobs)) + 1000), ${schema}.note_running(); the next sweep takes back those whose lease has ended.`,
    row.count === 0 ? [] : [row],
  );
}

export function judgeSolo(
  row: { readonly due: number; readonly oldestDueMs: number | null },
  maxLagMs: number,
): Finding {
  return finding(
    'solo-jobs',
    level(row.oldestDueMs, { warn: maxLagMs / 10, bad: maxLagMs }),
    row.due === 0 ? 'none waits' : `${row.due} wait to be run alone, the oldest for ${ago(row.oldestDueMs)}`,
    'Their last worker died. They are claimed by a worker that runs nothing else: start another one, or look at them (unbroker jobs list --state ready).',
    [row],
  );
}

export function judgeSchedules(rows: readonly { readonly name: string; readonly dueMs: number }[]): Finding {
  const oldest = rows[0];
  return finding(
    'schedules',
    level(oldest?.dueMs ?? null, THRESHOLDS.scheduleMs),
    oldest === undefined ? 'none is late' : `${oldest.name} should have fired ${ago(oldest.dueMs)} ago`,
    'No worker fires them: start one with upkeep (upkeepMs above 0); its log names those it cannot read.',
    rows,
  );
}
