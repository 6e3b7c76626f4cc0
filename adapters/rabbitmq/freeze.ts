/**
 * Stops publishers without losing a message, and lets them go again. Three measures, each written down before it is taken,
 * verified, and taken back by `thaw`: write permissions are revoked, queues refuse by a policy, connections are closed. A
 * policy comes in two steps, because a classic queue that gets `max-length: 0` while it still drops its oldest is
 * emptied; and never on a queue that dead letters come into, because a classic one refuses those, too, and then they are
 * gone (measured on 3.10). It knows no HTTP and no command line: admin.ts does.
 */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { EXIT, UnbrokerError } from '../../src/errors.js';
import type { Queryable } from '../../src/jobs/job.js';
import type { Admin, Permission, Policy, PublishingConnection, QueuePolicy } from './admin.js';
import type { Broker } from './broker.js';
import { createFreezeLedger, type FreezeStep, type FrozenStep } from './freeze-ledger.js';
import type { GroupPlan, QueuePlan } from './topology.js';

export interface FreezeOptions {
  readonly pool: Queryable;
  readonly schema: string;
  readonly broker: Broker;
  readonly admin: Admin;
  readonly groups: readonly GroupPlan[];
  /** Users that lose their write permission. */
  readonly revoke: readonly string[];
  /** Close connections that publish. */
  readonly close: boolean;
  /** Called before each change and after it, for tests that end a freeze exactly there. */
  readonly onStep?: (step: FreezeStep, target: string, when: 'intended' | 'changed') => void;
}

export interface FreezeResult {
  readonly way: Admin['way'];
  /** What was changed, in order. */
  readonly done: readonly { readonly step: FreezeStep; readonly target: string }[];
  /** Queues without a policy, with the reason: only permissions and closed connections keep publishers from them. */
  readonly open: readonly { readonly queue: string; readonly reason: string }[];
  /** Connections that still publish. */
  readonly publishers: readonly PublishingConnection[];
}

const NOTHING: Permission['write'] = '^$';
/** More than a queue holds. */
const AMPLE = 2_000_000_000;
const APPLIED_WITHIN_MS = 20_000;
const POLL_MS = 200;
/** Asked this often, a queue has worked off what was sent to it before. */
const ASKS = 2;

/** Throws `freeze-unconfirmed`, `freeze-user`, `freeze-failed`, `management-failed`. */
export async function freezeGroups(options: FreezeOptions): Promise<FreezeResult> {
  const { admin, broker, groups, revoke, close } = options;
  const { vhost } = broker;
  if (revoke.includes(broker.user)) throw ownUser(broker.user);
  const before = (await admin.publishers(vhost)).filter(({ user }) => !revoke.includes(user) || !close);
  const silent = before.filter(({ confirms }) => !confirms);
  const queues = groups.flatMap((group) => group.queues.map((queue) => ({ group: group.name, queue })));
  const holding = new Map<string, QueuePolicy>();
  for (const { queue } of queues) holding.set(queue.name, await admin.queue(vhost, queue.name));
  const withPolicy = queues.filter(({ queue }) => whyNoPolicy(queue, holding.get(queue.name)) === null);
  if (silent.length > 0 && withPolicy.length > 0 && !close) throw unconfirmed(silent);
  const done: { step: FreezeStep; target: string }[] = [];
  for (const user of revoke) {
    await revokeWrite(options, user);
    done.push({ step: 'permission', target: user });
  }
  // A channel remembers what it was allowed: revoking alone does not stop a publisher that runs.
  if (close) {
    for (const connection of await admin.publishers(vhost)) {
      await closeOne(options, groups, connection);
      done.push({ step: 'connection', target: connection.name });
    }
  }
  await refuseByPolicies(
    options,
    withPolicy.map(({ group, queue }) => ({ group, queue: queue.name })),
  );
  done.push(...withPolicy.map(({ queue }) => ({ step: 'policy' as const, target: queue.name })));
  return {
    ...{ way: admin.way, done },
    open: queues.flatMap(({ queue }) => {
      const reason = whyNoPolicy(queue, holding.get(queue.name));
      return reason === null ? [] : [{ queue: queue.name, reason }];
    }),
    publishers: await admin.publishers(vhost),
  };
}

