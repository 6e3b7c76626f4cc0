/**
 * One drainer per group: the lease on a run's row, by the database's clock. Whoever holds it may write; every batch
 * checks it again in its own transaction, so a drainer that was paused and replaced writes nothing any more.
 */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { UnbrokerError } from '../../src/errors.js';
import type { Queryable } from '../../src/jobs/job.js';
import type { Holder, Ledger, RunKey, RunMode, RunRow } from './ledger.js';

const POLL_MS = 500;
/** Beyond the lease itself, for a holder that neither renews nor lets go. */
const PATIENCE_MS = 5_000;

export class RunLease {
  readonly holder: Holder = { name: randomUUID(), host: hostname(), pid: process.pid };

  constructor(
    private readonly pool: Queryable,
    private readonly ledger: Ledger,
    readonly leaseMs: number,
    private readonly signal: AbortSignal | undefined,
  ) {}

  /** A new run, or the open one of the group under this holder. Throws `drain-busy`, `bridge-unfinished`, `drain-unfinished`, `undo-unfinished`, `delayed-unfinished`. */
  async take(key: RunKey, queues: readonly string[], mode: RunMode = 'drain'): Promise<RunRow> {
    const fresh = await this.ledger.openRun(this.pool, key, queues, this.holder, this.leaseMs, mode);
    return fresh ?? this.#takeOver(key, mode);
  }

  /** Waits for the lease to run out; gives up as soon as it sees somebody renew it. */
  async #takeOver(key: RunKey, mode: RunMode): Promise<RunRow> {
    let seen: RunRow | null = null;
    const deadline = performance.now() + this.leaseMs + PATIENCE_MS;
    for (;;) {
      this.signal?.throwIfAborted();
      const found = await this.ledger.findRun(this.pool, key);
      if (found === null) throw busy('it has just been finished');
      if (found.mode !== mode) throw unfinished(found.mode, key.group);
      const gone = found.holder === this.holder.name || !isAlive(found) ? found.holder : null;
      // Waits for a batch that a dead drainer's session still commits: it holds the row.
      const taken = await this.ledger.takeRun(this.pool, found.id, this.holder, this.leaseMs, gone);
      if (taken !== null) return taken;
      const renewed = seen !== null && found.leaseExpiresAt > seen.leaseExpiresAt;
      if (renewed || performance.now() > deadline) {
        throw busy(`process ${found.holderPid} on ${found.holderHost} works on it`);
      }
      seen = found;
      await sleep(POLL_MS, undefined, { signal: this.signal });
    }
  }

  /** Renews while nothing is written, on another connection than the batches. Answers how to stop. */
  keep(runId: string): () => void {
    const timer = setInterval(() => {
      this.ledger.renew(this.pool, runId, this.holder.name, this.leaseMs).catch(() => undefined);
    }, this.leaseMs / 10);
    return () => clearInterval(timer);
  }

  /** Lets go at once, so that the next run need not wait. */
  async release(runId: string): Promise<void> {
    await this.ledger.release(this.pool, runId, this.holder.name).catch(() => false);
  }
}

/** False only when the holder certainly is not: a process of this machine that does not exist. */
function isAlive(run: RunRow): boolean {
  if (run.holderHost !== hostname() || run.holderPid === process.pid) return true;
  try {
    process.kill(run.holderPid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function busy(who: string): UnbrokerError {
  return new UnbrokerError('drain-busy', `Another drainer has this group: ${who}`, {
    hint: 'Let it finish, or stop it and run again: one drainer per group.',
  });
}

/** The two tell what came back in different ways, so neither goes on where the other was interrupted. */
function unfinished(mode: RunMode, group: string): UnbrokerError {
  if (mode === 'bridge') {
    return new UnbrokerError('bridge-unfinished', `A bridge of ${group} runs, or was interrupted`, {
      hint: 'Stop it, or end it in order with: unbroker bridge --idle-exit-ms 5000.',
    });
  }
  if (mode === 'undo') {
    return new UnbrokerError('undo-unfinished', `An undo of ${group} runs, or was interrupted`, {
      hint: 'Let it end first: unbroker drain undo.',
    });
  }
  if (mode === 'delayed') {
    return new UnbrokerError('delayed-unfinished', 'An import of delayed messages runs, or was interrupted', {
      hint: 'Let it end first: unbroker drain run --delayed import.',
    });
  }
  return new UnbrokerError('drain-unfinished', `A drain of ${group} runs, or was interrupted`, {
    hint: 'Let it end first: unbroker drain run.',
  });
}

export function leaseLost(): UnbrokerError {
  return new UnbrokerError('drain-lease-lost', 'Another drainer has taken this group over', {
    hint: 'Let it finish; nothing of what this one did not commit is lost.',
  });
}
