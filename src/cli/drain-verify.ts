/** What `unbroker drain verify` does: reckons the books of every drained group again, prints them, keeps them in a file. */
import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import type { QueueFacts } from '../../adapters/rabbitmq/mapping.js';
import { safeToLook } from '../../adapters/rabbitmq/plan.js';
import type { QueuePlan } from '../../adapters/rabbitmq/topology.js';
import { drainedGroups } from '../../adapters/rabbitmq/undo.js';
import { type GroupProof, type Side, verifyDrains } from '../../adapters/rabbitmq/verify.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { type Context, printable } from './context.js';
import { createProgress, type ProgressLine } from './drain-progress.js';
import { refuseSecrets } from './drain-survey.js';
import { chooseNames, lookIfPossible } from './drain-undo.js';
import { print, printJson, table } from './output.js';

export interface VerifyCommandOptions {
  readonly group?: string[];
  readonly out?: string;
}

export async function verifyDrain(context: Context, options: VerifyCommandOptions): Promise<number> {
  refuseSecrets(process.argv.slice(2));
  const out = options.out === undefined ? undefined : openBooksFile(options.out);
  try {
    const pool = await context.migratedPool(2);
    const amqpUrl = context.amqpUrl();
    const names = chooseNames(await drainedGroups(amqpUrl, pool, context.schema), options.group);
    const { seen } = await lookIfPossible(context, amqpUrl);
    const plans = new Map(
      (seen?.groups ?? []).flatMap((group) => group.queues).map((plan) => [plan.name, plan]),
    );
    const rules = compileRules(context.config.drain?.rules);
    const broker = await connectBroker(amqpUrl);
    const lines = new Map<string, ProgressLine>();
    try {
      const proofs = await verifyDrains({
        ...{ pool, schema: context.schema, broker, rules, groups: names },
        factsOf: (queue) => factsOf(queue, plans.get(queue), rules.for({ queue }).role),
        mayLook: (queue) => safeToLook(plans.get(queue)?.info, broker.version),
        onProgress: (group, progress) => {
          const line = lines.get(group) ?? createProgress(group, context.json);
          lines.set(group, line);
          line.update(progress);
        },
      });
      for (const line of lines.values()) line.end();
      const balanced = proofs.every((proof) => proof.balanced);
      const { cluster, vhost, version } = broker;
      const books = {
        broker: cluster,
        version,
        vhost,
        at: new Date().toISOString(),
        balanced,
        groups: proofs,
      };
      out?.keep(`${JSON.stringify(books, null, 2)}\n`);
      if (context.json) printJson(books);
      else describe(proofs);
      return balanced ? EXIT.ok : EXIT.unbalanced;
    } finally {
      await broker.close();
    }
  } finally {
    out?.discard();
  }
}

function factsOf(
  name: string,
  plan: QueuePlan | undefined,
  role: QueueFacts['role'] | undefined,
): QueueFacts {
  return plan ?? { name, role: role ?? 'main', ttlMs: null, feeders: [] };
}

function describe(proofs: readonly GroupProof[]): void {
  if (proofs.length === 0) {
    print('Nothing was drained from this broker: there are no books.');
    return;
  }
  const side = (of: Side | null): string => (of === null ? '' : `${of.messages} ${of.hash}`);
  const head = ['group', 'sum over', 'one side', 'other side', 'equal'];
  const rows = proofs.flatMap((proof) => {
    const line = (what: string, one: string, other: string) => [
      proof.group,
      what,
      one,
      other,
      one === other ? 'yes' : 'NO',
    ];
    const queues =
      proof.expectedInQueues === null
        ? []
        : [line('messages in the queues', String(proof.expectedInQueues), String(proof.inQueues))];
    const given =
      proof.sent === null ? [] : [line('given back, in the queues', side(proof.sent), side(proof.seen))];
    return [
      line('ledger as written, as it is', side(proof.written), side(proof.reckoned)),
      line('inputs by the ledger, of jobs', side(proof.inputs), side(proof.jobs)),
      ...queues,
      ...given,
    ];
  });
  print(table(head, rows));
  for (const proof of proofs) {
    const name = printable(proof.group);
    const states = Object.entries(proof.states).map(([state, count]) => `${count} ${state}`);
    print(
      `${name}: ${proof.reckoned.messages} messages in the ledger: ${states.join(', ') || 'no job'}; ${proof.pruned} jobs pruned, ${proof.excluded} without a job, ${proof.givenBack} given back.`,
    );
    for (const remark of proof.remarks) print(`${name}: ${printable(remark)}`);
    for (const finding of proof.findings) print(`${name}: DIFFERENCE: ${printable(finding)}`);
  }
}

interface BooksFile {
  keep(text: string): void;
  discard(): void;
}

/** Opened before the work: a path that cannot be written is said at once. Whole or not at all, by renaming. */
function openBooksFile(path: string): BooksFile {
  const target = resolve(path);
  const draft = join(dirname(target), `.${basename(target)}.${process.pid}`);
  let descriptor: number | undefined;
  try {
    descriptor = openSync(draft, 'wx', 0o600);
  } catch (error) {
    throw new UnbrokerError(
      'out-unwritable',
      `The file given with --out cannot be written (${codeOf(error)})`,
      {
        hint: 'Name a file in a folder that you may write.',
        exitStatus: EXIT.badInput,
        cause: error,
      },
    );
  }
  const close = (): void => {
    if (descriptor !== undefined) closeSync(descriptor);
    descriptor = undefined;
  };
  return {
    keep(text) {
      if (descriptor === undefined) return;
      writeSync(descriptor, text);
      fsyncSync(descriptor);
      close();
      renameSync(draft, target);
    },
    discard() {
      close();
      rmSync(draft, { force: true });
    },
  };
}

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? 'error';