/** Null: a policy can make the queue refuse without harm. */
export function whyNoPolicy({ info, feeders }: QueuePlan, holding: QueuePolicy | undefined): string | null {
  const { overflowArgument = null } = holding ?? {};
  if (info.type !== 'classic' && info.type !== 'quorum') return `a ${info.type} queue`;
  if (info.exclusive) return 'exclusive to its own connection';
  if (feeders.length > 0) {
    return `dead letters come in from ${feeders.slice(0, 3).join(', ')}: a queue that refuses would lose them`;
  }
  if (overflowArgument !== null && overflowArgument !== 'reject-publish') {
    return `declared with x-overflow ${overflowArgument}, which no policy changes`;
  }
  return null;
}

/** Takes back, last change first, whatever is still written as changed; harmless to repeat. Answers what it took back. */
export async function thaw(
  options: Pick<FreezeOptions, 'pool' | 'schema' | 'broker' | 'admin' | 'onStep'> & {
    /** Only the policies of these; users and connections stay as they are. Undefined = everything of the virtual host. */
    readonly groups?: readonly string[] | undefined;
  },
): Promise<readonly { readonly step: FreezeStep; readonly target: string; readonly note: string | null }[]> {
  const { pool, schema, broker, groups } = options;
  const ledger = createFreezeLedger(schema);
  const thawed: { step: FreezeStep; target: string; note: string | null }[] = [];
  for (const frozen of await ledger.open(pool, broker.vhost)) {
    if (groups !== undefined && (frozen.step !== 'policy' || !groups.includes(frozen.group))) continue;
    const { step, target } = frozen;
    const note =
      step === 'policy'
        ? await dropPolicy(options, frozen)
        : step === 'permission'
          ? await grant(options, frozen)
          : null;
    await ledger.thawed(pool, frozen.id);
    thawed.push({ step, target, note });
  }
  return thawed;
}

/** What is frozen now, from what was written down. */
export async function frozenSteps(pool: Queryable, schema: string, vhost: string): Promise<FrozenStep[]> {
  return createFreezeLedger(schema).open(pool, vhost);
}

async function change(
  { pool, schema, broker, onStep }: FreezeOptions,
  step: Omit<FrozenStep, 'id' | 'state'>,
  act: (written: FrozenStep) => Promise<void>,
): Promise<void> {
  const ledger = createFreezeLedger(schema);
  const written = await ledger.intend(pool, broker.vhost, step);
  onStep?.(step.step, step.target, 'intended');
  await act(written);
  onStep?.(step.step, step.target, 'changed');
  await ledger.done(pool, written.id);
}

async function revokeWrite(options: FreezeOptions, user: string): Promise<void> {
  const { admin, broker, groups } = options;
  const before = (await admin.permissions(broker.vhost)).get(user);
  if (before === undefined) throw unknownUser(user);
  const group = groups
    .map(({ name }) => name)
    .join(' ')
    .slice(0, 1_000);
  await change(options, { group, step: 'permission', target: user, before }, async () => {
    await admin.setPermission(broker.vhost, user, { ...before, write: NOTHING });
    const now = (await admin.permissions(broker.vhost)).get(user);
    if (now?.write !== NOTHING) throw failed(`the write permission of ${user} did not change`);
  });
}

async function closeOne(
  options: FreezeOptions,
  groups: readonly GroupPlan[],
  connection: PublishingConnection,
): Promise<void> {
  const group = groups[0]?.name ?? '';
  const { id, name: target, user } = connection;
  await change(options, { group, step: 'connection', target, before: { user } }, async () => {
    const deadline = performance.now() + APPLIED_WITHIN_MS;
    for (;;) {
      // Again until it is gone: the API closes nothing that it has not heard of, some seconds after the broker.
      await options.admin.closeConnection(id, 'frozen for the move to the jobs table');
      if (!(await options.admin.connected(id))) break;
      if (performance.now() > deadline) throw failed(`the connection ${target} is still there`);
      await sleep(POLL_MS);
    }
  });
}

