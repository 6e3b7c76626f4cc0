/** The registry of kinds: what it says of payloads, when it is written, and that a file somebody edited stays. */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import {
  applyPlan,
  makePlan,
  type Plan,
  renderDiff,
  renderMarkdown,
  renderText,
} from '../../codemods/index.js';
import { renderKindFile, stateOfText } from '../../codemods/kind-file.js';
import { startScript } from '../support/processes.js';
import { linkPackages, REPOSITORY } from './fixture.js';
import { installUnbroker } from './installed.js';

// A compiler starts: on a loaded machine that takes its time.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

let root: string;

const write = (name: string, text: string): void => writeFileSync(join(root, name), text);
const read = (name: string): string => readFileSync(join(root, name), 'utf8');
const git = (...args: string[]): string =>
  execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.org', ...args], {
    cwd: root,
    encoding: 'utf8',
  });

function plan(path = 'kinds.ts', use = false): Plan {
  const options = { root, paths: [], level: 'wrap', inlineSql: false, todo: false, types: true } as const;
  return makePlan({ ...options, kinds: { path, use } });
}

const SHOP = `import { connect } from 'amqplib';
import { Pool } from 'pg';
const pool = new Pool();
const channel = await (await connect('amqp://localhost')).createChannel();
export async function place(id: number): Promise<void> {
  await pool.query('insert into orders (id) values ($1)', [id]);
  channel.sendToQueue('placed', Buffer.from(JSON.stringify({ id })));
}
export async function raw(id: number, bytes: Buffer): Promise<void> {
  await pool.query('insert into scans (id) values ($1)', [id]);
  channel.sendToQueue('scanned', bytes);
}
`;

beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'codemod-kinds-')));
  write('shop.ts', SHOP);
  write('package.json', '{ "type": "module" }');
});

afterEach(() => rmSync(root, { recursive: true, force: true }));

describe('the file', () => {
  beforeEach(() => linkPackages(root));

  test('is new, then up to date, then changed by a new call; and both ways as a patch', () => {
    git('init', '-q');
    write('.gitignore', 'node_modules\n');
    const first = plan();
    expect(first.kinds).toMatchObject({ path: 'kinds.ts', state: 'new' });
    expect(first.kinds?.entries).toEqual([
      {
        kind: 'placed',
        type: '{ id: number }',
        unknown: false,
        disagree: false,
        files: ['shop.ts'],
        calls: 1,
      },
      // The content is no JSON: the kind is known and its payload is not.
      { kind: 'scanned', type: 'unknown', unknown: true, disagree: false, files: ['shop.ts'], calls: 1 },
    ]);
    expect(renderText(first)).toContain('Kinds (kinds.ts, new):\n  placed   { id: number }  (1 call)\n');
    expect(renderMarkdown(first)).toContain('| `placed` | `{ id: number }` | 1 |');
    execFileSync('git', ['apply', '--check', '-'], { cwd: root, input: renderDiff(first.changes) });
    const { reversePatch } = applyPlan(first, { allowDirty: true });
    expect(plan().kinds?.state).toBe('same');
    expect(plan().changes).toEqual([]);
    write('kinds.ts', read('kinds.ts').replaceAll('\n', '\r\n'));
    const crlf = plan();
    expect([crlf.kinds?.state, crlf.changes]).toEqual(['same', []]);
    write('kinds.ts', read('kinds.ts').replaceAll('\r\n', '\n'));
    write('more.ts', SHOP.replaceAll("'placed'", "'moved'"));
    const second = plan();
    expect(second.kinds?.state).toBe('changed');
    expect(second.changes.find((c) => c.path === 'kinds.ts')?.after).toContain("moved: defineKind('moved'");
    git('apply', reversePatch ?? '');
    expect(read('shop.ts')).toBe(SHOP);
    expect(() => read('kinds.ts')).toThrow('ENOENT');
  });

  test('is left alone once it was edited, and nothing else is made to use it', () => {
    applyPlan(plan(), { allowDirty: true });
    const edited = read('kinds.ts').replace('id: number', 'id: string');
    write('kinds.ts', edited);
    write('shop.ts', SHOP);
    const again = plan('kinds.ts', true);
    expect(again.kinds?.state).toBe('edited');
    expect(again.changes.map((c) => c.path)).toEqual(['shop.ts']);
    expect(again.changes[0]?.after).toContain("enqueue(client, 'placed', { id })");
    expect(renderText(again)).toContain('Kinds (kinds.ts, edited by hand, so it is left alone)');
    write('kinds.ts', '// mine\n');
    expect(plan().kinds?.state).toBe('edited');
  });

  test.each([
    ['no configuration', undefined, 'id?: number | undefined'],
    ['one that does not say so', '{}', 'id: number'],
    [
      'one that does',
      '{ "compilerOptions": { "noUncheckedIndexedAccess": true } }',
      'id?: number | undefined',
    ],
  ])('an element of a list may be missing as far as its compiler says: %s', (_name, config, id) => {
    if (config !== undefined) write('tsconfig.json', config);
    write('shop.ts', SHOP.replace('id: number', 'ids: number[]').replace('{ id }', '{ id: ids[0] }'));
    expect(plan().kinds?.entries[0]).toMatchObject({ kind: 'placed', type: `{ ${id} }` });
  });

  test('that came to be after the scan is not overwritten', () => {
    const made = plan();
    write('kinds.ts', '// mine\n');
    expect(() => applyPlan(made, { allowDirty: true })).toThrow(
      expect.objectContaining({ code: 'file-changed', message: expect.stringContaining('has come to be') }),
    );
    expect([read('kinds.ts'), read('shop.ts')]).toEqual(['// mine\n', SHOP]);
  });

  test.each(['kinds.json', '../kinds.ts', 'node_modules/kinds.ts', 'nowhere/kinds.ts'])(
    '%s is refused',
    (path) => {
      expect(() => plan(path)).toThrow(
        expect.objectContaining({ code: 'kinds-path-invalid', exitStatus: 2 }),
      );
    },
  );

  test('the command line refuses an edited file and what goes with no kinds', async () => {
    write('kinds.ts', '// mine\n');
    const cases: [string[], string][] = [
      [['apply', '--kinds', 'kinds.ts', '--write', '--allow-dirty'], 'kinds-edited'],
      [['scan', '--use-kinds'], 'kinds-path-invalid'],
    ];
    for (const [args, code] of cases) {
      const run = startScript(join(REPOSITORY, 'src', 'cli', 'main.ts'), ['codemod', ...args], { cwd: root });
      run.endInput();
      expect((await run.waitForExit(60_000)).code).toBe(2);
      expect(run.stderr).toContain(`[${code}]`);
    }
    expect(read('shop.ts')).toBe(SHOP);
  });
});

