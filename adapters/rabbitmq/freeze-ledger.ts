/** The statements about what freezing changed, by name: written before each change, so that thaw knows of it after a crash. */
import type { Queryable } from '../../src/jobs/job.js';
import { quoteSchema } from '../../src/jobs/schema-name.js';

export type FreezeStep = 'policy' | 'permission' | 'connection';

export interface FrozenStep {
  readonly id: string;
  readonly group: string;
  readonly step: FreezeStep;
  readonly target: string;
  readonly before: unknown;
  readonly state: 'intended' | 'done';
}

export function createFreezeLedger(schema: string) {
  const freezes = `${quoteSchema(schema)}.drain_freezes`;
  const columns = 'id::text, group_name as "group", step, target, before, state';
  const sql = {
    /** One that is written already keeps what was before it. */
    intend: `
insert into ${freezes} (vhost, group_name, step, target, before)
values ($1, $2, $3, $4, $5::jsonb)
on conflict (vhost, step, target) where thawed_at is null and step <> 'connection' do update set state = 'intended'
returning ${columns}`,
    done: `update ${freezes} set state = 'done' where id = $1`,
    open: `
select ${columns} from ${freezes} where vhost = $1 and thawed_at is null order by id desc`,
    thawed: `update ${freezes} set thawed_at = clock_timestamp() where id = $1`,
  } as const;
  return {
    async intend(
      db: Queryable,
      vhost: string,
      { group, step, target, before }: Omit<FrozenStep, 'id' | 'state'>,
    ): Promise<FrozenStep> {
      const values = [vhost, group, step, target, JSON.stringify(before)];
      return (await db.query(sql.intend, values)).rows[0] as FrozenStep;
    },
    done: (db: Queryable, id: string) => db.query(sql.done, [id]),
    /** What is still changed, last first. */
    open: async (db: Queryable, vhost: string) => (await db.query(sql.open, [vhost])).rows as FrozenStep[],
    thawed: (db: Queryable, id: string) => db.query(sql.thawed, [id]),
  };
}
