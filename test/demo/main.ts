/**
 * `npm run demo`: a whole cutover in about a minute, on real servers, through the real command line. What it prints at
 * the end is counted by the traffic's journal, the orders table and the mail sink's journal, not by what is shown.
 *
 *   --keep   leave the servers, the shims and the workspace up, and print how to look around
 */
import { table } from '../../src/cli/output.js';
import { type Tally, tally } from './books.js';
import {
  replayDeadLetters,
  rewriteOrders,
  type Shims,
  startShims,
  tradeAgain,
  useShims,
  type WorkResult,
  workJobs,
  writeConfig,
  writeTemplates,
} from './new-system.js';
import { type OldSystem, startOldSystem, stopWithMessagesInFlight, tradeAndLose } from './old-system.js';
import { chapter, elapsedSeconds, openWorld, say, type World } from './world.js';

interface Story {
  readonly lostByOldSeam: number;
  readonly work: WorkResult;
  readonly tallies: readonly Tally[];
}

async function main(): Promise<number> {
  const keep = process.argv.includes('--keep');
  chapter('Starting a private Postgres and a private RabbitMQ');
  const world = await openWorld();
  let interrupted = false;
  const interrupt = (): void => {
    interrupted = true;
    process.exit(130);
  };
  process.once('SIGINT', interrupt).once('SIGTERM', interrupt);
  try {
    say(
      `PostgreSQL ${world.postgres.version} (${world.postgres.way}), RabbitMQ ${world.rabbit.version} (${world.rabbit.way})`,
    );
    const { story, shims, old } = await tell(world);
    const ok = printPage(story);
    if (keep) await stay(world, shims);
    shims.process.signal('SIGTERM');
    await Promise.all([shims.process.waitForExit(20_000), old.sink.stop()]);
    return ok ? 0 : 1;
  } finally {
    if (!interrupted) await world.close();
  }
}

async function tell(world: World): Promise<{ story: Story; shims: Shims; old: OldSystem }> {
  chapter(
    'The old system: notification, scheduling and retry on RabbitMQ, and orders, which commits and then publishes',
  );
  const old = await startOldSystem(world);
  writeConfig(world, old, false);
  await tradeAndLose(world, old);

  chapter('What has the seam lost? Nobody noticed; unbroker counts');
  const seam = await world.cli(['seam']);
  say(seam.stdout.trimEnd());
  checkSeam(seam.stdout, old);

  chapter('Stopping the old services one by one; traffic goes on, so every kind of queue holds something');
  await stopWithMessagesInFlight(world, old);
  const survey = await world.cli(['drain', 'survey']);
  say(survey.stdout.trimEnd());

  chapter('The table, and the codemod over a copy of orders');
  say((await world.cli(['migrate'])).stdout.trimEnd());
  writeTemplates(world);
  writeConfig(world, old, true);
  const { folder, diff } = await rewriteOrders(world);
  say(diff.trimEnd());

  chapter(`The rewritten orders at work, killed at the same place; old HTTP clients on the shims`);
  await tradeAgain(world, old, folder);
  const shims = await startShims(world);
  await useShims(old, shims);

  chapter('Draining RabbitMQ into rows');
  const drain = await world.cli(['drain', 'run']);
  say(drain.stdout.trimEnd());
  if (drain.status !== 0) throw new Error(`drain run ended with ${drain.status}: ${drain.stderr}`);
  say(`${await replayDeadLetters(shims)} dead letters replayed through the old retry interface.`);

  chapter('Working the jobs; a worker is killed with -9 while it sends');
  const work = await workJobs(world, old);

  chapter('The seam again, in the old place and in the table');
  const after = await world.cli(['seam']);
  say(after.stdout.trimEnd());
  checkSeam(after.stdout, old);
  const tallies = tally(old.expected, old.sink.deliveries());
  return { story: { lostByOldSeam: old.lostOrders.length, work, tallies }, shims, old };
}

/** The tool must name the very orders that the demo counted by itself, before and after. */
function checkSeam(output: string, old: OldSystem): void {
  const named = /missing: (.*)/.exec(output)?.[1] ?? 'none';
  if (named !== old.lostOrders.join(', ')) {
    throw new Error(`unbroker seam named ${named}, the demo counted ${old.lostOrders.join(', ')}`);
  }
}

function printPage({ lostByOldSeam, work, tallies }: Story): boolean {
  chapter('The page: counted from the mail sink, the orders table and the traffic, not from unbroker');
  const rows = tallies.map((t) => [t.path, t.expected, t.delivered, t.lost.length, t.doubled.length]);
  const sum = (pick: (t: Tally) => number): number => tallies.reduce((total, t) => total + pick(t), 0);
  const lost = sum((t) => t.lost.length);
  const doubled = sum((t) => t.doubled.length);
  rows.push(['all', sum((t) => t.expected), sum((t) => t.delivered), lost, doubled]);
  say(table(['path', 'expected', 'delivered', 'lost', 'doubled'], rows));
  say(`Lost by the old seam:  ${lostByOldSeam} receipts (committed orders nobody was told about)`);
  say(`Lost by the new path:  ${lost}`);
  say(`Doubled:               ${doubled}`);
  say(
    `The killed worker left ${work.parked} mails between "sending" and "sent": parked, not blindly resent; ` +
      `the sink had ${work.parked - work.retried} of them, the other ${work.retried} were retried.`,
  );
  for (const t of tallies)
    for (const one of [...t.lost, ...t.doubled]) say(`  ${t.path}: ${one.to}, ${one.subject}`);
  return lost === 0 && doubled === 0;
}

async function stay(world: World, shims: Shims): Promise<void> {
  const exports = Object.entries(world.env).map(([name, value]) => `export ${name}='${value}'`);
  chapter('Everything is still up. In another terminal:');
  say(
    [...exports, `cd ${world.folder}`, `alias unbroker='node ${process.cwd()}/dist/src/cli/main.js'`].join(
      '\n',
    ),
  );
  say('unbroker jobs stats\nunbroker jobs list --source rabbitmq:\nunbroker jobs show 1\nunbroker seam');
  say(`curl ${shims.url}/dead-letters`);
  say('Ctrl-C here ends it and removes everything.');
  process.removeAllListeners('SIGINT').removeAllListeners('SIGTERM');
  await new Promise((resolve) => process.once('SIGINT', resolve).once('SIGTERM', resolve));
}

let status = 1;
try {
  status = await main();
} catch (error) {
  process.stderr.write(`\n${error instanceof Error ? error.message : String(error)}\n`);
}
const verdict = status === 0 ? 'Demo passed: nothing lost, nothing doubled on the new path' : 'Demo FAILED';
process.stdout.write(`\n${verdict} (${elapsedSeconds().toFixed(0)} s).\n`);
process.exit(status);
