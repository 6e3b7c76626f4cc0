/**
 * What a measurement cost the server: CPU of the postmaster and all its children from /proc, WAL from the insert
 * position, transactions from the statistics. These figures barely move with the load of the machine; rates do.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import type pg from 'pg';

export interface ServerCost {
  /** Null where the server's processes are not ours to see (another host, a container). */
  readonly cpuUs: number | null;
  readonly walBytes: number;
}

const TICK_US = 10_000;

export class Meter {
  #cpuUs: number | null = null;
  #lsn = '';

  private constructor(
    readonly pool: pg.Pool,
    readonly postmaster: number | null,
  ) {}

  static async open(pool: pg.Pool): Promise<Meter> {
    const { rows } = await pool.query<{ pid: number }>(
      `select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int as pid`,
    );
    const pid = rows[0]?.pid ?? 0;
    const ours =
      existsSync(`/proc/${pid}/comm`) && /^postgres/.test(readFileSync(`/proc/${pid}/comm`, 'utf8'));
    return new Meter(pool, ours ? pid : null);
  }

  async start(): Promise<void> {
    this.#lsn = await this.#insertPosition();
    this.#cpuUs = this.#serverCpuUs();
  }

  async stop(): Promise<ServerCost> {
    const cpuUs = this.#serverCpuUs();
    const { rows } = await this.pool.query<{ bytes: number }>(
      'select (pg_current_wal_insert_lsn() - $1::pg_lsn)::float8 as bytes',
      [this.#lsn],
    );
    return {
      cpuUs: cpuUs === null || this.#cpuUs === null ? null : cpuUs - this.#cpuUs,
      walBytes: rows[0]?.bytes ?? 0,
    };
  }

  async #insertPosition(): Promise<string> {
    const { rows } = await this.pool.query<{ lsn: string }>(
      'select pg_current_wal_insert_lsn()::text as lsn',
    );
    return rows[0]?.lsn ?? '0/0';
  }

  /** Children that have ended are in the postmaster's own account. */
  #serverCpuUs(): number | null {
    if (this.postmaster === null) return null;
    let ticks = 0;
    for (const entry of readdirSync('/proc')) {
      if (!/^\d+$/.test(entry)) continue;
      const fields = processFields(entry);
      if (fields === null) continue;
      const own = Number(entry) === this.postmaster;
      if (!own && Number(fields[1]) !== this.postmaster) continue;
      ticks += Number(fields[11]) + Number(fields[12]);
      if (own) ticks += Number(fields[13]) + Number(fields[14]);
    }
    return ticks * TICK_US;
  }
}

/** /proc/pid/stat after the command's closing bracket: state, parent, ..., utime, stime, cutime, cstime. */
function processFields(pid: string): string[] | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return null;
  }
}
