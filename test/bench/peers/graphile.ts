/**
 * graphile-worker with the settings of its own performance page (batching: concurrentJobs 24, maxPoolSize 25, a local
 * queue of 500, batch delays of 0) and its success log off, as in its own performance test.
 */
import pg from 'pg';
import { type Contender, KIND, type Payload } from '../contender.js';

/** What is used of it; the package is there only once the bench has installed it (peers.ts). */
interface GraphileWorker {
  run(options: object): Promise<{ stop(): Promise<void> }>;
  runMigrations(options: object): Promise<void>;
  Logger: new (factory: () => (level: string, message: string) => void) => object;
}

process.env['NO_LOG_SUCCESS'] = '1';
const packageName: string = 'graphile-worker';
const { Logger, run, runMigrations } = (await import(packageName)) as GraphileWorker;

const logger = new Logger(() => (level, message) => {
  if (level === 'error' || level === 'warning') console.error(`graphile-worker: ${message}`);
});
const addJob = `select graphile_worker.add_job($1, payload := $2::json)`;
const addJobs = `
select count(*) from graphile_worker.add_jobs(array(
  select json_populate_record(null::graphile_worker.job_spec,
                              json_build_object('identifier', $1::text, 'payload', payload::json))
  from unnest($2::text[]) as payload))`;

export const graphile: Contender = {
  unfinished: 'select exists (select from graphile_worker._private_jobs) as unfinished',

  async install(url) {
    await runMigrations({ connectionString: url, preset: { worker: { logger } } });
  },

  async enqueuer(url) {
    const own = new pg.Client({ connectionString: url });
    await own.connect();
    return {
      enqueue: (client, payload) =>
        client.query({ name: 'add-job', text: addJob, values: [KIND, JSON.stringify(payload)] }),
      enqueueMany: (payloads) =>
        own.query({
          name: 'add-jobs',
          text: addJobs,
          values: [KIND, payloads.map((payload) => JSON.stringify(payload))],
        }),
      close: () => own.end(),
    };
  },

  async work(url, profile, onJob) {
    const preset = {
      worker: {
        ...{ connectionString: url, logger },
        ...{ concurrentJobs: 24, maxPoolSize: 25 },
        ...(profile === 'small'
          ? {}
          : { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 }),
      },
    };
    const taskList = { [KIND]: (payload: unknown) => onJob(payload as Payload) };
    const runner = await run({ preset, taskList, noHandleSignals: true });
    return { stop: () => runner.stop() };
  },
};
