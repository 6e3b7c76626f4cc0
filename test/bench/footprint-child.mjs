// The process that footprint.ts measures: `import <file>` prints how long that took in ms, `worker <url> <jobs>` prints the
// memory in MB of a worker that holds so many jobs. Plain JavaScript: a loader would weigh more than what is measured.
const [what, target, count = '0'] = process.argv.slice(2);

if (what === 'import') {
  const startAt = performance.now();
  await import(target);
  console.log(performance.now() - startAt);
  process.exit();
}

const { createWorker, enqueueMany, migrate } = await import('../../dist/src/index.js');
const { default: pg } = await import('pg');
const jobs = Number(count);
const pool = new pg.Pool({ connectionString: target, max: 5 });
await migrate(pool);
const payload = { text: 'x'.repeat(200) };
await enqueueMany(
  pool,
  Array.from({ length: jobs }, () => ({ kind: 'a', payload })),
);
let held = 0;
const worker = createWorker({
  db: pool,
  concurrency: Math.max(10, jobs),
  handlers: {
    a: () => {
      held += 1;
      return new Promise(() => {});
    },
  },
});
worker.start();
while (held < jobs) await new Promise((resolve) => setTimeout(resolve, 20));
await new Promise((resolve) => setTimeout(resolve, 1_500));
console.log(process.memoryUsage.rss() / 1_048_576);
await worker.stop({ deadlineMs: 0 });
process.exit();
