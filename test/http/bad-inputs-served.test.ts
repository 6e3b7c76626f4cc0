/**
 * Bad requests, line by line, against the program itself and as bytes: what is answered, that it quotes nothing, that no row
 * is left, and that the process still serves. At a limit, one past it, far past it. The lists go on where
 * bad-inputs.test.ts (in one process, by field) stops: what no client library would send.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startCli } from '../support/cli.js';
import type { StartedProcess } from '../support/processes.js';
import { type FreshDatabase, freshMigratedDatabase } from '../support/services.js';
import { rawPost } from './shim-world.js';

let database: FreshDatabase;
let folder: string;
let program: StartedProcess;
let port: number;
let url: string;
/** Begun at once and looked at in the end: their time runs while the others are tried. */
let slow: Promise<readonly Heard[]>;

beforeAll(async () => {
  database = await freshMigratedDatabase();
  folder = mkdtempSync(join(tmpdir(), 'unbroker-bad-inputs-'));
  writeFileSync(join(folder, 'unbroker.config.json'), '{"serve":{"kinds":["team.a"]}}');
  program = startCli(['serve', '--port', '0'], {
    cwd: folder,
    env: { DATABASE_URL: database.url, UNBROKER_LOG_LEVEL: 'warn' },
  });
  [, url = ''] = await program.waitFor(/^unbroker listening on (http:\S+)$/m, 60_000);
  port = Number(new URL(url).port);
  slow = Promise.all([
    drip('POST /notifications HTTP/1.1\r\nhost: localhost\r\nx-slow: '),
    drip('GET /'),
    drip(''),
    drip(`POST /notifications HTTP/1.1\r\n${'x: 1\r\n'.repeat(50)}`),
  ]);
});
afterAll(async () => {
  await program?.kill();
  await database?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Answers follow each other without a line break. */
const STATUS = /HTTP\/1\.1 (\d{3}) /g;

interface Heard {
  readonly statuses: readonly number[];
  readonly text: string;
  readonly closed: boolean;
  readonly ms: number;
}

interface Listen {
  /** Resolve after so many answers. */
  readonly answers?: number;
  readonly untilClosed?: boolean;
  readonly halfClose?: boolean;
  readonly maxMs?: number;
}

/** Sends the bytes and hears what comes back: so many answers, or all until the connection ends. */
function say(bytes: string | Buffer, listen: Listen = {}): Promise<Heard> {
  const { answers = 1, untilClosed = false, halfClose = false, maxMs = 60_000 } = listen;
  const startedAt = performance.now();
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  let text = '';
  return new Promise((resolve) => {
    const end = (closed: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      const statuses = [...text.matchAll(STATUS)].map(([, status]) => Number(status));
      resolve({ statuses, text, closed, ms: performance.now() - startedAt });
    };
    const timer = setTimeout(() => end(false), maxMs);
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      text += chunk;
      if (!untilClosed && wholeAnswers(text) >= answers) end(false);
    });
    for (const event of ['end', 'close', 'error'] as const) socket.on(event, () => end(true));
    const content = typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes;
    if (halfClose) socket.end(content);
    else socket.write(content);
  });
}

/** How many answers are there with all of their body. */
function wholeAnswers(text: string): number {
  let count = 0;
  let at = 0;
  for (;;) {
    const end = text.indexOf('\r\n\r\n', at);
    if (end === -1) return count;
    const head = text.slice(at, end);
    const length = Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? 0);
    at = end + 4 + length;
    if (at > text.length) return count;
    if (!head.startsWith('HTTP/1.1 100')) count += 1;
  }
}

