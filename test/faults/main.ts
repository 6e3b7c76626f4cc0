/**
 * `npm run -s faults -- worker|drain|delayed|fuzz|undo|shim|chaos|database|codemod [--long]`: picks the group, runs it and prints one JSON object as the last
 * line. Its exit status is 1 when something was lost, doubled or stale, or did not recover.
 */
type Group = (options: { readonly long: boolean }) => Promise<object>;

/** Loaded on demand: each starts servers of its own. */
const groups: Readonly<Record<string, () => Promise<Group>>> = {
  worker: async () => (await import('./worker.js')).faultsWorker,
  drain: async () => (await import('./drain.js')).faultsDrain,
  delayed: async () => (await import('./delayed.js')).faultsDelayed,
  fuzz: async () => (await import('./fuzz.js')).faultsFuzz,
  bridge: async () => (await import('./bridge.js')).faultsBridge,
  undo: async () => (await import('./undo.js')).faultsUndo,
  shim: async () => (await import('./shim.js')).faultsShim,
  chaos: async () => (await import('./chaos.js')).faultsChaos,
  database: async () => (await import('./database-faults.js')).faultsDatabase,
  failover: async () => (await import('./failover.js')).faultsFailover,
  model: async () => (await import('./model.js')).faultsModel,
  pgbouncer: async () => (await import('./pgbouncer.js')).faultsPgBouncer,
  codemod: async () => (await import('./codemod.js')).faultsCodemod,
};

const [name = '', ...flags] = process.argv.slice(2);
const group = Object.hasOwn(groups, name) ? groups[name] : undefined;
if (group === undefined || flags.some((flag) => flag !== '--long')) {
  process.stderr.write(`usage: npm run -s faults -- ${Object.keys(groups).join('|')} [--long]\n`);
  process.exit(2);
}

const run = await group();
const long = flags.includes('--long');
const startedAt = performance.now();
const result = {
  group: name,
  long,
  ...(await run({ long })),
  seconds: Math.round((performance.now() - startedAt) / 1_000),
};
const {
  lost = 0,
  extra = 0,
  stale = 0,
  failed = 0,
} = result as { lost?: number; extra?: number; stale?: number; failed?: number };
// Left to end by itself, Node was seen to wait in a busy loop for ever, in its own cleanup (uv_run below CleanupHandles), for
// sockets that had been reset while they closed: all was done, and the run did not end.
process.stdout.write(`${JSON.stringify(result)}\n`, () => {
  process.exit(lost + extra + stale + failed === 0 ? 0 : 1);
});
