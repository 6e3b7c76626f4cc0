/** What a scan leaves behind for others: SARIF, the ratchet, the answers of a person, the choice of some rewrites. */
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { fingerprints } from '../../codemods/fingerprint.js';
import {
  compareRatchet,
  type Plan,
  parseRatchet,
  preparePlan,
  renderMarkdown,
  renderRatchet,
  renderSarif,
  renderText,
} from '../../codemods/index.js';
import { chooseSites } from '../../src/cli/codemod-ask.js';
import { linkPackages } from './fixture.js';
import { SARIF } from './sarif-schema.js';

// A compiler starts: on a loaded machine that takes its time.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const BUS = `import { connect } from 'amqplib';
const channel = await (await connect('amqp://localhost')).createChannel();
export function publish(key: string, body: object): void {
  channel.publish('shop', key, Buffer.from(JSON.stringify(body)));
}
`;

const ORDERS = `import { Pool } from 'pg';
import { publish } from './bus.js';
const pool = new Pool();
export async function place(id: number): Promise<void> {
  await pool.query('insert into orders (id) values ($1)', [id]);
  publish('order.placed', { id });
  publish('order.counted', { id });
}
`;

const BOOT = `import { publish } from './bus.js';
publish('shop.opened', {});
`;

/** The write is two calls away, behind an interface that a test double implements, too. */
const FAR = `import type { Pool } from 'pg';
import { publish } from './bus.js';
export interface Rows { add(id: number): Promise<void> }
export class PgRows implements Rows {
  constructor(private readonly pool: Pool) {}
  async add(id: number): Promise<void> { await insert(this.pool, id); }
}
async function insert(pool: Pool, id: number): Promise<void> {
  await pool.query('insert into far (id) values ($1)', [id]);
}
export async function far(rows: Rows, id: number): Promise<void> {
  await rows.add(id);
  publish('far.added', { id });
}
`;

const DOUBLE = `import type { Rows } from '../far.js';
import { publish } from '../bus.js';
export class FakeRows implements Rows {
  async add(id: number): Promise<void> { publish('fake', { id }); }
}
`;

let root: string;

function prepare() {
  const options = { root, paths: [], level: 'wrap', inlineSql: false, todo: false, types: true } as const;
  return preparePlan(options);
}

const write = (name: string, text: string): void => writeFileSync(join(root, name), text);

beforeAll(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'codemod-reports-')));
  linkPackages(root);
  write('bus.ts', BUS);
  write('orders.ts', ORDERS);
  write('z.ts', BOOT);
  write('far.ts', FAR);
  mkdirSync(join(root, 'test'));
  write('test/fake-rows.ts', DOUBLE);
  // Its name needs escaping in a URI.
  write('odd name#1.ts', '(('.repeat(600));
});

afterAll(() => rmSync(root, { recursive: true, force: true }));

describe('reports', () => {
  let prepared: ReturnType<typeof prepare>;
  let plan: Plan;

  beforeAll(() => {
    prepared = prepare();
    plan = prepared.plan;
  });

  test('SARIF keeps to the schema', () => {
    const sarif = renderSarif(plan);
    const validate = new Ajv({ allErrors: true }).compile(SARIF);
    expect(validate(sarif), JSON.stringify(validate.errors)).toBe(true);
    const [run] = (
      sarif as {
        runs: { results: Record<string, unknown>[]; tool: { driver: { rules: { id: string }[] } } }[];
      }
    ).runs;
    expect(run?.results.map((r) => [r['ruleId'], r['level']])).toEqual([
      ['no-transaction-here', 'warning'],
      ['publish-after-autocommit', 'warning'],
      ['publish-after-autocommit', 'warning'],
      ['no-write', 'note'],
    ]);
    for (const result of run?.results ?? [])
      expect(run?.tool.driver.rules[result['ruleIndex'] as number]?.id).toBe(result['ruleId']);
    expect(JSON.stringify(sarif)).toContain('odd%20name%231.ts');
  });

  test('the ratchet knows old publishes after lines have moved, and fails on a new one', () => {
    const ratchet = parseRatchet(renderRatchet(plan), 'r.json');
    expect(Object.keys(ratchet.publishes)).toHaveLength(3);
    expect(compareRatchet(plan, ratchet)).toEqual({ added: [], gone: [], known: 3 });
    const changed = ORDERS.replace("  publish('order.counted', { id });\n", '').replace(
      /$/,
      `export async function again(id: number): Promise<void> {
  await pool.query('update orders set again = true where id = $1', [id]);
  publish('order.again', { id });
}
`,
    );
    write(
      'orders.ts',
      `// A line above.\n\n${changed.replace("publish('order.placed', { id })", "publish(\n    'order.placed',\n    { id },\n  )").replace(',\n  )', '\n  )')}`,
    );
    const result = compareRatchet(prepare().plan, ratchet);
    write('orders.ts', ORDERS);
    expect(result.added.map((s) => s.kind)).toEqual(['order.again']);
    expect(result.gone).toEqual(["orders.ts place: publish('order.counted', { id })"]);
  });

  test('a handle that would have to travel: every function, interface and double on its way', () => {
    const [site] = plan.sites;
    expect(site?.thread.map((t) => `${t.role} ${t.name} ${t.file}:${t.line}`)).toEqual([
      'function PgRows.add far.ts:6',
      'interface Rows.add far.ts:3',
      'test double FakeRows.add test/fake-rows.ts:4',
      'function insert far.ts:8',
    ]);
    expect(renderText(plan)).toContain('through FakeRows.add (test double), test/fake-rows.ts:4');
    expect(renderMarkdown(plan)).toContain('  - through `insert` (function), `far.ts:8`');
  });

  test('a choice leaves the others as they were, and never inside a new transaction', () => {
    const all = prepared.choose(() => true);
    expect(all.changes.map((c) => c.after)).toEqual(plan.changes.map((c) => c.after));
    expect(prepared.choose(() => false).changes).toEqual([]);
    const last = prepared.choose((site) => site.kind === 'order.counted');
    // The publish in front of it would stand between BEGIN and COMMIT.
    expect(last.changes).toEqual([]);
    expect(last.sites.map((s) => s.reason)).toEqual([
      'no-transaction-here',
      null,
      'between-not-movable',
      'no-write',
    ]);
    const first = prepared.choose((site) => site.kind === 'order.placed');
    expect(first.changes[0]?.after).toMatch(
      /enqueue\(client, 'order\.placed'.*\n.*COMMIT[\s\S]*\n {2}publish\('order\.counted'/,
    );
  });
});

