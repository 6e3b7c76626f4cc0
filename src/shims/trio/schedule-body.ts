/**
 * A schedule as a client writes it, read into a job that lies ahead, into a schedule's draft, or into a change of either.
 * Pure. Throws Refusal.
 */
import { type Job, type Json, LIMITS, type Schedule } from '../../jobs/job.js';
import { MISFIRES } from '../../jobs/schedule.js';
import { readJson, type StringNode } from '../../json-text.js';
import type {
  ContractContext,
  JobEdit,
  PutSchedule,
  ScheduleDraft,
  ShimJob,
  ShimRequest,
} from '../contract.js';
import { type Fields, invalid } from '../fields.js';
import { headerOf, sentText, withTarget } from './common.js';
import { MAX_DELAY_MS } from './notification-body.js';
import { readPolicy } from './policy.js';
import { planFired, readTarget, type Target, targetJson } from './targets.js';

/** Source of a schedule: this, or this and `:<name>`. */
export const SOURCE = 'trio:schedule';
export const MAX_NAME = 255;
/** As a schedule's row is named. */
const MAX_CRON_NAME = 200;

export const FIELDS = [
  'name',
  'runAt',
  'delayMs',
  'cron',
  'timeZone',
  'misfire',
  'expiresAt',
  'target',
  'payload',
  'retry',
  'paused',
] as const;
type Field = (typeof FIELDS)[number];

export function oneOffOf(fields: Fields<Field>, name: StringNode | null, context: ContractContext): ShimJob {
  const runAt = fields.time('runAt');
  const delayMs = fields.integer('delayMs', 0, MAX_DELAY_MS);
  if (runAt === undefined && delayMs === undefined) throw invalid('runAt, delayMs or cron is missing');
  for (const only of ['timeZone', 'misfire', 'paused'] as const)
    if (fields.get(only) !== undefined) throw invalid(`${only} belongs to a cron`);
  const target = targetOf(fields);
  const plan = planFired(target, name, fields.get('payload') ?? null, context);
  const expiresAt = fields.time('expiresAt');
  if (expiresAt !== undefined && runAt !== undefined && expiresAt <= runAt)
    throw invalid('expiresAt is not after runAt');
  return {
    kind: plan.kind,
    payloadText: plan.payloadText,
    source: name === null ? SOURCE : `${SOURCE}:${name.value}`.slice(0, LIMITS.sourceLength),
    headers: {
      target: targetJson(target),
      ...(expiresAt === undefined ? {} : { expiresAt: expiresAt.toISOString() }),
    },
    // Both given: the old service took the delay.
    ...(delayMs === undefined && runAt !== undefined ? { runAt } : { delayMs: delayMs ?? 0 }),
    ...retryOf(fields),
  };
}

function retryOf(fields: Fields<Field>): Pick<ShimJob, 'retryPolicy' | 'maxAttempts'> {
  const node = fields.object('retry');
  if (node === undefined) return {};
  const { policy, maxAttempts } = readPolicy(node, 'retry');
  return { retryPolicy: policy, maxAttempts };
}

function targetOf(fields: Fields<Field>): Target | null {
  const node = fields.get('target');
  return node === undefined ? null : readTarget(node);
}

export function cronOf(
  fields: Fields<Field>,
  name: StringNode | null,
  mode: PutSchedule['mode'],
  context: ContractContext,
): PutSchedule {
  if (fields.get('runAt') !== undefined || fields.get('delayMs') !== undefined)
    throw invalid('give cron, runAt or delayMs');
  if (name !== null && (name.value.length > MAX_CRON_NAME || /^\d+$/.test(name.value)))
    throw invalid(`the name of a cron is 1 to ${MAX_CRON_NAME} characters and not a number`);
  const target = targetOf(fields);
  const plan = planFired(target, name, fields.get('payload') ?? null, context, true);
  const draft: ScheduleDraft = {
    kind: plan.kind,
    payloadText: plan.payloadText,
    source: SOURCE,
    headers: { target: targetJson(target) },
    ...ruleOf(fields),
    ...retryOf(fields),
  };
  return { type: 'put-schedule', name: name?.value ?? null, prefix: 'schedule-', mode, draft };
}