interface Refusing {
  readonly queue: string;
  readonly written: FrozenStep;
  readonly policy: Policy;
  /** Ready messages before. */
  readonly counted: number;
}

/** The first step on all queues, and only when each says that it holds the second. */
async function refuseByPolicies(
  options: FreezeOptions,
  queues: readonly { readonly group: string; readonly queue: string }[],
): Promise<void> {
  const { admin, broker, pool, schema, onStep } = options;
  const { vhost } = broker;
  const ledger = createFreezeLedger(schema);
  const refusing: Refusing[] = [];
  for (const { group, queue } of queues) {
    const { before, policy } = await refusingPolicy(options, queue);
    const written = await ledger.intend(pool, vhost, {
      group,
      step: 'policy',
      target: queue,
      before: { policy: before },
    });
    onStep?.('policy', queue, 'intended');
    const counted = (await broker.count(queue))?.ready ?? 0;
    await admin.putPolicy(vhost, policy);
    refusing.push({ queue, written, policy, counted });
    onStep?.('policy', queue, 'changed');
  }
  for (const { queue } of refusing)
    await untilHolds(options, queue, ({ overflow }) => overflow === 'reject-publish');
  for (const { queue, policy } of refusing) {
    // What limited it before comes back only now, when it refuses instead of dropping.
    await admin.putPolicy(vhost, { ...policy, definition: { ...policy.definition, 'max-length': 0 } });
    onStep?.('policy', queue, 'changed');
  }
  for (const { queue, counted, written } of refusing) {
    await untilHolds(options, queue, (definition) => definition['max-length'] === 0);
    const now = (await broker.count(queue))?.ready ?? 0;
    if (now < counted)
      throw failed(`${queue} held ${counted} messages and now holds ${now}: does somebody consume?`);
    await ledger.done(pool, written.id);
  }
}

/** Ours, above whatever holds now and with all that it says: of several policies one alone holds for a queue. */
async function refusingPolicy(
  { admin, broker }: FreezeOptions,
  queue: string,
): Promise<{ before: string | null; policy: Policy }> {
  const policies = await admin.policies(broker.vhost);
  const name = policyName(queue);
  const others = policies.filter((policy) => policy.name !== name);
  const holding = (await admin.queue(broker.vhost, queue)).policy;
  const before = others.find((policy) => policy.name === holding);
  const kept = without(before?.definition ?? ours(policies, name), ['max-length', 'max-length-bytes']);
  return {
    before: before?.name ?? null,
    policy: {
      ...{ name, pattern: `^${escaped(queue)}$`, applyTo: 'queues' },
      priority: Math.max(0, ...others.map(({ priority }) => priority)) + 1,
      definition: { ...kept, overflow: 'reject-publish' },
    },
  };
}

/** Frozen already: ours says what held before it. */
const ours = (policies: readonly Policy[], name: string): Policy['definition'] =>
  policies.find((policy) => policy.name === name)?.definition ?? {};

async function untilHolds(
  { admin, broker }: FreezeOptions,
  queue: string,
  test: (definition: Policy['definition']) => boolean,
): Promise<void> {
  const deadline = performance.now() + APPLIED_WITHIN_MS;
  for (;;) {
    const { policy, definition } = await admin.queue(broker.vhost, queue);
    if (policy === policyName(queue) && test(definition)) break;
    if (performance.now() > deadline) throw failed(`the policy does not hold for ${queue}`);
    await sleep(POLL_MS);
  }
  // What it answers comes after what it was sent before.
  for (let ask = 0; ask < ASKS; ask += 1) await broker.count(queue);
}