test('fingerprints tell repeated calls of one function apart, and do not know lines', () => {
  const site = (line: number) => ({
    file: 'a.ts',
    function: `f, the function at line ${line}`,
    text: 'go( 1 )',
  });
  const [first, second] = fingerprints([site(3), site(9)]);
  expect(first).not.toBe(second);
  expect(fingerprints([site(40), { ...site(50), text: 'go(\n  1\n)' }])).toEqual([first, second]);
  expect(fingerprints([{ ...site(3), file: 'b.ts' }])[0]).not.toBe(first);
});

test.each([
  ['not JSON', '{', 'it is not JSON'],
  ['another version', '{"version":2,"publishes":{}}', 'its version is not 1'],
  ['a list', '{"version":1,"publishes":[]}', '"publishes" is not an object'],
  ['a key of another kind', '{"version":1,"publishes":{"x":"y"}}', '"x" is no fingerprint'],
])('a ratchet that is %s is refused', (_, text, why) => {
  expect(() => parseRatchet(text, 'r.json')).toThrow(
    expect.objectContaining({
      code: 'ratchet-invalid',
      message: expect.stringContaining(why),
      exitStatus: 2,
    }),
  );
});

describe('answers', () => {
  const sites = ['a', 'b', 'c', 'd'].map((fingerprint) => ({
    ...{
      fingerprint,
      file: 'x.ts',
      line: 1,
      function: 'f',
      level: 'safe',
      source: 'go()',
      kind: 'k',
      payload: null,
    },
    ...{ transaction: null, delta: null },
  })) as unknown as Plan['sites'];

  test.each([
    ['y n y n', 'a c'],
    ['n a', 'b c d'],
    ['Y q', 'a'],
    ['quit', ''],
    ['what YES no no no', 'a'],
  ])('%s', async (given, chosen) => {
    const answers = given.split(' ');
    const said: string[] = [];
    const result = await chooseSites(
      sites,
      async () => answers.shift() ?? 'q',
      (line) => said.push(line),
    );
    expect([...result].join(' ')).toBe(chosen);
    expect(said.includes('Answer y, n, a or q.')).toBe(given.startsWith('what'));
  });
});
