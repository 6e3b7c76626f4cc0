/**
 * The public door of the library.
 */
export { type AnswerOptions, answerNest } from '../adapters/rabbitmq/nest-answer.js';
export { type Config, defineConfig } from './config.js';
export {
  createEnqueue,
  defineKind,
  type EnqueueClient,
  type EnqueueClientOptions,
  enqueue,
  enqueueMany,
  type Kind,
  type KindJob,
  PayloadInvalid,
  type PayloadIssue,
  type PayloadSchema,
} from './enqueue.js';
export { UnbrokerError } from './errors.js';
export {
  type Handler,
  type HandlerContext,
  type HandlerFunction,
  type HandlerJob,
  type KindOptions,
  LeaseLost,
} from './jobs/handler.js';
export type {
  ClaimedJob,
  Enqueued,
  EnqueueOptions,
  Job,
  JobError,
  JobState,
  Json,
  Misfire,
  NewJob,
  Queryable,
  RetryPolicy,
  Schedule,
} from './jobs/job.js';
export type { KindLimits } from './jobs/kind-limits.js';
export type { Keep, Retention } from './jobs/retention.js';
export { Discard, type Outcome, RetryAfter, Snooze } from './jobs/settle.js';
export type { ListenClient } from './jobs/wake.js';
export { createWorker, type Worker, type WorkerEvent, type WorkerOptions } from './jobs/worker.js';
export { createMetrics, type Metrics, type MetricsOptions } from './jobs/worker-metrics.js';
export type { Log } from './log.js';
export { type MigrateOptions, type MigrateResult, migrate, migrationSql } from './migrate.js';
export {
  createSchedules,
  findSchedule,
  listSchedules,
  nextRuns,
  pauseSchedule,
  resumeSchedule,
  type ScheduleOptions,
  type Schedules,
  schedule,
  scheduleHistory,
  triggerSchedule,
  unschedule,
} from './schedules.js';
export {
  type Contract,
  type ContractContext,
  defineContract,
  jsonResponse,
  problem,
  Refusal,
  route,
  type ShimJob,
  type ShimRequest,
  type ShimResponse,
} from './shims/contract.js';
export { Fields, limitOf, objectOf, parseTime, queryOf } from './shims/fields.js';
export { createTracing, type Tracing, type TracingApi } from './tracing.js';
