/**
 * Level thread over several files: a function's calls are rewritten together or not at all, whoever declines one, names
 * only some paths, or changes a file in between; and one patch takes everything back.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import {
  applyPlan,
  type PlanOptions,
  preparePlan,
  renderDiff,
  renderMarkdown,
  renderSarif,
  renderText,
} from '../../codemods/index.js';
import { linkPackages } from './fixture.js';
import { SARIF } from './sarif-schema.js';

// A compiler starts: on a loaded machine that takes its time.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const FILES = {
  'bus.ts': `import { connect } from 'amqplib';
const channel = await (await connect('amqp://localhost')).createChannel();
export function publish(key: string, body: object): void {
  channel.publish('shop', key, Buffer.from(JSON.stringify(body)));
}
`,
  'tell.ts': `import { publish } from './bus.js';
export interface Teller { tell(id: number): Promise<void> }
export class Rabbit implements Teller {
  async tell(id: number): Promise<void> {
    if (id > 0) publish('order.placed', { id });
  }
}
`,
  'db.ts': `import { Pool, type PoolClient } from 'pg';
const pool = new Pool();
export async function inTransaction(work: (client: PoolClient) => Promise<void>): Promise<void> {
  const client = await pool.connect();
  await client.query('BEGIN');
  await work(client);
  await client.query('COMMIT');
}
`,
  'a.ts': `import { inTransaction } from './db.js';
import type { Teller } from './tell.js';
export async function place(teller: Teller, id: number): Promise<void> {
  await inTransaction(async (client) => {
    await client.query('insert into orders (id) values ($1)', [id]);
    await teller.tell(id);
  });
}
`,
  'b.ts': `import { inTransaction } from './db.js';
import type { Teller } from './tell.js';
export async function again(teller: Teller, id: number): Promise<void> {
  await inTransaction(async (tx) => {
    await tx.query('update orders set again = true where id = $1', [id]);
    await teller.tell(id);
  });
}
`,
} as const;

let root: string;
const git = (...args: string[]): string =>
  execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.invalid', ...args], {
    cwd: root,
    encoding: 'utf8',
  });
const prepare = (options: Partial<PlanOptions> = {}) =>
  preparePlan({ root, paths: [], level: 'thread', inlineSql: false, todo: false, types: true, ...options });
const changed = (plan: ReturnType<typeof prepare>['plan']): string[] =>
  plan.changes.map((c) => c.path).sort();

beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'codemod-thread-')));
  linkPackages(root);
  for (const [name, text] of Object.entries(FILES)) writeFileSync(join(root, name), text);
  writeFileSync(join(root, '.gitignore'), 'node_modules\n');
  git('init', '-q');
  git('add', '.');
  git('commit', '-q', '-m', 'start');
});

afterEach(() => rmSync(root, { recursive: true, force: true }));

test('every file of a threaded function changes at once, and one patch takes all of it back', () => {
  const { plan } = prepare();
  expect(plan.counts).toMatchObject({ safe: 0, wrap: 0, thread: 2, refused: 0 });
  expect(changed(plan)).toEqual(['a.ts', 'b.ts', 'tell.ts']);
  const { reversePatch } = applyPlan(plan, { allowDirty: false });
  expect(git('diff', '--stat')).toMatch(/3 files changed/);
  expect(readFileSync(join(root, 'tell.ts'), 'utf8')).toContain('tell(id: number, client: PoolClient)');
  git('apply', reversePatch as string);
  expect(git('status', '--porcelain')).toBe('');
});

test('a declined call keeps the others as they are', () => {
  const prepared = prepare();
  const { sites, changes } = prepared.choose((site) => site.file === 'a.ts');
  expect(changes).toEqual([]);
  expect(sites.map((s) => `${s.file} ${s.reason}`)).toEqual(['a.ts caller-without-transaction', 'b.ts null']);
  expect(sites[0]?.message).toContain('b.ts:6');
  expect(changed(prepared.choose(() => true))).toEqual(['a.ts', 'b.ts', 'tell.ts']);
});

test('paths that leave a call out leave all calls out', () => {
  const { plan } = prepare({ paths: [join(root, 'b.ts')] });
  expect(plan.changes).toEqual([]);
  expect(plan.sites.map((s) => s.reason)).toEqual(['caller-without-transaction']);
});

test('a lower level names them and edits nothing', () => {
  const { plan } = prepare({ level: 'wrap' });
  expect(plan.changes).toEqual([]);
  expect(plan.sites.map((s) => [s.level, s.applied])).toEqual([
    ['thread', false],
    ['thread', false],
  ]);
});

test('a file that changed in between stops the whole edit', () => {
  const { plan } = prepare();
  writeFileSync(join(root, 'tell.ts'), `${FILES['tell.ts']}// mine\n`);
  expect(() => applyPlan(plan, { allowDirty: true })).toThrow(/tell\.ts was changed/);
  for (const name of ['a.ts', 'b.ts'] as const)
    expect(readFileSync(join(root, name), 'utf8')).toBe(FILES[name]);
});

const ROWS = `import type { Pool } from 'pg';
export interface Rows {
  keep(id: number): Promise<void>;
  drop(id: number): Promise<void>;
}
export class PgRows implements Rows {
  constructor(private readonly pool: Pool) {}
  async keep(id: number): Promise<void> {
    await this.pool.query('insert into kept (id) values ($1)', [id]);
  }
  async drop(id: number): Promise<void> {
    await this.pool.query('delete from kept where id = $1', [id]);
  }
}
`;

const user = (method: string): string => `import { publish } from './bus.js';
import type { Rows } from './rows.js';
export async function ${method}(rows: Rows, id: number): Promise<void> {
  await rows.${method}(id);
  publish('row.${method}', { id });
}
`;

test('a later run opens its transactions by the method that an earlier one wrote, and a last one has nothing to do', () => {
  for (const name of ['a.ts', 'b.ts', 'tell.ts']) rmSync(join(root, name));
  const file = (name: string): string => readFileSync(join(root, name), 'utf8');
  writeFileSync(join(root, 'rows.ts'), ROWS);
  writeFileSync(join(root, 'keep.ts'), user('keep'));
  const first = prepare().plan;
  expect(changed(first)).toEqual(['keep.ts', 'rows.ts']);
  applyPlan(first, { allowDirty: true });
  // What a formatter makes of it.
  writeFileSync(
    join(root, 'rows.ts'),
    file('rows.ts')
      .replaceAll(/query\('(BEGIN|COMMIT|ROLLBACK)'\)/g, 'query("$1")')
      .replaceAll(/\((work: \(.*)\): Promise<T> \{/g, '(\n    $1,\n  ): Promise<T> {')
      .replaceAll(/;$/gm, ''),
  );
  writeFileSync(join(root, 'drop.ts'), user('drop'));
  const second = prepare().plan;
  expect(changed(second)).toEqual(['drop.ts', 'rows.ts']);
  applyPlan(second, { allowDirty: true });
  expect(file('rows.ts').match(/\w+Transaction<T>\(/g)).toEqual(['inTransaction<T>(', 'inTransaction<T>(']);
  expect(file('rows.ts')).toMatch(/drop\(id: number, \w+: Pick<Pool, 'query'> = this\.pool\)/);
  expect(file('drop.ts')).toContain('await rows.inTransaction(async (client) => {');
  expect(prepare().plan.changes).toEqual([]);
  // What may be handed a client, and writes on the pool without, is handed one as it is.
  writeFileSync(join(root, 'again.ts'), user('keep').replace('row.keep', 'row.kept-again'));
  for (const types of [true, false]) {
    const third = prepare({ types }).plan;
    expect(third.sites).toMatchObject([{ file: 'again.ts', kind: 'row.kept-again', level: 'thread' }]);
    expect(changed(third)).toEqual(['again.ts']);
    expect(third.changes[0]?.after).toContain('await rows.keep(id, client);');
  }
});

test('every report names what the handle passes through', () => {
  const { plan } = prepare();
  expect(plan.sites[0]?.thread).toEqual([
    { role: 'function', name: 'Rabbit.tell', file: 'tell.ts', line: 4 },
    { role: 'interface', name: 'Teller.tell', file: 'tell.ts', line: 2 },
  ]);
  expect(renderText(plan)).toMatch(/handed on +to Teller\.tell \(interface\), tell\.ts:2/);
  expect(renderText(plan)).toContain('0 safe, 0 wrap, 2 thread, 0 refused.');
  expect(renderMarkdown(plan)).toContain('- through `Rabbit.tell` (function), `tell.ts:4`');
  expect(renderDiff(plan.changes).match(/^diff --git/gm)).toHaveLength(3);
  const sarif = renderSarif(plan);
  const validate = new Ajv({ allErrors: true }).compile(SARIF);
  expect(validate(sarif), JSON.stringify(validate.errors)).toBe(true);
  expect(JSON.stringify(sarif)).toContain('"ruleId":"publish-in-a-called-function"');
  expect(JSON.stringify(sarif)).toContain('Teller.tell (interface)');
});
