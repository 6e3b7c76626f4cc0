/** unbroker.codemod.json: what is wrong in it is named with its place, and what is right is obeyed. */
import { mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { parseConfig } from '../../codemods/config.js';
import { makePlan, type Plan, renderMarkdown, renderText } from '../../codemods/index.js';
import { didYouMean } from '../../codemods/nearest.js';
import { linkPackages, REPOSITORY, verdicts } from './fixture.js';

// A compiler starts: on a loaded machine that takes its time.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const wrapper = (fields: string): string => `{"wrappers":{"src/bus.ts#Bus.publish":${fields}}}`;

/** A text, and what is said of it; undefined: it is fine. */
const CASES: readonly (readonly [string, string | undefined])[] = [
  ['{}', undefined],
  ['{"$schema":"./node_modules/unbroker/codemods/unbroker.codemod.schema.json"}', undefined],
  ['{"pool":null}', undefined],
  ['{"pool":"src/db.ts#pool"}', undefined],
  ['{"kinds":{"a.*":"a","__proto__":"p"}}', undefined],
  [wrapper('false'), undefined],
  [wrapper('{"kind":0,"payload":50}'), undefined],
  [wrapper('{"kind":"all","payload":0,"options":2}'), undefined],
  ['[]', '$ must be an object'],
  ['{"kind":{}}', '$.kind is not known; did you mean "kinds"? (known: $schema, kinds, wrappers, pool)'],
  ['{"Wrapers":{}}', '$.Wrapers is not known; did you mean "wrappers"?'],
  ['{"something else":1}', '$["something else"] is not known (known: '],
  ['{"kinds":[]}', '$.kinds must be an object'],
  ['{"kinds":{"order.*":""}}', '$.kinds["order.*"] must be a text of 1 to 200 characters'],
  [`{"kinds":{"a":"${'k'.repeat(201)}"}}`, '$.kinds.a must be a text of 1 to 200 characters'],
  ['{"wrappers":{"publish":false}}', '$.wrappers.publish must be named like "src/bus.ts#Bus.publish"'],
  [
    wrapper('true'),
    '$.wrappers["src/bus.ts#Bus.publish"] must be an object like { "kind": 0, "payload": 1 }, or false',
  ],
  [
    wrapper('{"kind":0,"paylod":1}'),
    '$.wrappers["src/bus.ts#Bus.publish"].paylod is not known; did you mean "payload"?',
  ],
  [
    wrapper('{"kind":-1,"payload":1}'),
    '.kind must be an argument number (0 to 50) or a text of 1 to 200 characters',
  ],
  [wrapper('{"kind":"","payload":1}'), '.kind must be'],
  [wrapper('{"kind":0}'), '.payload must be an argument number (0 to 50)'],
  [wrapper('{"kind":0,"payload":"1"}'), '.payload must be'],
  [wrapper('{"kind":0,"payload":51}'), '.payload must be'],
  [wrapper('{"kind":0,"payload":1,"options":1.5}'), '.options must be an argument number'],
  ['{"pool":"pool"}', '$.pool must look like "src/db.ts#pool"'],
  ['{"pool":7}', '$.pool must look like'],
];

test.each(CASES)('%s', (text, said) => {
  if (said === undefined) expect(() => parseConfig(text)).not.toThrow();
  else
    expect(() => parseConfig(text)).toThrow(
      expect.objectContaining({
        ...{ code: 'codemod-config-invalid', exitStatus: 2, message: expect.stringContaining(said) },
      }),
    );
});

test('the schema for editors says the same, and is in the package', () => {
  const path = 'codemods/unbroker.codemod.schema.json';
  const validate = new Ajv().compile(JSON.parse(readFileSync(join(REPOSITORY, path), 'utf8')));
  for (const [text, said] of CASES)
    expect([text, validate(JSON.parse(text))]).toEqual([text, said === undefined]);
  const manifest = JSON.parse(readFileSync(join(REPOSITORY, 'package.json'), 'utf8')) as { files: string[] };
  expect(manifest.files).toContain(path);
});

test('a name is only near when little is different', () => {
  expect(didYouMean('src/bus.ts#Bus.publsh', ['src/bus.ts#Bus.publish', 'src/a.ts#x'])).toBe(
    '; did you mean "src/bus.ts#Bus.publish"?',
  );
  expect(didYouMean('pool', ['kinds', 'wrappers'])).toBe('');
  expect(didYouMean('x'.repeat(300), ['x'.repeat(299)])).toBe('');
});

describe('a repository', () => {
  let root: string;

  const write = (name: string, text: string): void => writeFileSync(join(root, name), text);

  beforeAll(() => {
    root = realpathSync(mkdtempSync(join(tmpdir(), 'codemod-config-')));
    linkPackages(root);
    write(
      'bus.ts',
      `import { connect } from 'amqplib';
const channel = await (await connect('amqp://localhost')).createChannel();
export function publish(key: string, body: object, more?: object): void {
  channel.publish('shop', key, Buffer.from(JSON.stringify(body)), more);
}
export function swapped(body: object, key: string, urgent: object): void {
  for (const k of [key]) channel.publish('shop', k, Buffer.from(JSON.stringify(body)), urgent);
}
export function closed(body: object): void {
  channel.publish('shop', 'shop.closed', Buffer.from(JSON.stringify({ body, at: 1 })));
}
`,
    );
    write(
      'other.ts',
      `import { client } from './elsewhere.js';
export async function tell(body: object): Promise<void> {
  await client.tell(body);
}
`,
    );
    write(
      'elsewhere.ts',
      'export const client: { tell(body: object): Promise<void> } = { tell: async () => {} };\n',
    );
    write(
      'orders.ts',
      `import { Pool } from 'pg';
import { closed, publish, swapped } from './bus.js';
import { tell } from './other.js';
const pool = new Pool();
export async function a(id: number): Promise<void> {
  await pool.query('insert into a (id) values ($1)', [id]);
  publish('a.made', { id }, { priority: 3 });
}
export async function b(id: number): Promise<void> {
  await pool.query('insert into b (id) values ($1)', [id]);
  swapped({ id }, 'b.made', { messageId: 'b' });
}
export async function c(id: number): Promise<void> {
  await pool.query('insert into c (id) values ($1)', [id]);
  closed({ id });
}
export async function d(id: number): Promise<void> {
  await pool.query('insert into d (id) values ($1)', [id]);
  await tell({ id });
}
`,
    );
  });

  afterAll(() => rmSync(root, { recursive: true, force: true }));

  function plan(wrappers?: object): Plan {
    if (wrappers === undefined) rmSync(join(root, 'unbroker.codemod.json'), { force: true });
    else write('unbroker.codemod.json', JSON.stringify({ wrappers }));
    const options = { root, paths: [], level: 'wrap', inlineSql: false, todo: false, types: true } as const;
    return makePlan(options);
  }

  const enqueues = (made: Plan): string[] =>
    made.changes.flatMap((c) => c.after.match(/enqueue\(client, .*\);/g) ?? []);

  test('the report has a table of how each wrapper is read, and the entry that corrects one', () => {
    const made = plan();
    expect(verdicts(made)).toEqual([
      'orders.ts:7 wrap',
      'orders.ts:11 refused wrapper-unclear',
      'orders.ts:15 wrap',
    ]);
    expect(made.wrappers.map((w) => [w.id, w.mapping])).toEqual([
      [
        'bus.ts#closed',
        { kind: { text: 'shop.closed' }, payload: { source: '{ body, at: 1 }' }, options: null },
      ],
      ['bus.ts#publish', { kind: { argument: 0 }, payload: { argument: 1 }, options: { argument: 2 } }],
      ['bus.ts#swapped', { kind: { source: 'k' }, payload: { argument: 0 }, options: { argument: 2 } }],
    ]);
    const text = renderText(made);
    expect(text).toMatch(/^ {2}function +calls {2}kind +payload +options +state$/m);
    expect(text).toMatch(/^ {2}bus\.ts#publish \(line 3\) +1 +argument 0 +argument 1 +argument 2 +found$/m);
    expect(text).toMatch(/^ {2}bus\.ts#closed \(line 9\) +1 +'shop\.closed' +\{ body, at: 1 \} +- +found$/m);
    // What is suggested is of a wrapper that needs it, and can be taken as it is.
    const entry = /^ {2}(\{ "wrappers": .*\})$/m.exec(text)?.[1] ?? '';
    expect([...parseConfig(entry).wrappers]).toEqual([
      ['bus.ts#swapped', { kind: 0, payload: 0, options: 2 }],
    ]);
    expect(renderMarkdown(made)).toContain(
      '| `bus.ts#publish (line 3)` | 1 | argument 0 | argument 1 | argument 2 | found |',
    );
    expect(renderMarkdown(made)).toContain(`    ${entry}`);
  });

  test('each correction is obeyed', () => {
    expect(enqueues(plan())).toEqual([
      "enqueue(client, 'a.made', { id }, { priority: 3 });",
      "enqueue(client, 'shop.closed', { body: { id }, at: 1 });",
    ]);
    // Confirmed although it looped, its arguments the other way round, with options.
    const swapped = plan({ 'bus.ts#swapped': { kind: 1, payload: 0, options: 2 } });
    expect(enqueues(swapped)).toContain("enqueue(client, 'b.made', { id }, { dedupeKey: 'b' });");
    expect(swapped.wrappers.find((w) => w.id === 'bus.ts#swapped')).toMatchObject({
      confirmed: true,
      usable: true,
    });
    // The kind is a text, and the payload what was passed, not what the wrapper makes of it.
    expect(enqueues(plan({ 'bus.ts#closed': { kind: 'closing', payload: 0 } }))).toContain(
      "enqueue(client, 'closing', { id });",
    );
    // Options left out are not looked at.
    expect(enqueues(plan({ 'bus.ts#publish': { kind: 0, payload: 1 } }))).toContain(
      "enqueue(client, 'a.made', { id });",
    );
    // Arguments that only the caller knows: the payload first.
    expect(enqueues(plan({ 'bus.ts#publish': { kind: 'order', payload: 2 } }))).toContain(
      "enqueue(client, 'order', { priority: 3 });",
    );
    // A function that no library stands behind.
    expect(enqueues(plan({ 'other.ts#tell': { kind: 'told', payload: 0 } }))).toContain(
      "enqueue(client, 'told', { id });",
    );
    // No publisher: its calls are no sites.
    const denied = plan({ 'bus.ts#closed': false });
    expect(verdicts(denied).some((v) => v.startsWith('orders.ts:15'))).toBe(false);
    expect(denied.wrappers.map((w) => w.id)).not.toContain('bus.ts#closed');
  });

  test.each([
    [
      { 'bus.ts#publsh': false },
      '$.wrappers["bus.ts#publsh"] names no function that was looked at; did you mean "bus.ts#publish"?',
    ],
    [{ 'gone.ts#publish': { kind: 0, payload: 1 } }, '$.wrappers["gone.ts#publish"] names no function'],
    [
      { 'bus.ts#closed': { kind: 'x', payload: 1 } },
      '$.wrappers["bus.ts#closed"].payload is argument 1, and the function has 1',
    ],
  ])('what is not in the code is named: %j', (wrappers, said) => {
    expect(() => plan(wrappers)).toThrow(
      expect.objectContaining({ code: 'codemod-config-invalid', message: expect.stringContaining(said) }),
    );
  });
});
