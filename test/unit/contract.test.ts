/** What surrounds a contract: its own checks, who may ask, what is looked at before it, times and queries. */
import { describe, expect, it } from 'vitest';
import { AccessLog } from '../../src/shims/access-log.js';
import { digestOf, mayEnqueue, mayUse, presentedKey, principalOf } from '../../src/shims/auth.js';
import { checkServeConfig } from '../../src/shims/config.js';
import {
  type Contract,
  defineContract,
  isRefusal,
  jsonResponse,
  problem,
  Refusal,
  refuseSharedRoutes,
  route,
} from '../../src/shims/contract.js';
import { limitOf, parseTime } from '../../src/shims/fields.js';
import {
  idempotencyKeyOf,
  isLoopbackHost,
  type RequestHead,
  readBody,
  readQuery,
  refuseBodyHead,
  refuseHead,
  traceparentOf,
} from '../../src/shims/request-rules.js';

const contractOf = (...paths: readonly [string, string][]): Contract =>
  defineContract({
    name: 'test',
    service: 'retry',
    deliveries: [],
    errors: problem,
    routes: paths.map(([method, path]) =>
      route({
        method: method as 'GET',
        path,
        parse: () => new Refusal(404, 'x', 'x'),
        render: () => jsonResponse(200, '{}'),
      }),
    ),
  });

describe('defineContract', () => {
  it('takes routes that differ', () => {
    expect(
      contractOf(['GET', '/a/:id'], ['POST', '/a/:id'], ['GET', '/a/:id/b'], ['GET', '/a-b']).routes,
    ).toHaveLength(4);
  });
  it.each([
    [
      ['GET', '/a/:id'],
      ['GET', '/a/:key'],
    ],
    [
      ['GET', '/a'],
      ['GET', '/a'],
    ],
    [['GET', 'a']],
    [['GET', '/a/']],
    [['GET', '/a//b']],
    [['GET', '/a?b']],
  ] as [string, string][][])(
    '%#: refuses routes that nobody could tell apart, and paths that are none',
    (...paths) => {
      expect(() => contractOf(...paths)).toThrow(TypeError);
    },
  );
  it('refuses two contracts with one route, and the routes of the server', () => {
    const [one, other, own] = [
      contractOf(['GET', '/a/:id']),
      contractOf(['GET', '/a/:key']),
      contractOf(['GET', '/livez']),
    ];
    expect(() => refuseSharedRoutes([one, contractOf(['POST', '/a/:id'], ['GET', '/a/b'])])).not.toThrow();
    const refused = (...contracts: Contract[]) =>
      expect(() => refuseSharedRoutes(contracts)).toThrow(
        expect.objectContaining({
          code: 'contract-invalid',
          exitStatus: 2,
          message: expect.stringContaining('is a route of test'),
        }),
      );
    for (const contracts of [[one, other], [one, one], [own]]) refused(...contracts);
  });
  it('knows a refusal by its mark, also one from another copy', () => {
    expect(isRefusal(new Refusal(400, 'a', 'b'))).toBe(true);
    expect(isRefusal(Object.assign(new Error('x'), { type: 'refusal', status: 400 }))).toBe(true);
    for (const other of [new Error('x'), { type: 'refusal' }, null, undefined, 'refusal'])
      expect(isRefusal(other)).toBe(false);
  });
});

describe('keys', () => {
  const keys = [
    { name: 'a', grants: {}, digest: digestOf('key-a') },
    {
      name: 'b',
      grants: { services: ['retry'], verbs: ['read'], kinds: ['notify.*', 'bill.send'] },
      digest: digestOf('key-b'),
    },
  ] as const;
  it('finds who asks', () => {
    expect(principalOf('key-b', keys)?.name).toBe('b');
    for (const key of ['key-c', '', null, 'KEY-A']) expect(principalOf(key, keys)).toBeNull();
    expect(principalOf(null, [])?.name).toBe('anonymous');
  });
  it.each([
    [{ authorization: 'Bearer abc' }, 'abc'],
    [{ authorization: 'bearer  abc' }, 'abc'],
    [{ 'x-api-key': 'abc' }, 'abc'],
    [{ authorization: 'Basic abc', 'x-api-key': 'abc' }, null],
    [{ authorization: 'Bearer a b' }, null],
    [{ authorization: 'Bearer' }, null],
    [{}, null],
  ])('%j: %s', (headers, key) => {
    expect(presentedKey(headers)).toBe(key);
  });
  it('limits what it limits', () => {
    const [all, some] = keys;
    expect([mayUse(all, 'scheduling', 'write'), mayEnqueue(all, 'anything')]).toEqual([true, true]);
    expect([
      mayUse(some, 'retry', 'read'),
      mayUse(some, 'retry', 'write'),
      mayUse(some, 'notification', 'read'),
    ]).toEqual([true, false, false]);
    expect(
      ['notify.email', 'bill.send', 'bill.send.x', 'relay.http', 'notify'].map((kind) =>
        mayEnqueue(some, kind),
      ),
    ).toEqual([true, true, false, false, false]);
  });
});