/** One byte a second after `start`, or nothing after nothing, until it is closed. */
function drip(start: string): Promise<Heard> {
  const startedAt = performance.now();
  const socket = connect(port, '127.0.0.1');
  let text = '';
  socket.write(start);
  const timer = setInterval(() => socket.write(start === '' ? '' : 'y'), 1_000);
  return new Promise((resolve) => {
    const end = (): void => {
      clearInterval(timer);
      socket.destroy();
      const statuses = [...text.matchAll(STATUS)].map(([, status]) => Number(status));
      resolve({ statuses, text, closed: true, ms: performance.now() - startedAt });
    };
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      text += chunk;
    });
    for (const event of ['end', 'close', 'error'] as const) socket.once(event, end);
  });
}

async function rowCount(): Promise<number> {
  const { rows } = await database.pool.query<{ n: number }>('select count(*)::int as n from unbroker.jobs');
  return rows[0]?.n ?? -1;
}

/** In every request here; in no answer that refuses one. */
const MARK = 'zq7mark';
const MAIL = `{"to":"${MARK}@example.org","body":"x"}`;
const withData = (data: string): string => `{"to":"${MARK}@example.org","body":"x","data":${data}}`;
const HOST = 'host: localhost\r\n';
const TYPE = 'content-type: application/json\r\n';
const LENGTH = `content-length: ${MAIL.length}\r\n`;
const LINE = 'POST /notifications HTTP/1.1\r\n';
const GOOD = `${LINE}${HOST}${TYPE}${LENGTH}\r\n${MAIL}`;
const post = (body: string | Buffer, headers: Record<string, string> = {}): Buffer =>
  rawPost('/notifications', body, headers);
/** The good one with these header lines instead of type and length. */
const headed = (lines: string, body = MAIL): string => `${LINE}${HOST}${lines}\r\n${body}`;
const chunked = (body: string): string => headed(`${TYPE}transfer-encoding: chunked\r\n`, body);
const CHUNK = `${MAIL.length.toString(16)}\r\n${MAIL}\r\n`;
const get = (path: string, lines = HOST): string => `GET ${path} HTTP/1.1\r\n${lines}\r\n`;
const many = (count: number, line = (n: number): string => `x-${n}: 1\r\n`): string =>
  Array.from({ length: count }, (_, n) => line(n)).join('');

/** What is sent; the statuses of its answers; what else. */
interface Expected extends Listen {
  /** Default 0 for what is refused. */
  readonly stored?: number;
  /** The stored payload holds it. */
  readonly kept?: string;
}
type Case = readonly [
  name: string,
  bytes: string | Buffer,
  statuses: number | readonly number[],
  more?: Expected,
];

function walk(cases: readonly Case[]): void {
  for (const [name, bytes, expected, more = {}] of cases) it(name, () => tried(bytes, expected, more));
}

async function tried(bytes: string | Buffer, expected: number | readonly number[], more: Expected) {
  const statuses = typeof expected === 'number' ? [expected] : expected;
  const before = await rowCount();
  const heard = await say(bytes, { answers: statuses.length, ...more });
  expect(heard.statuses).toEqual(statuses);
  if (more.untilClosed) expect(heard.closed).toBe(true);
  const accepted = statuses.filter((status) => status === 202 || status === 201).length;
  expect((await rowCount()) - before).toBe(more.stored ?? accepted);
  const refusals = statuses.filter((status) => status >= 400).length;
  expect(heard.text.match(/^content-type: application\/problem\+json/gim) ?? []).toHaveLength(refusals);
  if (refusals === statuses.length) expect(heard.text).not.toContain(MARK);
  if (more.kept !== undefined) {
    const { rows } = await database.pool.query<{ text: string }>(
      'select payload::text as text from unbroker.jobs order by id desc limit 1',
    );
    expect(rows[0]?.text).toContain(more.kept);
  }
  expect(program.running).toBe(true);
  expect((await fetch(`${url}/livez`)).status).toBe(200);
}

const CLOSED = { untilClosed: true } as const;
const MIB = 1_048_576;
const padded = (bytes: number): string =>
  withData(`{"a":"${'x'.repeat(bytes - withData('{"a":""}').length)}"}`);
