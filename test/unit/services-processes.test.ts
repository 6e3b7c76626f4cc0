/** The tools that other tests lean on: child processes that are awaited by their output, and waiting with a deadline. */
import { expect, test } from 'vitest';
import { isRunning } from '../support/process-list.js';
import { startProcess } from '../support/processes.js';
import { until } from '../support/until.js';

const shell = (script: string) => startProcess('sh', ['-c', script]);

test('waits for a line, also one that was printed before, in either stream', async () => {
  const child = shell('echo port 4711; echo warned >&2; read word; echo got $word; exit 3');
  expect((await child.waitFor(/port (\d+)/))[1]).toBe('4711');
  await child.waitFor('warned');
  await child.waitFor('port 4711');
  child.write('orders\n');
  expect(await child.waitForExit()).toEqual({ code: 3, signal: null });
  expect(child.stdout).toBe('port 4711\ngot orders\n');
  expect(child.running).toBe(false);
});

test('says what was printed when the line never comes, because of an end or a deadline', async () => {
  const ended = shell('echo only this; exit 1');
  await expect(ended.waitFor(/ready/)).rejects.toThrow(/never appeared: sh -c.*ended with 1[\s\S]*only this/);
  const slow = shell('echo still here; sleep 1000');
  await slow.waitFor('still here');
  await expect(slow.waitFor(/ready/, 200)).rejects.toThrow(/within 200 ms[\s\S]*still runs[\s\S]*still here/);
  await expect(slow.waitForExit(100)).rejects.toThrow(/not ended within 100 ms/);
  await until('it is killed for that', () => !isRunning(slow.pid));
});

test('takes a dot in an awaited text as a dot', async () => {
  const child = shell('echo 1x5; echo 1.5');
  expect((await child.waitFor('1.5')).index).toBe(4);
});

test('kills by signal and reports a command that does not exist', async () => {
  const child = shell('sleep 1000; true');
  // Its own child outlives it and keeps the output open: the end is reported all the same.
  expect(await child.kill('SIGTERM')).toEqual({ code: null, signal: 'SIGTERM' });
  const missing = startProcess('no-such-program');
  await missing.exit;
  expect(missing.stderr).toMatch(/ENOENT/);
});

test('until gives up with what it waited for and what it saw last', async () => {
  let calls = 0;
  expect(await until('three', () => ++calls === 3 && 'seen', { everyMs: 1 })).toBe('seen');
  const never = until('rows arrive', () => 0, { withinMs: 30, everyMs: 5 });
  await expect(never).rejects.toThrow('gave up after 30 ms waiting until rows arrive (last seen: 0)');
  const throwing = until('it answers', () => Promise.reject(new Error('refused')), {
    withinMs: 30,
    everyMs: 5,
  });
  await expect(throwing).rejects.toThrow('last error: refused');
});
