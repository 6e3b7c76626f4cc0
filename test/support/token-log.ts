/**
 * A log of lease tokens: what workers said they held and how it ended, in the order they said it. It answers whether
 * that can be true: a job's tokens rise, whatever ended was claimed before, and ends once. It judges only what workers
 * tell, and in which order answers arrive proves little; what really followed what, audit.ts sees in the table.
 */
import type { WorkerEvent } from '../../src/jobs/worker.js';

interface Claim {
  readonly worker: string;
  readonly token: bigint;
  ended: 'settled' | 'lost' | undefined;
}

export class TokenLog {
  readonly #claims = new Map<string, Claim[]>();
  readonly #problems: string[] = [];
  claimed = 0;
  settled = 0;
  lost = 0;

  record(worker: string, event: WorkerEvent): void {
    if (event.type === 'claimed') for (const job of event.jobs) this.claim(worker, job.id, job.leaseToken);
    if (event.type === 'settled') this.#end(event.job.id, event.job.leaseToken, 'settled');
    if (event.type === 'lost') this.#end(event.job.id, event.job.leaseToken, 'lost');
  }

  claim(worker: string, id: string, leaseToken: string): void {
    this.claimed += 1;
    const token = BigInt(leaseToken);
    const claims = this.#claims.get(id) ?? [];
    const last = claims.at(-1);
    if (last !== undefined && last.token >= token)
      this.#problems.push(`job ${id}: token ${token} of ${worker} after ${last.token} of ${last.worker}`);
    claims.push({ worker, token, ended: undefined });
    this.#claims.set(id, claims);
  }

  #end(id: string, leaseToken: string, how: 'settled' | 'lost'): void {
    const token = BigInt(leaseToken);
    const claims = this.#claims.get(id) ?? [];
    const claim = claims.find((c) => c.token === token);
    if (claim === undefined) {
      this.#problems.push(`job ${id}: ${how} under token ${token}, which nobody claimed`);
      return;
    }
    if (claim.ended !== undefined)
      this.#problems.push(`job ${id}: token ${token} ${claim.ended} and then ${how}`);
    claim.ended = how;
    this[how] += 1;
  }

  /** Claims of a job in order. */
  claims(id: string): readonly { readonly worker: string; readonly token: bigint }[] {
    return this.#claims.get(id) ?? [];
  }

  /** Everything that cannot be true; empty is good. */
  problems(): readonly string[] {
    return this.#problems;
  }
}