const nested = (depth: number): string =>
  withData(`${'['.repeat(depth - 1)}1${']'.repeat(depth - 1)}`.replace(/^\[(.*)\]$/, '{"a":$1}'));
const keyed = (count: number): string =>
  withData(`{${many(count - 3, (n) => `${n === 0 ? '' : ','}"${MARK}${n}":0`)}}`);

describe('A. bodies', () => {
  walk([
    ['empty body', post(''), 400],
    ['empty body in chunks', chunked('0\r\n\r\n'), 400],
    ['null', post('null'), 400],
    ['an array', post(`["${MARK}"]`), 400],
    ['a number', post('17'), 400],
    ['a string', post(`"${MARK}"`), 400],
    ['truncated JSON', post(MAIL.slice(0, -1)), 400],
    ['trailing garbage', post(`${MAIL}x`), 400],
    ['trailing NUL', post(`${MAIL}\0`), 400],
    ['one UTF-8 byte order mark', post(`\ufeff${MAIL}`), 202],
    ['two byte order marks', post(`\ufeff\ufeff${MAIL}`), 400],
    [
      'invalid UTF-8',
      post(Buffer.concat([Buffer.from(`{"to":"${MARK}`), Buffer.from([0xc3, 0x28]), Buffer.from('"}')])),
      400,
    ],
    [
      'UTF-8 cut off within a character',
      post(Buffer.concat([Buffer.from(`{"to":"${MARK}`), Buffer.from([0xf0, 0x9f, 0x98])])),
      400,
    ],
    ['UTF-16', post(Buffer.from(`\ufeff${MAIL}`, 'utf16le')), 415],
    ['UTF-32', post(Buffer.concat([Buffer.from([0xff, 0xfe, 0, 0]), Buffer.alloc(40)])), 415],
    ['no Content-Type', headed(LENGTH), 415],
    ['text/plain', post(MAIL, { 'content-type': 'text/plain' }), 415],
    ['application/jsonp', post(MAIL, { 'content-type': 'application/jsonp' }), 415],
    ['two media types in one header', post(MAIL, { 'content-type': 'application/json, text/plain' }), 415],
    ['two Content-Type headers', headed(`${TYPE}content-type: text/plain\r\n${LENGTH}`), 400],
    ['charset utf-8, quoted', post(MAIL, { 'content-type': 'application/json; charset="UTF-8"' }), 202],
    ['charset iso-8859-1', post(MAIL, { 'content-type': 'application/json;charset=iso-8859-1' }), 415],
    [
      'charset utf-8 and then utf-16',
      post(MAIL, { 'content-type': 'application/json; charset=utf-8; charset=utf-16' }),
      415,
    ],
    ['charset utf-16 with spaces', post(MAIL, { 'content-type': 'application/json; charset = utf-16' }), 415],
    ['a bomb in gzip', post(gzipSync(Buffer.alloc(50_000_000, 0x20)), { 'content-encoding': 'gzip' }), 415],
    [
      'identity and then gzip',
      headed(`${TYPE}content-encoding: identity\r\ncontent-encoding: gzip\r\n${LENGTH}`),
      400,
    ],
    ['a body of the limit', post(padded(MIB)), 202],
    ['a body of the limit and one', post(padded(MIB + 1)), 413, CLOSED],
    ['a body of a gigabyte, announced', post(MAIL, { 'content-length': '1000000000' }), 413, CLOSED],
    ['a body of 2^63 bytes, announced', post(MAIL, { 'content-length': '9223372036854775808' }), 413, CLOSED],
    [
      'chunks of the limit and one',
      chunked(`${(MIB + 1).toString(16)}\r\n${'x'.repeat(MIB + 1)}\r\n0\r\n\r\n`),
      413,
      CLOSED,
    ],
    ['a chunk of 2^68 bytes, announced', chunked(`fffffffffffffffff\r\n${MAIL}`), 400, CLOSED],
    ['nesting of 64', post(nested(64)), 202],
    ['nesting of 65', post(nested(65)), 400],
    ['nesting of 200,000', post(nested(200_000)), 400],
    ['nesting that is never closed', post('['.repeat(200_000)), 400],
    ['10,000 keys', post(keyed(10_000)), 202],
    ['10,001 keys', post(keyed(10_001)), 400],
    ['60,000 keys', post(keyed(60_000)), 400],
    ['__proto__', post(withData(`{"__proto__":{"${MARK}":1}}`)), 400],
    ['__proto__ as a field', post(`{"__proto__":{"to":"${MARK}@example.org"}}`), 400],
    ['constructor.prototype', post(withData('{"constructor":{"prototype":1}}')), 400],
    [
      'toString and hasOwnProperty are data',
      post(withData('{"toString":1,"hasOwnProperty":2}')),
      202,
      { kept: '"hasOwnProperty": 2' },
    ],
    ['a key twice', post(withData(`{"${MARK}":1,"${MARK}":2}`)), 400],
    ...['state', 'attempts', 'id', 'lease_token', 'kind', MARK].map(
      (name): Case => [`the field ${name}`, post(`{"to":"a@example.org","body":"x","${name}":1}`), 400],
    ),
    ['an unknown kind', rawPost('/schedules', `{"delayMs":1,"target":{"kind":"${MARK}"}}`), 422],
    [
      'a batch with bad items: each is named, the good are stored',
      rawPost('/notifications/batch', `{"notifications":[${MAIL},17,${MAIL},{"to":""}]}`),
      202,
      { stored: 2 },
    ],
    [
      'a batch of 100',
      rawPost('/notifications/batch', `{"notifications":[${Array(100).fill(MAIL)}]}`),
      202,
      { stored: 100 },
    ],
    ['a batch of 101', rawPost('/notifications/batch', `{"notifications":[${Array(101).fill(MAIL)}]}`), 400],
    [
      'a batch of 10,000',
      rawPost('/notifications/batch', `{"notifications":[${Array(10_000).fill(MAIL)}]}`),
      400,
    ],
  ]);
});

