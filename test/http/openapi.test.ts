/**
 * The OpenAPI document is true: it is valid, every mounted route is in it with what it takes and answers, each example in
 * it is sent to the real server and answered as documented, and what its schemas refuse the server refuses.
 */
import { createHmac } from 'node:crypto';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type ShimWorld, startShimWorld } from './shim-world.js';

interface Answered {
  readonly description: string;
  readonly headers?: { readonly Location?: object };
  readonly content?: Readonly<Record<string, { readonly schema: object }>>;
}
interface Operation {
  readonly operationId: string;
  readonly summary?: string;
  readonly parameters: readonly { readonly name: string; readonly in: string }[];
  readonly requestBody?: {
    readonly content: Readonly<
      Record<string, { readonly examples?: Readonly<Record<string, { readonly value: unknown }>> }>
    >;
  };
  readonly responses: Readonly<Record<string, Answered>>;
}
interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

const KEY = 'k'.repeat(32);
const DOCUMENT = 'https://example.org/openapi.json';
let world: ShimWorld;
let document: Document;
const ajv = new Ajv2020({ strict: false, allErrors: false });
ajv.addFormat('date-time', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
ajv.addFormat('uri', (text: string) => URL.canParse(text));
ajv.addFormat('uuid', /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);

beforeAll(async () => {
  world = await startShimWorld({
    serve: { contracts: ['trio', 'qstash', 'govuk-notify'], keys: [{ name: 'app', env: 'APP' }] },
    environment: { APP: KEY },
  });
  document = JSON.parse((await ask('GET', '/openapi.json')).text) as Document;
  ajv.addSchema(document as object, DOCUMENT);
});
afterAll(() => world?.close());

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

async function ask(
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const isGovuk = /^\/v2\/(notifications|templates?|received)/.test(path);
  const key: Record<string, string> = isGovuk ? { authorization: `Bearer ${token()}` } : { 'x-api-key': KEY };
  const type: Record<string, string> = body === undefined ? {} : { 'content-type': 'application/json' };
  const response = await fetch(`${world.url}${path}`, {
    method,
    headers: { ...type, ...key, ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

function token(): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const claims = { iss: 'app', iat: Math.floor(Date.now() / 1_000) };
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}`;
  return `${signed}.${createHmac('sha256', KEY).update(signed).digest('base64url')}`;
}

const pointer = (...parts: readonly string[]): string =>
  parts.map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/');

const compiled = new Map<string, ValidateFunction>();
/** The schema at this place of the document. */
function schemaAt(...parts: readonly string[]): ValidateFunction {
  const $ref = `${DOCUMENT}#/${pointer(...parts)}`;
  const found = compiled.get($ref) ?? ajv.compile({ $ref });
  compiled.set($ref, found);
  return found;
}

const operations = (): { method: string; path: string; operation: Operation }[] =>
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  );

/** Each a new one, in a state in which its route can say yes. */
const HOOK = { url: 'https://example.org/hook' };
const idOf = async (answer: Promise<Answer>, member = 'id'): Promise<string> => {
  const { status, text } = await answer;
  expect([status < 300, text]).toEqual([true, text]);
  return String((JSON.parse(text) as Record<string, unknown>)[member]);
};
let drawn = 0;
const newName = (): string => {
  drawn += 1;
  return `name-${drawn}`;
};
async function template(): Promise<string> {
  const parts = { subject: 'Welcome {{name}}', text: 'Dear {{name}}.' };
  expect((await ask('PUT', '/templates/written', { parts })).status).toBe(200);
  return 'written';
}
const notification = (): Promise<string> =>
  idOf(ask('POST', '/notifications', { to: 'ann@example.org', body: 'x', tags: ['spring'] }));
const oneOff = (): Promise<string> => idOf(ask('POST', '/schedules', { delayMs: 60_000, target: HOOK }));
const cron = (): Promise<string> => idOf(ask('POST', '/schedules', { cron: '0 9 * * *', target: HOOK }));
const deadLetter = (): Promise<string> =>
  idOf(ask('POST', '/retries', { payload: { n: 1 }, target: HOOK, attempt: 9, error: 'HTTP 503' }));
const message = (): Promise<string> =>
  idOf(ask('POST', '/v2/publish/https://example.org/a', { n: 1 }), 'messageId');
const deadMessage = async (): Promise<string> => {
  const id = (await message()).slice('msg_'.length);
  await world.database.pool.query(
    `update unbroker.jobs set state = 'dead', finished_at = now(), locked_until = null where id = $1`,
    [id],
  );
  return id;
};
const qstashSchedule = (): Promise<string> =>
  idOf(
    ask('POST', '/v2/schedules/https://example.org/a', undefined, { 'Upstash-Cron': '0 9 * * *' }),
    'scheduleId',
  );
const govuk = async (): Promise<string> =>
  idOf(
    ask('POST', '/v2/notifications/email', {
      template_id: await template(),
      email_address: 'ann@example.org',
      personalisation: { name: 'Ann' },
    }),
  );

/** The values of a path's parameters, by the first prefix that fits; several: the route is asked for each. */
const SUBJECTS: readonly [RegExp, Record<string, () => string | Promise<string>>][] = [
  [/^\/notifications\//, { id: notification }],
  [/^\/templates\/\{key\}(\/versions|\/preview)?$/, { key: template }],
  [/^\/schedules\/\{id\}\/(pause|resume)$/, { id: cron }],
  [/^\/schedules\/\{id\}/, { id: oneOff }],
  [/^\/schedules\/\{name\}/, { name: newName }],
  [/^\/retries\//, { id: deadLetter }],
  [/^\/dead-letters\//, { id: deadLetter }],
  [/^\/v2\/messages\//, { id: message }],
  [/^\/v2\/dlq\//, { id: deadMessage }],
  [/^\/v2\/(publish)\//, { rest: () => 'https://example.org/a' }],
  [/^\/v2\/enqueue\//, { rest: () => 'queue-1/https://example.org/a' }],
  [/^\/v2\/schedules\/\{rest\}/, { rest: () => 'https://example.org/a' }],
  [/^\/v2\/schedules\//, { id: qstashSchedule }],
  [/^\/v2\/notifications\//, { id: govuk }],
  [/^\/v2\/template\//, { id: template, version: () => '1' }],
];

async function filled(path: string): Promise<string> {
  if (!path.includes('{')) return path;
  const [, makers] = SUBJECTS.find(([pattern]) => pattern.test(path)) ?? [];
  if (makers === undefined) throw new Error(`the test has nothing to ask ${path} about`);
  let out = path;
  for (const [name, make] of Object.entries(makers)) out = out.replace(`{${name}}`, await make());
  return out;
}

const exactStatuses = (operation: Operation): number[] =>
  Object.keys(operation.responses)
    .filter((status) => /^\d{3}$/.test(status) && status !== '503')
    .map(Number);

/** The status is one of the good ones documented (or the only ones there are), and the body is what its schema says. */
function expectDocumented(method: string, path: string, operation: Operation, answer: Answer): void {
  const documented = exactStatuses(operation);
  const good = documented.filter((status) => status < 400);
  expect([path, good.length > 0 ? good : documented, answer.text]).toEqual([
    path,
    expect.arrayContaining([answer.status]),
    answer.text,
  ]);
  const { content, headers } = operation.responses[String(answer.status)] as Answered;
  if (headers?.Location !== undefined) expect(answer.headers.get('location')).toMatch(/^\/.+/);
  if (content === undefined) {
    expect(answer.text).toBe('');
    return;
  }
  const [mediaType = ''] = Object.keys(content);
  expect(answer.headers.get('content-type')?.split(';')[0]).toBe(mediaType);
  const status = String(answer.status);
  const check = schemaAt(
    'paths',
    path,
    method.toLowerCase(),
    'responses',
    status,
    'content',
    mediaType,
    'schema',
  );
  const valid = check(JSON.parse(answer.text));
  expect([path, check.errors ?? null, answer.text]).toEqual([path, null, answer.text]);
  expect(valid).toBe(true);
}

const examplesOf = (operation: Operation): unknown[] => {
  const examples = operation.requestBody?.content['application/json']?.examples;
  return examples === undefined ? [undefined] : Object.values(examples).map(({ value }) => value);
};

it('is a valid document, each operation with a summary, its answers and their schemas', async () => {
  const { errors } = await new Validator().validate(document as never);
  expect(errors ?? null).toBeNull();
  const all = operations();
  expect(all.length).toBeGreaterThanOrEqual(60);
  for (const { path, operation } of all) {
    expect([path, operation.summary]).toEqual([path, expect.stringMatching(/\S/)]);
    expect([path, exactStatuses(operation).length > 0]).toEqual([path, true]);
    const json = operation.requestBody?.content['application/json'];
    if (operation.requestBody !== undefined && json !== undefined)
      expect([path, Object.keys(json.examples ?? {}).length > 0]).toEqual([path, true]);
  }
});

it('every example is taken by the server, and answered as documented', async () => {
  for (const { method, path, operation } of operations())
    for (const example of examplesOf(operation)) {
      if (example !== undefined) {
        const check = schemaAt(
          ...['paths', path, method.toLowerCase(), 'requestBody', 'content', 'application/json', 'schema'],
        );
        expect([path, check(example), check.errors ?? null]).toEqual([path, true, null]);
      }
      const headers: Record<string, string> =
        path === '/v2/schedules/{rest}' ? { 'Upstash-Cron': '0 9 * * *' } : {};
      const answer = await ask(method, await filled(path), example, headers);
      expectDocumented(method, path, operation, answer);
    }
});

it('what is there is listed and shown as documented', async () => {
  await Promise.all([notification(), oneOff(), cron(), deadLetter(), message(), deadMessage(), govuk()]);
  const crons = await cron();
  const ids: Readonly<Record<string, string>> = {
    '/schedules/{id}': `/schedules/${crons}`,
    '/schedules/{id}/next-runs': `/schedules/${crons}/next-runs`,
    '/schedules/{id}/history': `/schedules/${crons}/history`,
  };
  await ask('POST', `/schedules/${crons}/trigger`);
  for (const { method, path, operation } of operations()) {
    if (method !== 'GET' || (path.includes('{') && ids[path] === undefined)) continue;
    const answer = await ask('GET', ids[path] ?? path);
    expectDocumented(method, path, operation, answer);
    const lists = Object.values(JSON.parse(answer.text) as object).filter(Array.isArray);
    const isEmpty = lists.length > 0 && lists.every((one: unknown[]) => one.length === 0);
    if (path !== '/v2/received-text-messages') expect([path, isEmpty]).toEqual([path, false]);
  }
});

it('a member that is not in the schema: refused by both', async () => {
  let asked = 0;
  for (const { method, path, operation } of operations()) {
    const [example] = examplesOf(operation);
    if (typeof example !== 'object' || example === null || Array.isArray(example)) continue;
    if (path === '/v2/notifications/letter') continue;
    const body = { ...example, notInTheSchema: 1 };
    const check = schemaAt(
      ...['paths', path, method.toLowerCase(), 'requestBody', 'content', 'application/json', 'schema'],
    );
    expect([path, check(body)]).toEqual([path, false]);
    const before = await world.jobCount();
    const target = await filled(path);
    const made = (await world.jobCount()) - before;
    expect([path, (await ask(method, target, body)).status]).toEqual([path, 400]);
    expect(await world.jobCount()).toBe(before + made);
    asked += 1;
  }
  expect(asked).toBeGreaterThanOrEqual(14);
});

it.each([
  ['/notifications/{id}', '/notifications/900000', 404],
  ['/schedules/{id}', '/schedules/nobody', 404],
  ['/retries/{id}', '/retries/900000', 404],
  ['/notifications', '/notifications?limit=x', 400],
  ['/v2/messages/{id}', '/v2/messages/nobody', 404],
  ['/v2/notifications/{id}', '/v2/notifications/nobody', 404],
  ['/v2/templates', '/v2/templates?type=fax', 400],
])('a refusal by %s is what it says of errors', async (path, asked, status) => {
  const answer = await ask('GET', asked);
  expect(answer.status).toBe(status);
  const { content = {} } = document.paths[path]?.['get']?.responses['4XX'] ?? {};
  const [mediaType = ''] = Object.keys(content);
  expect(answer.headers.get('content-type')?.split(';')[0]).toBe(mediaType);
  const check = schemaAt('paths', path, 'get', 'responses', '4XX', 'content', mediaType, 'schema');
  expect([check(JSON.parse(answer.text)), check.errors ?? null]).toEqual([true, null]);
});