/** The members that say when. */
function ruleOf(
  fields: Fields<Field>,
): Pick<ScheduleDraft, 'cron' | 'timeZone' | 'misfire' | 'endAt' | 'paused'> {
  const cron = fields.text('cron', 10_000)?.value;
  const timeZone = fields.text('timeZone', 100)?.value;
  const misfire = fields.text('misfire', 10)?.value;
  const known = MISFIRES.find((one) => one === misfire);
  if (misfire !== undefined && known === undefined)
    throw invalid(`misfire is none of ${MISFIRES.join(', ')}`);
  const endAt = fields.time('expiresAt');
  const paused = pausedOf(fields);
  return {
    ...(cron === undefined ? {} : { cron }),
    ...(timeZone === undefined ? {} : { timeZone }),
    ...(known === undefined ? {} : { misfire: known }),
    ...(endAt === undefined ? {} : { endAt }),
    ...(paused === undefined ? {} : { paused }),
  };
}

function pausedOf(fields: Fields<Field>): boolean | undefined {
  const node = fields.get('paused');
  if (node === undefined) return undefined;
  if (node.type !== 'literal' || typeof node.value !== 'boolean')
    throw invalid('paused is not true or false');
  return node.value;
}

/** What is not given stays as it is. */
export function patchedSchedule(
  schedule: Schedule,
  fields: Fields<Field>,
  { params }: ShimRequest,
  context: ContractContext,
): ScheduleDraft {
  if (fields.get('runAt') !== undefined || fields.get('delayMs') !== undefined)
    throw invalid('a cron has no runAt or delayMs');
  const name = readJson(JSON.stringify(params['id'] ?? ''));
  const { cron, timeZone, misfire, endAt, priority, maxAttempts, retryPolicy } = schedule;
  return {
    kind: schedule.kind,
    source: SOURCE,
    cron,
    timeZone,
    misfire,
    priority,
    maxAttempts,
    ...(schedule.payloadText === null ? {} : { payloadText: schedule.payloadText }),
    ...(endAt === null ? {} : { endAt }),
    ...(retryPolicy === null ? {} : { retryPolicy }),
    ...retargeted(schedule, fields, name.type === 'string' ? name : null, context),
    ...ruleOf(fields),
    ...retryOf(fields),
  };
}

export function patchedJob(job: Job, fields: Fields<Field>, context: ContractContext): JobEdit {
  for (const only of ['cron', 'timeZone', 'misfire', 'paused', 'expiresAt'] as const)
    if (fields.has(only)) throw invalid(`${only} cannot be given to a one-off schedule afterwards`);
  const runAt = fields.time('runAt');
  const delayMs = fields.integer('delayMs', 0, MAX_DELAY_MS);
  const name = job.source?.slice(SOURCE.length + 1) ?? '';
  const node = name === '' ? null : readJson(JSON.stringify(name));
  return {
    ...(delayMs !== undefined ? { delayMs } : runAt !== undefined ? { runAt } : {}),
    ...retargeted(job, fields, node?.type === 'string' ? node : null, context),
    ...retryOf(fields),
  };
}

/** Kind, payload and headers for another target or payload; whichever is not given is read from the row. */
function retargeted(
  row: Job | Schedule,
  fields: Fields<Field>,
  name: StringNode | null,
  context: ContractContext,
): Pick<ScheduleDraft, 'kind' | 'payloadText' | 'headers'> | Record<string, never> {
  if (!fields.has('target') && !fields.has('payload')) {
    const target = headerOf(row, 'target');
    return target === undefined ? {} : { kind: row.kind, headers: withTarget(row, target as Json) };
  }
  const kept = headerOf(row, 'target') ?? null;
  const target = fields.has('target')
    ? targetOf(fields)
    : kept === null
      ? null
      : readTarget(readJson(JSON.stringify(kept)));
  const payload = fields.has('payload') ? (fields.get('payload') ?? null) : readJson(sentText(row));
  // A notification's own source would take it out of the schedules.
  const { kind, payloadText } = planFired(target, name, payload, context, 'cron' in row);
  return { kind, payloadText, headers: withTarget(row, targetJson(target)) };
}