describe('A. how a body is framed', () => {
  walk([
    [
      'Content-Length beside Transfer-Encoding',
      headed(`${TYPE}${LENGTH}transfer-encoding: chunked\r\n`, `${CHUNK}0\r\n\r\n`),
      400,
      CLOSED,
    ],
    ['Content-Length twice, the same', headed(`${TYPE}${LENGTH}${LENGTH}`), 400, CLOSED],
    [
      'Content-Length as a list',
      headed(`${TYPE}content-length: ${MAIL.length}, ${MAIL.length}\r\n`),
      400,
      CLOSED,
    ],
    ...['+5', '-1', '0x23', '1e2', '', '5.0', '18446744073709551616'].map(
      (length): Case => [
        `Content-Length ${length || '(empty)'}`,
        headed(`${TYPE}content-length: ${length}\r\n`),
        400,
        CLOSED,
      ],
    ),
    ['Content-Length on a folded line', headed(`${TYPE}content-length:\r\n ${MAIL.length}\r\n`), 400, CLOSED],
    ['a folded header', headed(`${TYPE}x-a: b\r\n c\r\n${LENGTH}`), 400, CLOSED],
    ...['chunked, chunked', 'gzip, chunked', 'chunked, gzip', 'identity', 'xchunked', '\vchunked'].map(
      (coding): Case => [
        `Transfer-Encoding ${JSON.stringify(coding)}`,
        headed(`${TYPE}transfer-encoding: ${coding}\r\n`, `${CHUNK}0\r\n\r\n`),
        400,
        CLOSED,
      ],
    ),
    [
      'Transfer-Encoding with a space before its colon',
      headed(`${TYPE}transfer-encoding : chunked\r\n`, `${CHUNK}0\r\n\r\n`),
      400,
      CLOSED,
    ],
    [
      'chunks, whatever the case of the word',
      headed(`${TYPE}Transfer-Encoding: CHUNKED\r\n`, `${CHUNK}0\r\n\r\n`),
      202,
    ],
    ['a chunk extension', chunked(`${CHUNK.replace('\r\n', `;${MARK}=1\r\n`)}0\r\n\r\n`), 202],
    [
      'a chunk extension of 20 KB',
      chunked(CHUNK.replace('\r\n', `;${MARK}=${'y'.repeat(20_000)}\r\n`)),
      400,
      CLOSED,
    ],
    ['a chunk size that is none', chunked(`zz\r\n${MAIL}`), 400, CLOSED],
    ['a chunk longer than its size', chunked(`5\r\n${MAIL}\r\n0\r\n\r\n`), 400, CLOSED],
    [
      'chunks that end in bare line feeds',
      chunked(`${MAIL.length.toString(16)}\n${MAIL}\n0\n\n`),
      400,
      CLOSED,
    ],
    ['a trailer', chunked(`${CHUNK}0\r\nx-${MARK}: 1\r\n\r\n`), 202],
    ['Content-Length as a trailer', chunked(`${CHUNK}0\r\ncontent-length: 5\r\n\r\n`), 400, CLOSED],
    ['trailers of 20 KB', chunked(`${CHUNK}0\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`), 431, CLOSED],
    [
      'a body that ends before its length, half closed',
      headed(`${TYPE}content-length: 500\r\n`),
      400,
      { halfClose: true },
    ],
    ['chunks that end before the last, half closed', chunked(CHUNK), 400, { halfClose: true }],
    [
      'a body longer than its length',
      headed(`${TYPE}content-length: 2\r\n`, `{}${MARK}\r\n\r\n`),
      [400, 400],
      CLOSED,
    ],
  ]);
});