test('a function without types has those of its arguments, before it is handed a transaction and after', () => {
  write('package.json', '{}');
  rmSync(join(root, 'shop.ts'));
  linkPackages(root);
  write(
    'shop.js',
    `const amqp = require('amqplib');
const { Pool } = require('pg');
const pool = new Pool();
const open = amqp.connect('amqp://localhost').then((c) => c.createChannel());
const publish = async (key, body) => (await open).publish('shop', key, Buffer.from(JSON.stringify(body)));
async function announce(order, loud) {
  if (loud) await publish('order.loud', { id: order.id, of: order });
  else await publish('order.quiet', { id: order.id, loud });
}
exports.place = async function place(/** @type {number} */ id) {
  const client = await pool.connect();
  await client.query('BEGIN');
  await client.query('insert into orders (id) values ($1)', [id]);
  await client.query('COMMIT');
  await announce({ id }, id > 9);
  client.release();
};
`,
  );
  const options = { root, paths: [], level: 'thread', inlineSql: false, todo: false, types: true } as const;
  const kinds = { path: 'kinds.js', use: true };
  const types = [
    ['order.loud', '{ id: number; of: { id: number } }'],
    ['order.quiet', '{ id: number; loud: boolean }'],
  ];
  const before = makePlan({ ...options, kinds });
  expect(before.kinds?.entries.map((e) => [e.kind, e.type])).toEqual(types);
  applyPlan(before, { allowDirty: true });
  expect(read('shop.js')).toContain("await enqueue(client, kinds['order.quiet'], ");
  const after = makePlan({ ...options, kinds });
  expect([after.kinds?.state, after.changes]).toEqual(['same', []]);
  // What a relay is handed is the relay's own business.
  write('shop.js', `${read('shop.js')}enqueue(pool, 'relay.amqp', { exchange: 'shop', text: '' });\n`);
  expect(makePlan({ ...options, kinds }).kinds?.state).toBe('same');
});

test('without packages what a row holds is unknown', () => {
  write(
    'shop.ts',
    SHOP.replace('JSON.stringify({ id })', 'JSON.stringify({ id, row })').replace(
      "await pool.query('insert",
      "const row = await pool.query('insert",
    ),
  );
  const made = plan();
  expect(made.degraded).not.toBe(null);
  expect(made.kinds?.entries.map((e) => [e.kind, e.type, e.unknown])).toEqual([
    ['placed', '{ id: number; row: unknown }', true],
    ['scanned', 'unknown', true],
  ]);
});

test('a JavaScript registry runs, as a module and with require', async () => {
  await installUnbroker(root);
  cpSync(
    join(import.meta.dirname, 'fixtures', 'kinds-registry-js', 'output', 'kinds.js'),
    join(root, 'a.cjs'),
  );
  const entry = { kind: "it's", type: 'unknown', unknown: true, disagree: false, files: [], calls: 1 };
  write('b.mjs', renderKindFile([entry, { ...entry, kind: '__proto__' }], [], 'esm'));
  const print = `
    const a = require('./a.cjs').kinds;
    const said = [a['guest.left'].name, a['guest.left'].job(7)];
    import('./b.mjs').then(({ kinds }) => console.log(JSON.stringify([...said, Object.keys(kinds)])));`;
  const out = execFileSync(process.execPath, ['-e', print], { cwd: root, encoding: 'utf8' });
  const [name, job, keys] = JSON.parse(out);
  expect(name).toBe('guest.left');
  expect(job).toMatchObject({ kind: { name: 'guest.left' }, payload: 7 });
  expect(keys).toEqual(["it's", '__proto__']);
});

test('the hash covers every line of the file', () => {
  const text = renderKindFile([], [], 'ts');
  expect(stateOfText(text)).toBe('made');
  expect(stateOfText(`\uFEFF${text.replaceAll('\n', '\r\n')}`)).toBe('made');
  const lines = text.split('\n');
  for (const [index, line] of lines.entries()) {
    const changed = [...lines.slice(0, index), `${line} `, ...lines.slice(index + 1)].join('\n');
    // The empty line below the head is nobody's.
    expect([index, stateOfText(changed)]).toEqual([index, index === 2 ? 'made' : 'edited']);
  }
});
