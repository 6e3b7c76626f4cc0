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
import { checkRatchet } from '../../src/cli/codemod-check.js';
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

/** What these tests read of a SARIF log. */
interface Sarif {
  readonly partialFingerprints: Record<string, string>;
  readonly locations: { readonly physicalLocation: { readonly region: object } }[];
  readonly message: { readonly text: string };
}

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

  test('the ratchet is sorted for merges, and counts what the file knows', () => {
    const text = renderRatchet(plan);
    const said = Object.values(parseRatchet(text, 'r.json').publishes);
    expect(said).toEqual([
      "far.ts far: publish('far.added', { id })",
      "orders.ts place: publish('order.counted', { id })",
      "orders.ts place: publish('order.placed', { id })",
    ]);
    const emptied = { ...plan, sites: [] };
    expect(compareRatchet(emptied, parseRatchet(text, 'r.json'))).toEqual({
      added: [],
      gone: said,
      known: 3,
    });
  });

  test('the ratchet on disk: written when it changes, and what is gone is said', async () => {
    const ratchet = join(root, 'ratchet.json');
    const said: string[] = [];
    const print = vi.spyOn(process.stdout, 'write').mockImplementation((line) => said.push(String(line)) > 0);
    try {
      await checkRatchet(() => plan, { ratchet, update: true });
      await checkRatchet(() => ({ ...plan, sites: [] }), { ratchet });
      expect(process.exitCode ?? 0).toBe(0);
      await checkRatchet(() => ({ ...plan, sites: [] }), { ratchet, update: true });
      await checkRatchet(() => plan, { ratchet });
      expect(process.exitCode).toBe(1);
      // Known before the repository is read.
      const unread = vi.fn(() => plan);
      for (const [options, code] of [
        [{ ratchet: join(root, 'none.json') }, 'ratchet-missing'],
        [{ ratchet: join(root, 'none', 'r.json'), update: true }, 'ratchet-invalid'],
      ] as const)
        await expect(checkRatchet(unread, options)).rejects.toThrow(
          expect.objectContaining({ code, exitStatus: 2 }),
        );
      expect(unread).not.toHaveBeenCalled();
    } finally {
      print.mockRestore();
      process.exitCode = 0;
      rmSync(ratchet, { force: true });
    }
    expect(said.join('')).toBe(
      `${ratchet} holds 3 known publishes.
No new publish beside a commit (3 known; 3 are gone: lower the ratchet with --update).
${ratchet} holds 0 known publishes.
far.ts:13  new publish in far: publish('far.added', { id })
  no-transaction-here: Pass the client through and enqueue on it.
orders.ts:6  new publish in place: publish('order.placed', { id })
  wrap: unbroker codemod apply
orders.ts:7  new publish in place: publish('order.counted', { id })
  wrap: unbroker codemod apply
3 new publishes beside a commit (0 known). Enqueue instead, or accept with --update.
`,
    );
  });

  test('SARIF says where, which and what to do', () => {
    const degraded = { why: 'packages are not installed', packages: ['pg'] };
    const sarif = JSON.parse(JSON.stringify(renderSarif({ ...plan, degraded })));
    const [run] = sarif.runs;
    expect(run.results.map((r: Sarif) => r.partialFingerprints['unbroker/v1'])).toEqual(
      plan.sites.map((s) => s.fingerprint),
    );
    expect(run.results.map((r: Sarif) => r.locations[0]?.physicalLocation.region)).toEqual([
      { startLine: 13, endLine: 13 },
      { startLine: 6, endLine: 6 },
      { startLine: 7, endLine: 7 },
      { startLine: 2, endLine: 2 },
    ]);
    expect(run.results[3].message.text).toBe(`${plan.sites[3]?.message}. ${plan.sites[3]?.next}.`);
    expect(run.results[1].message.text).toContain(plan.sites[1]?.delta?.before[0]);
    expect(run.results[1].properties).toEqual({
      ...{ verdict: 'wrap', kind: 'order.placed', function: 'place', confidence: plan.sites[1]?.confidence },
    });
    const told = run.invocations[0].toolExecutionNotifications.map((n: Sarif) => n.message.text);
    expect(told).toEqual([
      expect.stringContaining('Not looked at: nested-too-deep'),
      'Degraded: packages are not installed.',
    ]);
  });

  test('Markdown and text hold all there is to say, harmless in a table', () => {
    const odd: Plan = {
      ...plan,
      degraded: { why: 'packages are not installed', packages: ['pg', 'knex'] },
      sites: plan.sites.map((s, i) =>
        i === 3 ? { ...s, function: 'a | `b`\nc', also: [{ code: 'loop', what: 'line 9' }] } : s,
      ),
      changes: plan.changes.map((c) => ({ ...c, leftovers: ['bus (line 3)'] })),
    };
    const markdown = renderMarkdown(odd);
    expect(markdown).toContain('4 call sites: 0 safe, 2 need a transaction (`--level wrap`)');
    expect(markdown).toContain('> Degraded: packages are not installed (pg, knex).');
    expect(markdown).toContain("- `z.ts:2` a \\| 'b' c: ");
    // In the order of precedence, not of the files.
    expect([...markdown.matchAll(/^### ([a-z-]+)$/gm)].map(([, code]) => code)).toEqual([
      'no-write',
      'no-transaction-here',
    ]);
    expect(markdown).toMatch(/## Files not looked at\n\n- `odd name#1\.ts`: nested-too-deep, /);
    expect(markdown).toMatch(/- before: .*\.\n- now: .*\.\n/);
    const text = renderText(odd);
    expect(text).toContain('also         loop (line 9)');
    expect(text).toContain(
      'Read by nothing after the edit, to be removed by hand:\n  orders.ts: bus (line 3)',
    );
    expect(text).toContain('Degraded run, packages are not installed: pg, knex. Install');
    expect(text).toContain('Files not looked at:\n  odd name#1.ts: nested-too-deep');
    expect(renderText(plan)).not.toContain('Degraded');
    expect(renderMarkdown(plan)).not.toContain('Degraded');
  });

  test('a TODO stands above statements only, not where nothing is lost, and not where a person said no', () => {
    write(
      'odd.ts',
      `import { Pool } from 'pg';
import { publish } from './bus.js';
const pool = new Pool();
export async function odd(id: number): Promise<string> {
  publish('odd.first', { id });
  await pool.query('insert into odd (id) values ($1)', [id]);
  return \`
    \${publish('odd.second', { id })}
    and \${await (async () => { publish('odd.third', { id }); await pool.query('delete from odd'); })()}
  \`;
}
`,
    );
    const options = { root, paths: [], level: 'wrap', inlineSql: false, todo: true, types: true } as const;
    const marked = preparePlan(options);
    const afterOf = (given: Plan, path: string): string =>
      given.changes.find((c) => c.path === path)?.after ?? '';
    rmSync(join(root, 'odd.ts'));
    expect(afterOf(marked.plan, 'odd.ts').split('TODO(unbroker)').length - 1).toBe(2);
    expect(afterOf(marked.plan, 'odd.ts')).toContain(
      '  // TODO(unbroker) publish-before-write: The message goes out before the write (line 6, ',
    );
    // Above the statement, and not in the text that it returns: the third stands in a line that is text.
    expect(marked.plan.sites.map((s) => s.kind)).toContain('odd.third');
    expect(afterOf(marked.plan, 'odd.ts')).toMatch(
      / {2}\/\/ TODO\(unbroker\) .*\n {2}return `\n {4}\$\{publish/,
    );
    expect(afterOf(marked.plan, 'z.ts')).toBe('');
    expect(afterOf(marked.plan, 'far.ts')).toContain('TODO(unbroker) no-transaction-here');
    const declined = marked.choose(() => false);
    expect(afterOf(declined, 'orders.ts')).toBe('');
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
    const none = prepared.choose(() => false);
    expect(none.changes).toEqual([]);
    // Declined, they still say what could be lost.
    const losses = (of: Plan) => of.sites.map(({ kind, delta }) => [kind, delta?.before]);
    expect(losses(none)).toEqual(losses(plan));
    expect(losses(none).flat(2).join()).toContain('committed by itself');
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
    ['\tyes\r N A', 'a c d'],
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
    expect(said.slice(0, 4)).toEqual([
      '',
      '1 of 4: x.ts:1 f (safe)',
      '  now   go()',
      "  then  enqueue(, 'k', null)",
    ]);
  });

  test('a call that is handed the transaction is shown as one', async () => {
    const said: string[] = [];
    const site = {
      ...sites[0],
      kind: null,
      transaction: { handle: 'client' },
    } as unknown as Plan['sites'][number];
    await chooseSites(
      [site],
      async () => 'q',
      (line) => said.push(line),
    );
    expect(said[3]).toBe('  then  the same call, handed client: what it publishes is enqueued there');
  });
});