describe('A. request line and headers', () => {
  walk([
    ['16 KB of headers', headed(`${TYPE}${LENGTH}x: ${'y'.repeat(16_000)}\r\n`), 202],
    ['17 KB of headers', headed(`${TYPE}${LENGTH}x: ${MARK}${'y'.repeat(17_408)}\r\n`), 431, CLOSED],
    ['a megabyte of headers', headed(`${TYPE}${LENGTH}x: ${MARK}${'y'.repeat(MIB)}\r\n`), 431, CLOSED],
    ['100 headers', headed(`${TYPE}${LENGTH}${many(97)}`), 202],
    ['101 headers', headed(`${TYPE}${LENGTH}${many(98)}`), 431],
    ['1,900 headers', headed(`${TYPE}${LENGTH}${many(1_897, () => 'x:1\r\n')}`), 431],
    ['HTTP/1.0', GOOD.replace('HTTP/1.1', 'HTTP/1.0'), 400],
    ['HTTP/1.2', GOOD.replace('HTTP/1.1', 'HTTP/1.2'), 400, CLOSED],
    ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, CLOSED],
    [
      'a TLS hello',
      Buffer.concat([Buffer.from('1603010200010001fc0303', 'hex'), Buffer.alloc(500, 1)]),
      400,
      CLOSED,
    ],
    ['not HTTP', `${MARK}\r\n\r\n`, 400, CLOSED],
    ['a method that there is not', get('/notifications').replace('GET', 'TEA'), 400, CLOSED],
    ['a method in lower case', GOOD.replace('POST', 'post'), 400, CLOSED],
    ['TRACE', get('/notifications').replace('GET', 'TRACE'), 404],
    ['OPTIONS *', get('*').replace('GET', 'OPTIONS'), 400],
    ['an absolute URI', GOOD.replace(' /', ' http://localhost/'), 400],
    ['no Host', GOOD.replace(HOST, ''), 400],
    ['two Hosts', GOOD.replace(HOST, `${HOST}host: ${MARK}.example\r\n`), 400],
    ['a Host of somebody else', GOOD.replace('localhost', `${MARK}.example`), 403],
    ['a Host that only starts like ours', GOOD.replace('localhost', '127.0.0.1.example'), 403],
    ['a Host with a user', GOOD.replace('localhost', `localhost@${MARK}`), 403],
    ['a bare carriage return in a header', headed(`${TYPE}${LENGTH}x: a\rb\r\n`), 400, CLOSED],
    ['a NUL in a header', headed(`${TYPE}${LENGTH}x: a\0b\r\n`), 400, CLOSED],
    ['lines that end in bare line feeds', GOOD.replaceAll('\r\n', '\n'), 400, CLOSED],
    ['a header without a colon', headed(`${TYPE}${LENGTH}${MARK}\r\n`), 400, CLOSED],
    ['a header with bytes above ASCII', headed(`${TYPE}${LENGTH}x: caf\xe9\r\n`), 202],
    [
      'Authorization twice',
      headed(`${TYPE}${LENGTH}authorization: Bearer a\r\nauthorization: Bearer b\r\n`),
      400,
    ],
    ['an Upgrade is not followed', headed(`${TYPE}${LENGTH}connection: upgrade\r\nupgrade: h2c\r\n`), 202],
    ['Expect of something else', headed(`${TYPE}${LENGTH}expect: tea\r\n`), 417, CLOSED],
    ['an Idempotency-Key of 255', post(MAIL, { 'idempotency-key': 'k'.repeat(255) }), 202],
    ['an Idempotency-Key of 256', post(MAIL, { 'idempotency-key': 'k'.repeat(256) }), 400],
    ['an Idempotency-Key of 10 KB', post(MAIL, { 'idempotency-key': MARK.repeat(1_460) }), 400],
    ['an empty Idempotency-Key', post(MAIL, { 'idempotency-key': '' }), 400],
    [
      'an Idempotency-Key with bytes above ASCII',
      headed(`${TYPE}${LENGTH}idempotency-key: caf\xe9\r\n`),
      400,
    ],
    ['two Idempotency-Keys', headed(`${TYPE}${LENGTH}idempotency-key: a\r\nidempotency-key: a\r\n`), 400],
    ...[
      '/%2e%2e/notifications',
      '/notifications/%00',
      '/notifications/%252e',
      '//notifications',
      '/notifications/%zz',
      `/${MARK}`,
    ].map((path): Case => [`path ${path}`, get(path), 404]),
    ['a line break in a path', get('/notifications/a%0d%0ab'), 404],
    ['a fragment', get('/notifications#x'), 400],
    ['a space in a path', get('/notifications/a b'), 400, CLOSED],
    ['bytes above ASCII in a path', get('/notifications/\xe9'), 400, CLOSED],
    ['a parameter of 601', get(`/notifications/${'x'.repeat(601)}`), 404],
    ['a target of 8,000', get(`/notifications?reference=${'x'.repeat(8_000 - 25)}`), 200],
    ['a target of 8,001', get(`/notifications?reference=${'x'.repeat(8_001 - 25)}`), 414],
    ['a target of 15,000', get(`/notifications?reference=${MARK}${'x'.repeat(15_000)}`), 414],
    ['a query of 1,500 names', get(`/notifications?${many(1_500, (n) => `a${n}&`)}`), 400],
    ['a name twice in a query', get('/notifications?limit=1&limit=2'), 400],
    ['half a surrogate pair in a query', get('/notifications?tag=%ed%a0%80'), 400],
    ['a body for a list is not read', headed(`${TYPE}${LENGTH}`).replace('POST', 'GET'), 200],
    ['2 MB of body for a list', get('/notifications', `${HOST}content-length: 2000000\r\n`), 413, CLOSED],
  ]);

  it('a name in Location is never the Host', async () => {
    const heard = await say(GOOD.replace('localhost', 'LOCALHOST:1'));
    expect(heard.text).toMatch(/^location: \/notifications\/\d+\r$/im);
  });
});