const head = (change: Partial<RequestHead> = {}): RequestHead => ({
  method: 'POST',
  url: '/a',
  httpVersion: '1.1',
  headers: { host: 'a' },
  rawHeaders: [],
  ...change,
});

describe('heads', () => {
  it('refuses more than 100 headers', () => {
    expect(refuseHead(head({ rawHeaders: Array.from({ length: 200 }, () => 'x') }))).toBeNull();
    expect(refuseHead(head({ rawHeaders: Array.from({ length: 202 }, () => 'x') }))?.status).toBe(431);
  });
  it.each([
    ['/a/b?c=%00', null],
    ['/a%20b', null],
    ['/caf%C3%A9', null],
    ['/a/...', null],
    ['/a/.b', null],
    ['/a/../b', 404],
    ['/a/.', 404],
    ['/%2E%2e/a', 404],
    ['/a%2Fb', 404],
    ['/a%5cb', 404],
    ['/a%00', 404],
    ['/a%2500', 404],
    ['//a', 404],
    ['/a//b', 404],
    ['/a\\b', 404],
    ['/%E0%A4%A', 404],
    ['http://a/', 400],
    ['*', 400],
    ['', 400],
    [`/${'a'.repeat(8_000)}`, 414],
  ])('%#: target %s: %s', (url, status) => {
    expect(refuseHead(head({ url }))?.status ?? null).toBe(status);
  });
  it.each<[Record<string, string>, number | null]>([
    [{}, null],
    [{ 'content-length': '5', 'content-type': 'application/json' }, null],
    [{ 'content-length': '5', 'content-type': 'application/json; charset="UTF-8"' }, null],
    [{ 'content-length': '5', 'content-type': 'application/cloudevents+json' }, null],
    [{ 'content-length': '5' }, 415],
    [{ 'transfer-encoding': 'chunked' }, 415],
    [{ 'content-length': '5', 'content-type': 'text/json' }, 415],
    [{ 'content-length': '5', 'content-type': 'application/jsonx' }, 415],
    [{ 'content-length': '5', 'content-type': 'application/json;charset=latin1' }, 415],
    [{ 'content-length': '5', 'content-type': 'application/json', 'content-encoding': 'br' }, 415],
    [{ 'content-length': '101', 'content-type': 'text/plain' }, 413],
    [{ 'content-length': '100', 'content-type': 'application/json' }, null],
  ])('%j: %s', (headers, status) => {
    expect(refuseBodyHead(head({ headers }), 100)?.status ?? null).toBe(status);
  });
  it('knows this machine by its names', () => {
    for (const host of ['localhost', 'localhost:80', '127.0.0.1:80', '127.9.9.9', '[::1]:80'])
      expect(isLoopbackHost(head({ headers: { host } }))).toBe(true);
    for (const host of [
      'example.org',
      '127.0.0.1.example.org',
      'localhost.example.org',
      '',
      '10.0.0.1',
      '127.0.0.1@evil',
    ])
      expect(isLoopbackHost(head({ headers: { host } }))).toBe(false);
  });
  it('takes keys that can be stored and logged', () => {
    expect(idempotencyKeyOf(head({ headers: { 'idempotency-key': 'a'.repeat(255) } }))).toHaveLength(255);
    expect(idempotencyKeyOf(head())).toBeNull();
    for (const key of ['', 'a b', 'a'.repeat(256), 'a\n'])
      expect(() => idempotencyKeyOf(head({ headers: { 'idempotency-key': key } }))).toThrow(Refusal);
  });
  it('takes a trace context that is one', () => {
    const good = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    expect(traceparentOf(head({ headers: { traceparent: good } }))).toBe(good);
    for (const traceparent of ['', `${good}x`, good.toUpperCase(), `ff${good.slice(2)}`])
      expect(traceparentOf(head({ headers: { traceparent } }))).toBeNull();
  });
});

describe('queries and bodies', () => {
  it('reads each name once', () => {
    expect([...readQuery('/a?x=1&y=a+b%20c&z=&w')]).toEqual([
      ['x', '1'],
      ['y', 'a b c'],
      ['z', ''],
      ['w', ''],
    ]);
    expect(readQuery('/a?').size).toBe(0);
    for (const query of ['x=1&x=2', 'x=1&%78=2', 'x=%', 'x=%ff', 'x=%00'])
      expect(() => readQuery(`/a?${query}`)).toThrow(Refusal);
  });
  it('takes one byte order mark off', () => {
    expect(readBody(Buffer.from('\ufeff{}')).raw).toBe('{}');
    expect(() => readBody(Buffer.from('\ufeff\ufeff{}'))).toThrow(Refusal);
  });
});

