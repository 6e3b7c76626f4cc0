/**
 * Preloaded before an application (`node --import ./kill-point.mjs app`), it kills the process from outside its code,
 * at the moment when Postgres has answered and the application has not yet heard it:
 *
 *   KILL_AFTER_COMMIT=n         right after the reply to the nth COMMIT
 *   KILL_AFTER_STATEMENT=text   right after the reply to the first statement that contains the text (autocommit)
 *
 * Without either it does nothing. It finds the `pg` that the application itself loads.
 */
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const afterCommit = Number(process.env.KILL_AFTER_COMMIT ?? 0);
const afterStatement = process.env.KILL_AFTER_STATEMENT ?? '';
const entry = process.argv[1];

if (entry !== undefined && (afterCommit > 0 || afterStatement !== '')) {
  const { Client } = createRequire(resolve(entry))('pg');
  const query = Client.prototype.query;
  let commits = 0;

  const isTheOne = (text) => {
    if (afterCommit > 0 && /^\s*commit\s*;?\s*$/i.test(text)) {
      commits += 1;
      return commits === afterCommit;
    }
    return afterStatement !== '' && text.toLowerCase().includes(afterStatement.toLowerCase());
  };

  Client.prototype.query = function killing(config, values, callback) {
    const text = typeof config === 'string' ? config : (config?.text ?? '');
    if (!isTheOne(text)) return query.call(this, config, values, callback);
    if (typeof values === 'function') return query.call(this, config, die);
    if (typeof callback === 'function') return query.call(this, config, values, die);
    return query.call(this, config, values).then(die, die);
  };
}

/** SIGKILL cannot be caught, but it may arrive a moment later: nothing runs until then. */
function die() {
  process.kill(process.pid, 'SIGKILL');
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}