describe('A. several requests on one connection', () => {
  const BAD = GOOD.replace('"to"', '"tx"');
  walk([
    ['two good ones', GOOD + GOOD, [202, 202]],
    ['a refused one and a good one', BAD + GOOD, [400, 202]],
    [
      'nothing is done behind an answer that closes the connection',
      GOOD.replace('application/json', 'text/plain') + GOOD,
      415,
      CLOSED,
    ],
    ['nor behind a refused expectation', GOOD.replace(TYPE, `${TYPE}expect: tea\r\n`) + GOOD, 417, CLOSED],
    [
      'nor behind a request to close it',
      GOOD.replace(TYPE, `${TYPE}connection: close\r\n`) + GOOD,
      202,
      CLOSED,
    ],
    ['a good one before what is no request is answered', `${GOOD}${MARK}\r\n\r\n`, [202, 400], CLOSED],
    ['a cancellation behind what it cancels sees it', `${GOOD}${get('/notifications?limit=1')}`, [202, 200]],
    ['33 at once', GOOD.repeat(33), Array.from({ length: 33 }, () => 202)],
    ['more than that: cut off behind them', GOOD.repeat(200), Array.from({ length: 33 }, () => 202), CLOSED],
  ]);
});

describe('E. numbers and text', () => {
  const number = (text: string): Buffer => post(withData(`{"n":${text}}`));
  walk([
    ['9007199254740993', number('9007199254740993'), 202, { kept: '"n": 9007199254740993' }],
    ['0.1+0.2', number('0.30000000000000004'), 202, { kept: '"n": 0.30000000000000004' }],
    ['1e400', number('1e400'), 202, { kept: `"n": 1${'0'.repeat(400)}` }],
    ['1.10 keeps its zero', number('1.10'), 202, { kept: '"n": 1.10' }],
    ['1e131071, the last that fits', number('1e131071'), 202],
    ['1e131072', number('1e131072'), 422],
    ['1e999999999', number('1e999999999'), 422],
    ['131,072 digits', number('9'.repeat(131_072)), 202],
    ['131,073 digits', number('9'.repeat(131_073)), 422],
    ['1e-16383, the last that fits', number('1e-16383'), 202],
    ['1e-16384', number('1e-16384'), 422],
    ['-0', number('-0'), 422],
    ['-0.0e5', number('-0.0e5'), 422],
    ...['NaN', 'Infinity', '-Infinity', '01', '+1', '.5', '1.', '0x1F', '1_000', '1n'].map(
      (text): Case => [text, number(text), 400],
    ),
    ['\\u0000', post(withData(`{"a":"${MARK}\\u0000"}`)), 422],
    ['\\u0000 in a key', post(withData(`{"${MARK}\\u0000":1}`)), 422],
    ['a bare NUL', post(withData('{"a":"\0"}')), 400],
    ['half a surrogate pair', post(withData('{"a":"\\ud83d"}')), 422],
    ['the other half', post(withData('{"a":"\\ude00"}')), 422],
    ['a whole pair', post(withData('{"a":"\\ud83d\\ude00"}')), 202, { kept: '\u{1f600}' }],
    [
      'NFC and NFD are two keys',
      post(withData('{"caf\u00e9":1,"cafe\u0301":2}')),
      202,
      { kept: 'cafe\u0301' },
    ],
  ]);
});

it('clients that send a byte a second are closed within 10 s, and told why where they asked something', async () => {
  const heard = await slow;
  // Ten on a machine with nothing else to do; the connection would else stay for ever.
  for (const { ms } of heard) expect(ms).toBeLessThan(60_000);
  expect(heard.map(({ statuses }) => statuses)).toEqual([[408], [408], [408], [408]]);
}, 180_000);
