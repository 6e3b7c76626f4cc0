/** Every bad HTTP request gets the listed answer, leaves no row, and leaves the server standing. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SERVER_LIMITS } from '../../src/shims/request-rules.js';
import { NOTIFY, rawPost, type ShimWorld, sendRaw, startShimWorld } from './shim-world.js';

let world: ShimWorld;

beforeAll(async () => {
  world = await startShimWorld({ serve: { targets: { 'queue:emails': 'team.email' } } });
});
afterAll(() => world.close());

const GOOD = { to: 'ann@example.org', template: 'order-paid', data: { orderId: 1, total: '5.00' } };

/** A notification whose data is this JSON text. */
const withData = (data: string): string => `{"to":"ann@example.org","template":"order-paid","data":${data}}`;

async function post(path: string, body: string | Buffer, headers: Record<string, string> = {}) {
  return sendRaw(world.port, [rawPost(path, body, headers)]);
}

/** The answer, that nothing was stored, and that a good request still works. */
async function refused(
  status: number,
  send: () => Promise<{ status: number; body: string }>,
  secret?: string,
) {
  const before = await world.jobCount();
  const answer = await send();
  expect(answer.status).toBe(status);
  expect(await world.jobCount()).toBe(before);
  if (secret !== undefined) expect(answer.body).not.toContain(secret);
  expect((await fetch(`${world.url}/livez`)).status).toBe(200);
  return answer;
}