async function dropPolicy(
  { admin, broker }: Pick<FreezeOptions, 'admin' | 'broker'>,
  { target: queue }: FrozenStep,
): Promise<string | null> {
  const { vhost } = broker;
  const policy = (await admin.policies(vhost)).find(({ name }) => name === policyName(queue));
  if (policy === undefined) return 'its policy was gone';
  // In two steps as well. A quorum queue tells the publishers that it has refused when there is room again, and only then;
  // without any limit it forgets to, and their channels stay refused for ever.
  await admin.putPolicy(vhost, { ...policy, definition: { ...policy.definition, 'max-length': AMPLE } });
  for (let ask = 0; ask < ASKS; ask += 1) await broker.count(queue).catch(() => null);
  await admin.deletePolicy(vhost, policy.name);
  return null;
}

async function grant(
  { admin, broker }: Pick<FreezeOptions, 'admin' | 'broker'>,
  { target: user, before }: FrozenStep,
): Promise<string | null> {
  const now = (await admin.permissions(broker.vhost)).get(user);
  if (now === undefined) return 'the user has no permission here any more';
  if (now.write !== NOTHING) return 'its write permission was changed meanwhile and stays';
  await admin.setPermission(broker.vhost, user, { ...now, write: (before as Permission).write });
  return null;
}

/** For the person who has neither API nor shell: the same steps, to be typed on the broker's machine. */
export function stepsByHand(vhost: string, groups: readonly GroupPlan[]): string[] {
  const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
  const set = (queue: string, definition: object): string =>
    `rabbitmqctl set_policy -p ${quoted(vhost)} --priority 1000 --apply-to queues ${policyName(queue)} ${quoted(`^${escaped(queue)}$`)} ${quoted(JSON.stringify(definition))}`;
  const queues = groups
    .flatMap((group) => group.queues)
    .filter((queue) => whyNoPolicy(queue, undefined) === null);
  return [
    'rabbitmqctl list_policies: add what already holds for a queue to the definitions below, or it no longer holds.',
    ...queues.map(({ name }) => set(name, { overflow: 'reject-publish' })),
    'Wait a second: a classic queue that gets both at once is emptied.',
    ...queues.map(({ name }) => set(name, { overflow: 'reject-publish', 'max-length': 0 })),
    ...queues.map(({ name }) => `Back: rabbitmqctl clear_policy -p ${quoted(vhost)} ${policyName(name)}`),
  ];
}

const policyName = (queue: string): string =>
  `unbroker-freeze-${createHash('sha256').update(queue).digest('hex').slice(0, 12)}`;

const escaped = (text: string): string => text.replace(/[^\w-]/g, (character) => `\\${character}`);

const without = (definition: Policy['definition'], keys: readonly string[]): Record<string, unknown> =>
  Object.fromEntries(Object.entries(definition).filter(([key]) => !keys.includes(key)));

function unconfirmed(silent: readonly PublishingConnection[]): UnbrokerError {
  const names = silent.slice(0, 5).map(({ name, user }) => `${name} (${user})`);
  const more = silent.length > names.length ? ` and ${silent.length - names.length} more` : '';
  return new UnbrokerError(
    'freeze-unconfirmed',
    `These connections publish without confirms and would not learn that a queue refuses: ${names.join(', ')}${more}`,
    { hint: 'Stop those programs, or add --revoke <user> and --close: a closed connection is noticed.' },
  );
}

function ownUser(user: string): UnbrokerError {
  return new UnbrokerError(
    'freeze-user',
    `${user} is the user of AMQP_URL: without its write permission nothing could be given back`,
    {
      hint: 'Give unbroker a user of its own, or leave it out of --revoke.',
      exitStatus: EXIT.badInput,
    },
  );
}

function unknownUser(user: string): UnbrokerError {
  return new UnbrokerError('freeze-user', `${user} has no permission on this virtual host`, {
    hint: 'Name users as rabbitmqctl list_permissions does.',
    exitStatus: EXIT.badInput,
  });
}

function failed(what: string): UnbrokerError {
  return new UnbrokerError('freeze-failed', `Freezing did not work: ${what}`, {
    hint: 'unbroker drain thaw takes back what was changed so far.',
  });
}
