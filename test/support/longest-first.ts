/**
 * The order of the test files: what takes longest begins first, or the last of them would run alone at the end. A fresh clone
 * has no earlier run to look at, so the long ones are named here, by what they took; the others follow as vitest sorts them.
 */
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Those that took over ten seconds on two quiet cores. The first ones need no server, and both start meanwhile. */
const LONGEST = [
  'codemods/fixtures',
  'codemods/cli',
  'faults/worker',
  'amqp/drain-resume',
  'amqp/drain-undo',
  'amqp/topologies',
  'amqp/bridge',
  'amqp/undo-silence',
  'amqp/services',
  'db/services',
  'db/migrate',
  'amqp/own-broker',
  'db/lost-database',
  'amqp/drain-freeze',
  'db/cli',
  'http/serve',
  'amqp/drain-cli',
  'amqp/drain-proof',
  'db/schedule-zones',
  'amqp/drain-kill',
  'db/stop',
  'codemods/kill-points',
  'db/schedules-cli',
  'amqp/legacy',
  'db/package',
  'codemods/oracle',
].map((name) => `/test/${name}.test.ts`);

function rank({ moduleId }: TestSpecification): number {
  const at = LONGEST.findIndex((path) => moduleId.endsWith(path));
  return at < 0 ? LONGEST.length : at;
}

export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.sort((a, b) => rank(a) - rank(b));
  }
}