describe('bodies that are not a JSON object', () => {
  const cases: readonly [string, number, string | Buffer, Record<string, string>?][] = [
    ['empty', 400, ''],
    ['white space', 400, ' \n'],
    ['null', 400, 'null'],
    ['an array', 400, '[]'],
    ['a number', 400, '17'],
    ['a string', 400, '"x"'],
    ['truncated', 400, JSON.stringify(GOOD).slice(0, -1)],
    ['truncated in a string', 400, '{"to":"an'],
    ['trailing garbage', 400, `${JSON.stringify(GOOD)}x`],
    ['two objects', 400, `${JSON.stringify(GOOD)}{}`],
    ['a trailing comma', 400, '{"to":"ann@example.org",}'],
    ['single quotes', 400, "{'to':'ann@example.org'}"],
    ['a comment', 400, `/* x */${JSON.stringify(GOOD)}`],
    ['a bare control character in a string', 400, '{"to":"a\u0001"}'],
    ['a bad escape', 400, '{"to":"\\x41"}'],
    ['two byte order marks', 400, Buffer.from(`\ufeff\ufeff${JSON.stringify(GOOD)}`)],
    [
      'invalid UTF-8',
      400,
      Buffer.concat([Buffer.from('{"to":"'), Buffer.from([0xff, 0xc3]), Buffer.from('"}')]),
    ],
    [
      'an overlong UTF-8 form',
      400,
      Buffer.concat([Buffer.from('{"to":"'), Buffer.from([0xc0, 0xae]), Buffer.from('"}')]),
    ],
    [
      'a surrogate as UTF-8',
      400,
      Buffer.concat([Buffer.from('{"to":"'), Buffer.from([0xed, 0xa0, 0x80]), Buffer.from('"}')]),
    ],
    [
      'UTF-16 with a mark',
      415,
      Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(JSON.stringify(GOOD), 'utf16le')]),
    ],
    ['UTF-16 without one', 415, Buffer.from(JSON.stringify(GOOD), 'utf16le')],
    [
      'UTF-16 by its charset',
      415,
      JSON.stringify(GOOD),
      { 'content-type': 'application/json; charset=utf-16' },
    ],
    ['text/plain', 415, JSON.stringify(GOOD), { 'content-type': 'text/plain' }],
    ['a form', 415, 'to=ann', { 'content-type': 'application/x-www-form-urlencoded' }],
    ['an empty content type', 415, JSON.stringify(GOOD), { 'content-type': '' }],
    ['a compressed body', 415, JSON.stringify(GOOD), { 'content-encoding': 'gzip' }],
  ];
  it.each(cases)('%s: %d', async (_name, status, body, headers) => {
    await refused(status, () => post('/notifications', body, headers));
  });

  it('no content type at all: 415', async () => {
    const body = JSON.stringify(GOOD);
    await refused(415, () =>
      sendRaw(world.port, [
        `POST /notifications HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
      ]),
    );
  });

  it('one byte order mark is taken off', async () => {
    const answer = await post('/notifications', Buffer.from(`\ufeff${JSON.stringify(GOOD)}`));
    expect(answer.status).toBe(202);
  });
});

describe('sizes', () => {
  const padded = (bytes: number): string => {
    const shell = withData('{"orderId":1,"total":""}').length;
    return withData(`{"orderId":1,"total":"${'x'.repeat(bytes - shell)}"}`);
  };

  it('a body of exactly the limit is taken', async () => {
    const body = padded(SERVER_LIMITS.bodyBytes);
    expect(Buffer.byteLength(body)).toBe(SERVER_LIMITS.bodyBytes);
    expect((await post('/notifications', body)).status).toBe(202);
  });

  it('one byte more: 413 before it is read, connection closed', async () => {
    await refused(413, async () => {
      const answer = await sendRaw(
        world.port,
        [rawPost('/notifications', padded(SERVER_LIMITS.bodyBytes + 1))],
        { untilClosed: true },
      );
      expect(answer.closed).toBe(true);
      return answer;
    });
  });

  it('a gigabyte announced: 413 and closed without waiting for it', async () => {
    await refused(413, async () => {
      const head = rawPost('/notifications', '', { 'content-length': '1000000000' });
      const answer = await sendRaw(world.port, [head, Buffer.alloc(65_536, 'x')], { untilClosed: true });
      expect(answer.closed).toBe(true);
      return answer;
    });
  });

  it('chunks without end: 413, closed, not read on', async () => {
    const chunk = Buffer.alloc(65_536, 'x');
    const frame = Buffer.concat([
      Buffer.from(`${chunk.length.toString(16)}\r\n`),
      chunk,
      Buffer.from('\r\n'),
    ]);
    const head =
      'POST /notifications HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n';
    await refused(413, async () => {
      const answer = await sendRaw(world.port, [head, ...Array.from({ length: 160 }, () => frame)], {
        untilClosed: true,
      });
      expect(answer.closed).toBe(true);
      return answer;
    });
  });

  it('a fetch of too large a body sees the answer, not a reset', async () => {
    const response = await fetch(`${world.url}/notifications`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: padded(SERVER_LIMITS.bodyBytes + 1_000_000),
    });
    expect(response.status).toBe(413);
    await response.text();
  });

  const nested = (depth: number): string => withData(`${'{"a":'.repeat(depth - 1)}1${'}'.repeat(depth - 1)}`);
  it('64 levels are taken, 65 and 200,000 are not', async () => {
    expect((await post('/notifications', nested(64))).status).toBe(202);
    await refused(400, () => post('/notifications', nested(65)));
    await refused(400, () => post('/notifications', '['.repeat(200_000)));
    await refused(400, () => post('/notifications', withData('['.repeat(200_000) + ']'.repeat(200_000))));
  });

  const keys = (count: number): string => {
    // to, template and data are keys, too.
    const members = Array.from({ length: count - 3 }, (_, n) => `"k${n}":${n}`);
    return withData(`{${members.join(',')}}`);
  };
  it('10,000 keys are taken, 10,001 are not', async () => {
    expect((await post('/notifications', keys(10_000))).status).toBe(202);
    await refused(400, () => post('/notifications', keys(10_001)));
  });
});

describe('keys', () => {
  it.each([
    ['__proto__', '{"__proto__":{"admin":true}}'],
    ['an escaped __proto__', '{"\\u005f_proto__":{}}'],
    ['a deep __proto__', '{"a":[{"__proto__":1}]}'],
    ['constructor.prototype', '{"constructor":{"prototype":{"x":1}}}'],
    ['a dotted constructor.prototype', '{"constructor.prototype":1}'],
    ['a key twice', '{"a":1,"a":2}'],
    ['a key twice, once escaped', '{"a":1,"\\u0061":2}'],
  ])('%s: 400', async (_name, data) => {
    await refused(400, () => post('/notifications', withData(data)));
  });

  it('a field twice: 400, whichever another parser would have taken', async () => {
    await refused(400, () =>
      post('/notifications', '{"to":"ann@example.org","to":"eve@example.org","template":"order-paid"}'),
    );
  });

  it('names of Object.prototype are data', async () => {
    const answer = await post(
      '/notifications',
      withData('{"toString":1,"hasOwnProperty":2,"constructor":3,"valueOf":null}'),
    );
    expect(answer.status).toBe(202);
    const { id } = JSON.parse(answer.body) as { id: string };
    expect(JSON.parse(await world.payloadText(id))).toMatchObject({
      data: { toString: 1, hasOwnProperty: 2, constructor: 3 },
    });
    expect((await fetch(`${world.url}/notifications/${id}`)).status).toBe(200);
  });

  it.each(['state', 'attempts', 'id', 'lease_token', 'kind', 'run_at', 'toString', '__defineGetter__'])(
    'an unknown field %s: 400',
    async (name) => {
      await refused(
        400,
        () => post('/notifications', JSON.stringify({ ...GOOD, [name]: 'running-secret' })),
        'running-secret',
      );
      await refused(400, () =>
        post('/schedules', JSON.stringify({ delayMs: 1, target: { url: 'http://127.0.0.1:9/' }, [name]: 1 })),
      );
      await refused(400, () =>
        post('/retries', JSON.stringify({ payload: 1, target: { url: 'http://127.0.0.1:9/' }, [name]: 1 })),
      );
    },
  );

  it('keys that only look alike are two keys', async () => {
    const answer = await post('/notifications', withData('{"caf\u00e9":1,"cafe\u0301":2}'));
    expect(answer.status).toBe(202);
    const { data } = JSON.parse(await world.payloadText((JSON.parse(answer.body) as { id: string }).id)) as {
      data: object;
    };
    expect(Object.keys(data)).toHaveLength(2);
  });
});

describe('numbers and text', () => {
  it.each([
    ['9007199254740993', '9007199254740993'],
    ['-9007199254740993', '-9007199254740993'],
    ['12345678901234567890.12345678901234567890', '12345678901234567890.12345678901234567890'],
    ['0.1', '0.1'],
    ['0.30000000000000004', '0.30000000000000004'],
    ['1.10', '1.10'],
    ['1e400', `1${'0'.repeat(400)}`],
    ['1E-7', '0.0000001'],
    ['0', '0'],
  ])('%s is kept exactly', async (number, kept) => {
    const answer = await post('/notifications', withData(`{"orderId":${number},"total":"1"}`));
    expect(answer.status).toBe(202);
    const { id } = JSON.parse(answer.body) as { id: string };
    expect(await world.payloadText(id)).toContain(`"orderId": ${kept}`);
  });

  it.each(['-0', '-0.0', '-0e5', '1e131072', '1e-16384', '1e999999999', '1e-999999999'])(
    '%s cannot be kept exactly: 422',
    async (number) => {
      await refused(422, () => post('/notifications', withData(`{"a":${number}}`)));
    },
  );

  it('many small texts of huge numbers: 422, they would fill the memory on the way out', async () => {
    await refused(422, () =>
      post('/notifications', withData(`{"a":[${Array.from({ length: 9 }, () => '1e131071').join(',')}]}`)),
    );
  });

  it.each(['NaN', 'Infinity', '-Infinity', '01', '+1', '.5', '1.', '0x10', '1e', '1_000', 'undefined'])(
    '%s is no JSON: 400',
    async (text) => {
      await refused(400, () => post('/notifications', withData(`{"a":${text}}`)));
    },
  );

  it.each([
    ['NUL in a value', '{"a":"x\\u0000y"}'],
    ['NUL in a key', '{"a\\u0000":1}'],
    ['half a surrogate pair', '{"a":"\\ud800"}'],
    ['the other half', '{"a":"\\udc00x"}'],
    ['halves in the wrong order', '{"a":"\\udc00\\ud800"}'],
    ['half a pair in a key', '{"\\ud83d":1}'],
  ])('%s: 422', async (_name, data) => {
    await refused(422, () => post('/notifications', withData(data)));
  });

  it('a whole pair, escaped, is kept', async () => {
    const answer = await post('/notifications', withData('{"a":"\\ud83d\\ude00 \\\\u0000"}'));
    expect(answer.status).toBe(202);
    const { data } = JSON.parse(await world.payloadText((JSON.parse(answer.body) as { id: string }).id)) as {
      data: { a: string };
    };
    expect(data.a).toBe('\u{1f600} \\u0000');
  });
});

describe('request line and headers', () => {
  const body = JSON.stringify(GOOD);
  const head = (line: string, headers: string) =>
    `${line}\r\n${headers}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;

  it.each([
    [
      'content-length beside transfer-encoding',
      `POST /notifications HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
    ],
    [
      'two content-lengths',
      `POST /notifications HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!`,
    ],
    ['HTTP/1.0', head('POST /notifications HTTP/1.0', 'host: localhost\r\n')],
    ['an absolute URI', head('POST http://localhost/notifications HTTP/1.1', 'host: localhost\r\n')],
    ['no Host', head('POST /notifications HTTP/1.1', '')],
    [
      'a bare line feed in a header',
      head('POST /notifications HTTP/1.1', 'host: localhost\r\nx: a\nb: c\r\n'),
    ],
    ['not HTTP at all', 'hello\r\n\r\n'],
    [
      'a bad chunk',
      `POST /notifications HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n`,
    ],
  ])('%s: 400', async (_name, bytes) => {
    await refused(400, () => sendRaw(world.port, [bytes]));
  });

  it('17 KB of headers, and 200 headers: 431', async () => {
    await refused(431, () =>
      sendRaw(world.port, [
        head('POST /notifications HTTP/1.1', `host: localhost\r\nx: ${'y'.repeat(17_408)}\r\n`),
      ]),
    );
    const many = Array.from({ length: 197 }, (_, n) => `x-${n}: ${n}\r\n`).join('');
    await refused(431, () =>
      sendRaw(world.port, [head('POST /notifications HTTP/1.1', `host: localhost\r\n${many}`)]),
    );
  });

  it.each([
    '/%2e%2e/notifications',
    '/notifications/%2e%2e%2fx',
    '/notifications/..',
    '/notifications/%00',
    '/notifications/%252e',
    '//notifications',
    '/notifications//1',
    '/notifications/%zz',
    '/notifications/%ff',
    '/notifications\\1',
    '/unknown',
    '/NOTIFICATIONS',
  ])('path %s: 404', async (path) => {
    await refused(404, () => sendRaw(world.port, [`GET ${path} HTTP/1.1\r\nhost: localhost\r\n\r\n`]));
  });

  it.each([
    '/notifications?status=gone',
    '/notifications?status=toString',
    '/notifications?limit=0',
    '/notifications?limit=1e3',
    '/notifications?limit=-1',
    '/notifications?before=yesterday',
    '/notifications?before=2024-02-30',
    '/notifications?a=1',
    '/notifications?limit=1&limit=2',
    '/notifications?reference=%00',
    '/notifications?reference=%zz',
    '/schedules?status=x',
    '/dead-letters?limit=x',
  ])('query %s: 400', async (path) => {
    await refused(400, () => sendRaw(world.port, [`GET ${path} HTTP/1.1\r\nhost: localhost\r\n\r\n`]));
  });

  it.each(['1', '99999999999999999999', '9223372036854775808', '-1', '0', "1' or '1'='1", 'x'.repeat(500)])(
    'an id that is nobody: 404 (%s)',
    async (id) => {
      for (const path of ['notifications', 'schedules', 'retries']) {
        const wanted = `/${path}/${encodeURIComponent(id === '1' ? '900000' : id)}`;
        await refused(404, () => sendRaw(world.port, [`GET ${wanted} HTTP/1.1\r\nhost: localhost\r\n\r\n`]));
      }
    },
  );

  it('a body where none is taken: 400', async () => {
    await refused(400, () => post('/dead-letters/1/replay', '{}'));
  });

  it('an Idempotency-Key that could not be stored or logged: 400', async () => {
    for (const key of ['x'.repeat(256), 'a b', '"\u00e9"'])
      await refused(400, () => post('/notifications', body, { 'idempotency-key': key }));
  });

  it('a page that resolves its own name to this machine is not served', async () => {
    await refused(403, () => post('/notifications', body, { host: 'evil.example' }));
  });

  it('a wrong traceparent is left out, work is done', async () => {
    expect((await post('/notifications', body, { traceparent: 'evil\t1' })).status).toBe(202);
  });
});

describe('slow clients', () => {
  it('waits for headers 10 s at most, looked at every second', () => {
    expect(SERVER_LIMITS.headersTimeoutMs + 1_000).toBeLessThanOrEqual(10_000);
  });

  it('headers byte by byte: closed when the time is up', async () => {
    const quick = await startShimWorld({ limits: { headersTimeoutMs: 500, requestTimeoutMs: 1_000 } });
    try {
      const line = 'POST /notifications HTTP/1.1\r\nhost: localhost\r\nx-slow: ';
      const parts = [...line, ...'y'.repeat(2_000)];
      const answer = await sendRaw(quick.port, parts, { pauseMs: 20, untilClosed: true, maxMs: 60_000 });
      expect(answer.closed).toBe(true);
      expect([0, 408]).toContain(answer.status);
      expect(answer.ms).toBeLessThan(30_000);
      const slowBody = [rawPost('/notifications', '', { 'content-length': '5000' }), ...'y'.repeat(2_000)];
      const second = await sendRaw(quick.port, slowBody, { pauseMs: 20, untilClosed: true, maxMs: 60_000 });
      expect(second.closed).toBe(true);
      expect(second.ms).toBeLessThan(30_000);
    } finally {
      await quick.close();
    }
  });
});

describe('keys and Expect', () => {
  it('100-continue: a bad key is told before the body, a good one may send it', async () => {
    const key = 'k'.repeat(32);
    const closed = await startShimWorld({
      serve: {
        keys: [
          { name: 'orders', env: 'ORDERS_KEY', services: ['notification'], kinds: ['notify.*'] },
          { name: 'reader', env: 'READER_KEY', verbs: ['read'] },
          { name: 'texter', env: 'TEXTER_KEY', kinds: ['notify.sms'] },
        ],
      },
      environment: { ORDERS_KEY: key, READER_KEY: 'r'.repeat(32), TEXTER_KEY: 't'.repeat(32) },
    });
    try {
      const body = JSON.stringify(GOOD);
      const expecting = (headers: Record<string, string>) => {
        const whole = rawPost('/notifications', body, { expect: '100-continue', ...headers });
        return whole.subarray(0, whole.length - body.length);
      };
      const refusedFirst = await sendRaw(closed.port, [expecting({ authorization: 'Bearer wrong' })]);
      expect(refusedFirst.status).toBe(401);
      const tooLarge = await sendRaw(closed.port, [
        expecting({ authorization: `Bearer ${key}`, 'content-length': '2000000' }),
      ]);
      expect(tooLarge.status).toBe(413);
      const let_ = await sendRaw(closed.port, [expecting({ authorization: `Bearer ${key}` })], {
        interim: true,
      });
      expect(let_.status).toBe(100);
      const done = await sendRaw(closed.port, [expecting({ authorization: `Bearer ${key}` }), body]);
      expect(done.body).toContain('202 Accepted');
      expect(await closed.jobCount()).toBe(1);

      const post = (headers: Record<string, string>, path = '/notifications', text = body) =>
        sendRaw(closed.port, [rawPost(path, text, headers)]);
      expect((await post({})).status).toBe(401);
      expect((await post({ authorization: 'Basic abc' })).status).toBe(401);
      expect((await post({ 'x-api-key': key })).status).toBe(202);
      const schedule = JSON.stringify({ delayMs: 1, target: { url: 'http://127.0.0.1:9/' } });
      expect((await post({ authorization: `Bearer ${key}` }, '/schedules', schedule)).status).toBe(403);
      expect((await post({ authorization: `Bearer ${'r'.repeat(32)}` })).status).toBe(403);
      expect((await post({ authorization: `Bearer ${'t'.repeat(32)}` })).status).toBe(403);
      const read = await fetch(`${closed.url}/notifications/1`, {
        headers: { authorization: `Bearer ${'r'.repeat(32)}` },
      });
      expect(read.status).toBe(200);
      expect((await fetch(`${closed.url}/notifications/1`)).status).toBe(401);
      expect((await fetch(`${closed.url}/readyz`)).status).toBe(200);
      expect(await closed.jobCount()).toBe(2);
      expect(closed.lines.join('\n')).not.toContain(key);
    } finally {
      await closed.close();
    }
  });

  it('another expectation: 417', async () => {
    await refused(417, () => post('/notifications', JSON.stringify(GOOD), { expect: 'tea' }));
  });
});

describe('notifications that cannot be sent', () => {
  it.each([
    '../../etc/passwd',
    '..%2f..%2fetc',
    'no-such-template',
    'Order-Paid',
    'ORDER-PAID',
    'order-paid ',
    'order-paid/en.email.text',
    '.',
    'con\u0000',
    '__proto__',
  ])('template %s: 422', async (template) => {
    await refused(422, () => post('/notifications', JSON.stringify({ ...GOOD, template })), '/etc/passwd');
  });

  it.each([
    ['in to', { to: 'ann@example.org\r\nBcc: eve@example.org' }],
    ['in to, as a list', { to: 'ann@example.org, eve@example.org' }],
    ['in to, as a name', { to: 'Ann <ann@example.org>' }],
    ['in a reference', { reference: 'a\r\nb' }],
    ['in a value that becomes the subject', { data: { orderId: '1\r\nBcc: eve@example.org', total: '1' } }],
    ['as another line break there', { data: { orderId: '1\u2028Bcc: eve@example.org', total: '1' } }],
  ])('a header smuggled %s: 422', async (_name, change) => {
    await refused(
      422,
      () => post('/notifications', JSON.stringify({ ...GOOD, ...change })),
      'eve@example.org',
    );
  });

  it('a header smuggled in a direct subject: 422', async () => {
    await refused(
      422,
      () =>
        post(
          '/notifications',
          JSON.stringify({ to: 'ann@example.org', body: 'x', subject: 'a\r\nBcc: eve@example.org' }),
        ),
      'eve',
    );
  });

  it.each([
    { to: '' },
    { to: 17 },
    { to: null },
    { to: {} },
    { template: 17 },
    { channel: 'fax' },
    { channel: 'toString' },
    { locale: '../en' },
    { locale: 'en_GB!' },
    { data: [] },
    { data: 'x' },
    { priority: 1.5 },
    { priority: 40_000 },
    { sendAt: 'soon' },
    { sendAt: 5 },
    { delayMs: -1 },
    { delayMs: 1e300 },
    { dedupeKey: '' },
    { body: 'x' },
  ])('%j: 400', async (change) => {
    await refused(400, () => post('/notifications', JSON.stringify({ ...GOOD, ...change })));
  });

  it.each([
    'ftp://example.org/',
    'http://user:pw@example.org/',
    'javascript:alert(1)',
    'http://10.0.0.1/',
    'http://0xa9fea9fe/',
    'http://167772161/',
    'http://[::1]/',
    'http://169.254.169.254/latest/meta-data',
    'not a url',
  ])('a webhook to %s: 422', async (to) => {
    await refused(422, () =>
      post(
        '/notifications',
        JSON.stringify({
          to,
          channel: 'webhook',
          template: 'order-shipped',
          data: { orderId: 1, parcel: 'p' },
        }),
      ),
    );
  });

  it('a channel that nobody delivers: 422', async () => {
    const { email } = NOTIFY;
    const mailOnly = await startShimWorld({ notify: { ...(email === undefined ? {} : { email }) } });
    try {
      const body = JSON.stringify({ ...GOOD, channel: 'sms', to: '+15550100' });
      expect((await sendRaw(mailOnly.port, [rawPost('/notifications', body)])).status).toBe(422);
      expect(await mailOnly.jobCount()).toBe(0);
    } finally {
      await mailOnly.close();
    }
  });

  it('a batch answers each item: the good are stored, the bad are named', async () => {
    const before = await world.jobCount();
    const answer = await post(
      '/notifications/batch',
      JSON.stringify({ notifications: [GOOD, { ...GOOD, to: '' }, 17, GOOD, { ...GOOD, attempts: 1 }] }),
    );
    expect(answer.status).toBe(202);
    const { results } = JSON.parse(answer.body) as { results: { index: number; status: string }[] };
    expect(results.map(({ status }) => status)).toEqual([
      'accepted',
      'rejected',
      'rejected',
      'accepted',
      'rejected',
    ]);
    expect(await world.jobCount()).toBe(before + 2);
    await refused(400, () => post('/notifications/batch', '{"notifications":[]}'));
    await refused(400, () =>
      post(
        '/notifications/batch',
        JSON.stringify({ notifications: Array.from({ length: 101 }, () => GOOD) }),
      ),
    );
  });
});

describe('schedules and retries that cannot be kept', () => {
  const url = { url: 'http://127.0.0.1:9/hook' };
  it.each([
    [400, {}],
    [400, { target: url }],
    [400, { delayMs: -1, target: url }],
    [400, { delayMs: 0.5, target: url }],
    [400, { delayMs: 1e20, target: url }],
    [400, { delayMs: '5', target: url }],
    [400, { runAt: 'tomorrow', target: url }],
    [400, { runAt: '2024-02-30T00:00:00Z', target: url }],
    [400, { runAt: '2024-01-01T00:00:60Z', target: url }],
    [400, { runAt: 1_700_000_000, target: url }],
    [422, { cron: '*/0 * * * *', target: url }],
    [422, { cron: '60 * * * *', target: url }],
    [422, { cron: '5-1 * * * *', target: url }],
    [422, { cron: '@reboot', target: url }],
    [422, { cron: '* * * *', target: url }],
    [422, { cron: '0 0 30 2 *', target: url }],
    [422, { cron: '0 0 31 4,6 *', target: url }],
    [422, { cron: `${'1,'.repeat(999)}1 * * * *`, target: url }],
    [422, { cron: `${'1,'.repeat(4_900)}1 * * * *`, target: url }],
    [422, { cron: '* * * * *', timeZone: 'Mars/Base', target: url }],
    [422, { cron: '* * * * *', timeZone: '+02:00', target: url }],
    [400, { cron: '* * * * *', timeZone: '', target: url }],
    [422, { cron: '0 0 1 1 *', expiresAt: '2024-01-01T00:00:00Z', target: url }],
    [400, { cron: '* * * * *', runAt: '2030-01-01T00:00:00Z', target: url }],
    [400, { cron: '* * * * *', name: '17', target: url }],
    [400, { cron: '* * * * *', misfire: 'twice', target: url }],
    [400, { delayMs: 1, target: {} }],
    [400, { delayMs: 1, target: { queue: 'a', url: 'http://127.0.0.1/' } }],
    [400, { delayMs: 1, target: 'http://127.0.0.1/' }],
    [422, { delayMs: 1, target: { queue: 'nobody' } }],
    [422, { delayMs: 1, target: { exchange: 'events', routingKey: 'a.b' } }],
    [422, { delayMs: 1, target: { exchange: 'notifications', routingKey: 'other' } }],
    [422, { delayMs: 1 }],
    [422, { delayMs: 1, target: { kind: 'no.such.kind' } }],
    [422, { delayMs: 1, target: { kind: '__proto__' } }],
    [422, { delayMs: 1, target: { queue: '__proto__' } }],
    [422, { delayMs: 1, target: { url: 'http://192.168.0.1/' } }],
    [422, { delayMs: 1, target: { url: 'file:///etc/passwd' } }],
    [400, { delayMs: 1, target: { kind: 'notify.email' }, payload: { to: '' } }],
    [
      422,
      {
        delayMs: 1,
        target: { exchange: 'notifications', routingKey: 'notification.no-such.email' },
        payload: { to: 'a@b.example' },
      },
    ],
    [422, { delayMs: 1, name: 'a\nb', target: url }],
    [400, { delayMs: 1, name: 'x'.repeat(256), target: url }],
  ])('%d for schedule %j', async (status, body) => {
    await refused(status, () => post('/schedules', JSON.stringify(body)));
  });

  it.each([
    [400, {}],
    [400, { payload: 1 }],
    [400, { target: url }],
    [400, { payload: 1, target: url, attempt: -1 }],
    [400, { payload: 1, target: url, attempt: 1.5 }],
    [400, { payload: 1, target: url, policy: { type: 'random' } }],
    [400, { payload: 1, target: url, policy: { type: 'fixed', delayMs: 1 } }],
    [400, { payload: 1, target: url, policy: { type: 'fixed', delayMs: -1, maxAttempts: 3 } }],
    [400, { payload: 1, target: url, policy: { type: 'fixed', delayMs: 1, maxAttempts: 0 } }],
    [400, { payload: 1, target: url, policy: { type: 'fixed', delayMs: 1, maxAttempts: 2 ** 31 } }],
    [400, { payload: 1, target: url, policy: { type: 'ladder', delaysMs: [] } }],
    [400, { payload: 1, target: url, policy: { type: 'fixed', delayMs: 1, maxAttempts: 3, extra: 1 } }],
    [422, { payload: 1, target: { queue: 'nobody' } }],
  ])('%d for retry %j', async (status, body) => {
    await refused(status, () => post('/retries', JSON.stringify(body)));
  });

  it('a target that the config maps is served, payload untouched', async () => {
    const answer = await post(
      '/schedules',
      '{"delayMs":1,"target":{"queue":"emails"},"payload":{"n":9007199254740993}}',
    );
    expect(answer.status).toBe(201);
    expect(await world.payloadText((JSON.parse(answer.body) as { id: string }).id)).toBe(
      '{"n": 9007199254740993}',
    );
  });
});

describe('answers and logs', () => {
  it('an error is problem+json, with what old clients read, and never the input', async () => {
    const answer = await refused(
      400,
      () => post('/notifications', '{"to":"secret@example.org","hidden":"s3cr3t"}'),
      's3cr3t',
    );
    expect(JSON.parse(answer.body)).toMatchObject({
      type: 'about:blank',
      status: 400,
      code: 'unknown-field',
      error: 'unknown-field',
    });
    expect(answer.body).not.toContain('hidden');
  });

  it('log lines carry no payload, address or path parameter', async () => {
    await post(
      '/notifications',
      JSON.stringify({ ...GOOD, to: 'unseen@example.org', data: { orderId: 'hush', total: '1' } }),
    );
    await fetch(`${world.url}/notifications/a-private-key`);
    const log = world.lines.join('\n');
    expect(log).toContain('"/notifications/:id"');
    for (const secret of ['unseen@example.org', 'hush', 'a-private-key']) expect(log).not.toContain(secret);
  });
});
