/**
 * Every kill point of every client and ORM: killed at each answer, before the rewrite and after it. `disagreedBefore`
 * counts shapes that were wrong somewhere before, which all have to be; `lost` and `extra` count runs after the rewrite
 * that left a row without its job, or a job without its row, or either when the commit was refused.
 */
import {
  disagreeing,
  killedEverywhere,
  libraries,
  openPlace,
  openWorld,
  refusedAtCommit,
  shapesOf,
} from '../codemods/kill-points.js';
import { startPostgres, startRabbit } from '../support/services.js';

/** Names of folders of kill-points/, separated by commas: only those. */
const ONLY = process.env['UNBROKER_FAULTS_ONLY']?.split(',');

export async function faultsCodemod(): Promise<object> {
  const [postgres, rabbit] = await Promise.all([startPostgres(), startRabbit()]);
  const world = await openWorld(postgres, rabbit);
  const totals = { shapes: 0, points: 0, disagreedBefore: 0, lost: 0, extra: 0, failed: 0 };
  try {
    for (const library of libraries().filter((name) => ONLY?.includes(name) ?? true)) {
      const place = await openPlace(library);
      try {
        const shapes = shapesOf(library);
        for (const shape of shapes) {
          const books = await killedEverywhere(world, place, shape, `${library} ${shape} before`);
          totals.points += books.length - 1;
          if (disagreeing(books, 'messages').length > 0) totals.disagreedBefore++;
          else totals.failed++;
        }
        place.rewrite();
        for (const shape of shapes) {
          const books = await killedEverywhere(world, place, shape, `${library} ${shape} after`);
          totals.points += books.length - 1;
          totals.lost += books.filter((b) => b.rows > b.jobs || b.rows > b.lines).length;
          totals.extra += books.filter((b) => b.jobs > b.rows || b.lines > b.rows || b.messages > 0).length;
          const refused = await refusedAtCommit(world, place, shape, `${library} ${shape}`);
          if (refused.rows + refused.lines + refused.jobs + refused.messages > 0) totals.extra++;
          const whole = books.at(-1);
          if (whole?.rows !== 1 || whole.jobs !== 1) totals.failed++;
          totals.shapes++;
          process.stderr.write(`${library} ${shape}: ${books.length - 1} deaths\n`);
        }
      } finally {
        place.remove();
      }
    }
  } finally {
    await world.close();
    await Promise.all([postgres.stop(), rabbit.stop()]);
  }
  return totals;
}