describe('times', () => {
  it.each([
    ['2030-01-31T09:00:00Z', '2030-01-31T09:00:00.000Z'],
    ['2030-01-31T09:00:00.123456Z', '2030-01-31T09:00:00.123Z'],
    ['2030-01-31T09:00:00+02:00', '2030-01-31T07:00:00.000Z'],
    ['2030-01-31T09:00:00+0200', '2030-01-31T07:00:00.000Z'],
    ['2030-01-31T09:00', '2030-01-31T09:00:00.000Z'],
    ['2030-01-31 09:00:00', '2030-01-31T09:00:00.000Z'],
    ['2030-01-31', '2030-01-31T00:00:00.000Z'],
    ['2028-02-29T00:00:00Z', '2028-02-29T00:00:00.000Z'],
  ])('%s is %s', (text, iso) => {
    expect(parseTime(text)?.toISOString()).toBe(iso);
  });
  it.each([
    '',
    'now',
    '1700000000',
    '2030-1-1',
    '2030-13-01',
    '2030-02-30',
    '2029-02-29',
    '2030-00-10',
    '2030-01-00',
    '2030-01-01T24:30Z',
    '2030-01-01T23:59:60Z',
    '2030-01-01T10:00:00+99:00',
    '2030-01-01T10:00:00 Europe/Paris',
    'Thu, 31 Jan 2030 09:00:00 GMT',
    '2030-01-31T09:00:00Z\n',
  ])('%j is none', (text) => {
    expect(parseTime(text)).toBeNull();
  });
  it('cuts a limit to 200', () => {
    expect([limitOf(undefined), limitOf('1'), limitOf('200'), limitOf('201'), limitOf('999999999')]).toEqual([
      50, 1, 200, 200, 200,
    ]);
    for (const text of ['0', '-1', '1.5', '', '1e3', '9999999999', ' 1'])
      expect(() => limitOf(text)).toThrow(Refusal);
  });
});

describe('the serve section', () => {
  it('takes a whole one', () => {
    const config = {
      host: '0.0.0.0',
      port: 0,
      contracts: ['trio', './mine.ts'],
      keys: [
        { name: 'a', env: 'A', services: ['retry'], verbs: ['read'], kinds: ['notify.*'] },
        { name: 'b', sha256: 'a'.repeat(64) },
      ],
      kinds: ['bill.send'],
      targets: { 'exchange:events': 'event', 'queue:emails': 'notify.email' },
      maxConnections: 50,
    };
    expect(checkServeConfig(config)).toEqual(config);
  });
  it.each([
    { port: 70_000 },
    { port: '8080' },
    { host: 'a b' },
    { contracts: ['duo'] },
    { contracts: ['/etc/passwd'] },
    { keys: [{ name: 'a' }] },
    { keys: [{ name: 'a', env: 'A', sha256: 'a'.repeat(64) }] },
    {
      keys: [
        { name: 'a', env: 'A' },
        { name: 'a', env: 'B' },
      ],
    },
    { keys: [{ name: 'a', sha256: 'secret' }] },
    { keys: [{ name: 'a', key: 'a-secret-in-a-file' }] },
    { targets: { events: 'event' } },
    { maxConnections: 0 },
    { prot: 1 },
  ])('refuses %j', (config) => {
    expect(() => checkServeConfig(config)).toThrow(
      expect.objectContaining({ code: 'config-invalid', exitStatus: 2 }),
    );
  });
});

describe('the access log', () => {
  it('counts everything, shows refusals, and no more of them than it must', () => {
    const lines: [string, Record<string, unknown>, string][] = [];
    const note = (level: string) => (fields: object, message: string) =>
      void lines.push([level, fields as Record<string, unknown>, message]);
    const access = new AccessLog({
      debug: note('debug'),
      info: note('info'),
      warn: note('warn'),
      error: note('error'),
    });
    const answered = {
      id: '1',
      method: 'POST',
      route: '/notifications',
      status: 202,
      ms: 3.4,
      principal: 'orders',
    };
    access.note(answered);
    access.note({ ...answered, ms: 9.6 });
    for (let n = 0; n < 500; n += 1) access.note({ ...answered, status: 400, route: undefined });
    const at = (level: string, message: string) => lines.filter(([l, , m]) => l === level && m === message);
    expect(at('info', 'request')).toHaveLength(100);
    expect(at('debug', 'request')).toHaveLength(402);
    access.summarise();
    expect(at('info', 'requests').map(([, fields]) => fields)).toEqual([
      {
        requests: [
          { what: 'POST /notifications 202', count: 2, maxMs: 10 },
          { what: 'POST (none) 400', count: 500, maxMs: 3 },
        ],
      },
    ]);
    access.close();
    expect(at('info', 'requests')).toHaveLength(1);
  });
});
