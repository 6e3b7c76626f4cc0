/**
 * Templates, mail, webhooks and logs under what clients and receivers may send: through `POST /notifications`,
 * `PUT /templates`, schedules and retries, delivered by a worker to a real SMTP server and to receivers that misbehave.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer as createTlsServer } from 'node:tls';
import { promisify } from 'node:util';
import { SMTPServer } from 'smtp-server';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Job } from '../../src/jobs/job.js';
import { createStore } from '../../src/jobs/store.js';
import { createWorker, type Worker } from '../../src/jobs/worker.js';
import { createNotifyHandlers } from '../../src/notify/index.js';
import { mailboxOf } from '../../src/notify/message.js';
import { until } from '../support/until.js';
import { lateRetries } from '../support/workers.js';
import { type ShimWorld, startShimWorld } from './shim-world.js';

interface Mail {
  readonly from: string;
  readonly to: readonly string[];
  readonly raw: string;
}

const store = createStore();
const servers: Server[] = [];
const sockets = new Set<Socket>();
const mails: Mail[] = [];
/** Nothing private may be called here; the worker of `world` may call this machine. */
let closed: ShimWorld;
let world: ShimWorld;
let worker: Worker;

beforeAll(async () => {
  const smtp = new SMTPServer({
    authOptional: true,
    disabledCommands: ['AUTH', 'STARTTLS'],
    disableReverseLookup: true,
    onData(stream, { envelope }, callback) {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        const from = envelope.mailFrom === false ? '' : envelope.mailFrom.address;
        const to = envelope.rcptTo.map(({ address }) => address);
        mails.push({ from, to, raw: Buffer.concat(chunks).toString('utf8') });
        callback(null);
      });
    },
  });
  smtp.on('error', () => undefined);
  const port = await listen(smtp.server as unknown as Server);
  const notify = {
    email: { url: `smtp://127.0.0.1:${port}`, from: 'O\'Brien, "Shop" <shop@example.org>' },
    webhook: {},
    allowedNetworks: ['127.0.0.0/8'],
  };
  [world, closed] = await Promise.all([
    startShimWorld({ notify }),
    startShimWorld({ notify: { webhook: {}, email: notify.email } }),
  ]);
  const handlers = createNotifyHandlers({
    config: { templates: world.templates, ...notify },
    directory: '/',
    db: world.database.pool,
  });
  worker = createWorker({ db: world.database.pool, handlers: lateRetries(handlers), pollMs: 20 });
  worker.start();
});
afterAll(async () => {
  await worker?.stop({ deadlineMs: 500 });
  for (const socket of sockets) socket.destroy();
  for (const server of servers) server.close();
  await Promise.all([world?.close(), closed?.close()]);
});

async function listen(server: Server): Promise<number> {
  servers.push(server);
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

interface Answer {
  readonly status: number;
  readonly text: string;
  readonly id: string;
}

async function ask(method: string, path: string, body: unknown, at: ShimWorld = world): Promise<Answer> {
  const response = await fetch(`${at.url}${path}`, {
    method,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  const { id = '' } = (text === '' ? {} : JSON.parse(text)) as { id?: string };
  return { status: response.status, text, id };
}

async function refused(
  status: number,
  method: string,
  path: string,
  body: unknown,
  { at = world, secret }: { at?: ShimWorld; secret?: string } = {},
): Promise<void> {
  const before = await at.jobCount();
  const answer = await ask(method, path, body, at);
  expect([answer.status, answer.text]).toEqual([status, answer.text]);
  if (secret !== undefined) expect(answer.text).not.toContain(secret);
  expect(await at.jobCount()).toBe(before);
}

const ended = (id: string, states: readonly Job['state'][] = ['done', 'dead']): Promise<Job> =>
  until(
    `job ${id} has ended`,
    async () => {
      const job = await store.show(world.database.pool, id);
      return job !== null && states.includes(job.state) ? job : null;
    },
    { withinMs: 60_000 },
  );

/** What the notification becomes: its job when it has ended, and its mail. */
async function mailed(body: object): Promise<{ job: Job; mail: Mail; headers: Map<string, string> }> {
  const { status, id, text } = await ask('POST', '/notifications', body);
  expect([status, text]).toEqual([202, text]);
  const job = await ended(id);
  expect([job.state, job.errors.at(-1)?.message]).toEqual(['done', undefined]);
  const mail = mails.find(({ raw }) => raw.includes(`X-Notification-ID: ${id}\r\n`));
  if (mail === undefined) throw new Error('there is no such mail');
  return { job, mail, headers: headersOf(mail.raw) };
}

/** Unfolded; a name that comes twice fails the test. */
function headersOf(raw: string): Map<string, string> {
  const head = raw.slice(0, raw.indexOf('\r\n\r\n')).replace(/\r\n[ \t]+/g, ' ');
  const headers = new Map<string, string>();
  for (const line of head.split('\r\n')) {
    const name = line.slice(0, line.indexOf(':')).toLowerCase();
    expect(headers.has(name)).toBe(false);
    headers.set(name, line.slice(line.indexOf(':') + 1).trim());
  }
  return headers;
}

/** Encoded words (RFC 2047) as text. */
function decoded(header = ''): string {
  return header.replace(/\?=\s+=\?/g, '?==?').replace(/(?:=\?UTF-8\?([BQ])\?[^?]*\?=)+/gi, (words) =>
    Buffer.concat(
      [...words.matchAll(/=\?UTF-8\?([BQ])\?([^?]*)\?=/gi)].map(([, how = '', what = '']) =>
        how.toUpperCase() === 'B'
          ? Buffer.from(what, 'base64')
          : Buffer.from(
              what
                .replaceAll('_', ' ')
                .replace(/=([0-9A-F]{2})/gi, (_all, hex: string) =>
                  String.fromCharCode(Number.parseInt(hex, 16)),
                ),
              'latin1',
            ),
      ),
    ).toString('utf8'),
  );
}

const PAID = { to: 'ann@example.org', template: 'order-paid', data: { orderId: 1, total: '5.00' } };

describe('names of templates', () => {
  it.each([
    '../../etc/passwd',
    '/etc/passwd',
    '..',
    '.',
    'order-paid/../order-paid',
    'order-paid/',
    'order-paid\\..',
    'order-paid.',
    'order-paid\u0000',
    'order-paid\n',
    ' order-paid',
    'Order-Paid',
    'ORDER-PAID',
    'order\u2010paid',
    '\uff4frder-paid',
    'order_paid',
    '__proto__',
    'constructor',
    'no-such-template',
    'con',
    'x'.repeat(101),
  ])('%j: 422 wherever it is asked for', async (template) => {
    const secret = template.length > 3 ? template : undefined;
    const options = secret === undefined ? {} : { secret };
    await refused(422, 'POST', '/notifications', { ...PAID, template }, options);
    const payload = { to: PAID.to, template };
    const target = { kind: 'notify.email' };
    await refused(422, 'POST', '/schedules', { delayMs: 1, target, payload }, options);
    await refused(422, 'POST', '/retries', { target, payload }, options);
  });

  it.each(['Order', 'a_b', 'a.b', '-a', 'x'.repeat(101), 'caf\u00e9'])(
    'none is written under %j: 422',
    async (key) => {
      await refused(422, 'PUT', `/templates/${encodeURIComponent(key)}`, { parts: { text: 'x' } });
    },
  );
});

describe('templates that are written', () => {
  it.each([
    ['a property of a function', '{{constructor.constructor "return 1"}}'],
    ['an unknown helper', '{{exec "id"}}'],
    ['arithmetic', '{{7*7}}'],
    ['a partial', '{{> header}}'],
    ['a dynamic partial', '{{> (lookup . "x")}}'],
    ['an inline partial', '{{#*inline "x"}}a{{/inline}}{{> x}}'],
    ['a decorator', '{{* activate}}'],
    ['log', '{{log "x"}}'],
    ['a block that is not closed', '{{#if a}}x'],
    ['a brace too many', '{{{{raw}}}}'],
    ['nesting without end', '{{#if a}}'.repeat(200) + '{{/if}}'.repeat(200)],
    ['too many parts', '{{a}}'.repeat(10_001)],
    ['too long', 'x'.repeat(262_145)],
  ])('%s: 400', async (_name, text) => {
    await refused(400, 'PUT', '/templates/hostile', { parts: { subject: 'S', text } });
  });

  it.each([
    ['no parts', {}],
    ['a part of another channel', { parts: { body: 'x' } }],
    ['a part that is a number', { parts: { text: 5 } }],
    ['__proto__ as a part', { parts: JSON.parse('{"__proto__":"x"}') as object }],
    ['a channel that is none', { channel: 'fax', parts: { text: 'x' } }],
    ['a locale that is a path', { locale: '../en', parts: { text: 'x' } }],
  ])('%s: 400', async (_name, body) => {
    await refused(400, 'PUT', '/templates/hostile', body);
  });

  it('reads nothing of an object that its data does not have', async () => {
    const parts = {
      subject: 'S',
      text: '{{#if toString}}yes{{else}}no{{/if}} {{#if a.constructor}}yes{{else}}no{{/if}}',
    };
    expect((await ask('PUT', '/templates/probing', { parts })).status).toBe(200);
    const preview = await ask('POST', '/templates/probing/preview', { data: { a: 'x' } });
    expect(JSON.parse(preview.text)).toMatchObject({ parts: { text: 'no no' } });
  });
});

describe('data is data', () => {
  const parts = { subject: 'For {{name}}', text: 'Dear {{name}}.', html: '<p>Dear {{name}}.</p>' };
  it.each([
    ['{{7*7}}', '{{7*7}}'],
    ['\u0024{7*7}', '\u0024{7*7}'],
    ['<%= 7*7 %>', '&lt;%&#x3D; 7*7 %&gt;'],
    [
      '{{constructor.constructor "return process"}}',
      '{{constructor.constructor &quot;return process&quot;}}',
    ],
    ['{{> header}}', '{{&gt; header}}'],
    ['<script>alert(1)</script>', '&lt;script&gt;alert(1)&lt;/script&gt;'],
    ['"><img src=x onerror=alert(1)>', '&quot;&gt;&lt;img src&#x3D;x onerror&#x3D;alert(1)&gt;'],
    ["' onload='x", '&#x27; onload&#x3D;&#x27;x'],
    ['&lt;b&gt;', '&amp;lt;b&amp;gt;'],
  ])('%s', async (name, html) => {
    await ask('PUT', '/templates/greeting', { parts });
    const preview = await ask('POST', '/templates/greeting/preview', { data: { name } });
    expect(JSON.parse(preview.text)).toMatchObject({
      parts: { subject: `For ${name}`, text: `Dear ${name}.`, html: `<p>Dear ${html}.</p>` },
    });
  });

  it('is sent as it is previewed', async () => {
    await ask('PUT', '/templates/greeting', { parts });
    const name = '{{constructor.constructor "x"}} <script>';
    const { mail, headers } = await mailed({ to: PAID.to, template: 'greeting', data: { name } });
    expect(decoded(headers.get('subject'))).toBe(`For ${name}`);
    expect(mail.raw).toContain('Dear {{constructor.constructor &quot;x&quot;}} &lt;script&gt;.');
    expect(mail.raw).not.toContain(`<p>Dear ${name}`);
  });
});

describe('headers of a mail', () => {
  it.each([
    ['CRLF', '\r\nBcc: eve@example.org'],
    ['LF', '\nBcc: eve@example.org'],
    ['CR', '\rBcc: eve@example.org'],
    ['a folded line', '\r\n Bcc: eve@example.org'],
    ['an empty line', '\r\n\r\nBody'],
    ['a line separator', '\u2028Bcc: eve@example.org'],
    ['a paragraph separator', '\u2029Bcc: eve@example.org'],
    ['next line', '\u0085Bcc: eve@example.org'],
    ['a vertical tab', '\u000bx'],
    ['an escape sequence', '\u001b[2Jx'],
    ['delete', '\u007fx'],
  ])('%s in what becomes one: 422', async (_name, bad) => {
    const secret = 'eve@example.org';
    const data = { orderId: `1${bad}`, total: '5.00' };
    await refused(422, 'POST', '/notifications', { ...PAID, data }, { secret });
    await refused(422, 'POST', '/notifications', { to: PAID.to, body: 'x', subject: `a${bad}` }, { secret });
    await refused(422, 'POST', '/notifications', { ...PAID, to: `ann@example.org${bad}` }, { secret });
    await refused(422, 'POST', '/notifications', { ...PAID, reference: `r${bad}` }, { secret });
    await refused(422, 'POST', '/notifications', { ...PAID, tags: [`t${bad}`] }, { secret });
    const unsubscribeUrl = `https://example.org/u${bad}`;
    await refused(422, 'POST', '/notifications', { ...PAID, unsubscribeUrl }, { secret });
    const target = { kind: 'notify.email' };
    await refused(422, 'POST', '/schedules', { delayMs: 1, target, payload: { ...PAID, data } }, { secret });
  });

  it('a line break of the data in a body is a line break', async () => {
    const { mail } = await mailed({
      to: PAID.to,
      subject: 'S',
      body: 'one\r\nBcc: eve@example.org\r\n.\r\ntwo',
    });
    expect(mail.to).toEqual([PAID.to]);
    expect(mail.raw.split('\r\n\r\n')[1]).toContain('Bcc: eve@example.org\r\n.\r\ntwo');
  });

  it('998 characters of subject are folded and come back whole; 999 are refused', async () => {
    const subject = 'word '.repeat(200).slice(0, 998);
    const { headers, mail } = await mailed({ to: PAID.to, subject, body: 'x' });
    expect(decoded(headers.get('subject')).trim()).toBe(subject.trim());
    for (const line of mail.raw.split('\r\n')) expect(line.length).toBeLessThanOrEqual(998);
    await refused(400, 'POST', '/notifications', { to: PAID.to, subject: 'x'.repeat(999), body: 'x' });
  });

  it.each([
    ['without a space to fold at', 'x'.repeat(998)],
    ['right to left', '\u202egpj.eciovni\u202c \u2066a\u2069'],
    ['not ASCII', 'Re\u00e7u \u{1f600} \u65e5\u672c\u8a9e '.repeat(20).trim()],
    ['that looks encoded', '=?utf-8?q?Bcc:_eve=40example.org?='],
    ['that looks like a header', 'Bcc: eve@example.org'],
    ['of spaces and a tab-free end', '  a  '],
  ])('a subject %s is one header with this text', async (_name, subject) => {
    const { headers, mail } = await mailed({ to: PAID.to, subject, body: 'x' });
    expect(decoded(headers.get('subject')).trim()).toBe(subject.trim());
    expect([mail.to, headers.get('to'), headers.has('bcc')]).toEqual([[PAID.to], PAID.to, false]);
    expect(mail.raw.slice(0, mail.raw.indexOf('\r\n\r\n'))).toMatch(/^[\t\r\n\x20-\x7e]*$/);
  });

  it('the sender’s name keeps its quotes and its comma', async () => {
    const { headers, mail } = await mailed({ to: PAID.to, subject: 'S', body: 'x' });
    expect(mail.from).toBe('shop@example.org');
    expect(headers.get('from')).toBe('"O\'Brien, \\"Shop\\"" <shop@example.org>');
  });
});

describe('recipients', () => {
  it.each([
    'ann',
    '@example.org',
    'ann@',
    'ann@@example.org',
    'ann@example.org, eve@example.org',
    'ann@example.org;eve@example.org',
    'ann@example.org eve@example.org',
    'Ann <ann@example.org>',
    '"Ann \\" Lee" <ann@example.org>',
    '"ann lee"@example.org',
    'ann(comment)@example.org',
    '<ann@example.org>',
    'undisclosed-recipients:;',
    'mailto:ann@example.org',
    'ann@[127.0.0.1]',
    'ann@[IPv6:::1]',
    'ann\u0000@example.org',
    'ann\u200b@example.org',
    '\u202eann@example.org',
    'ann@exam\u00adple.org',
    'ann@example.org\u3002com',
    'ann\u3000@example.org',
    'ann@example..org',
    'ann@.example.org',
    'ann@-example.org',
    `${'x'.repeat(65)}@example.org`,
    `ann@${'x'.repeat(64)}.org`,
    `ann@${'x.'.repeat(130)}org`,
  ])('%j: 422', async (to) => {
    await refused(422, 'POST', '/notifications', { ...PAID, to }, { secret: to });
  });

  it.each([
    ['ann@b\u00fccher.example', 'ann@xn--bcher-kva.example'],
    ['ann@B\u00dcCHER.example', 'ann@xn--bcher-kva.example'],
    ['ann@xn--bcher-kva.example', 'ann@xn--bcher-kva.example'],
    ["o'neil+tag@example.org", "o'neil+tag@example.org"],
    ['a.b_c=d!e#f$g%h&i*j/k?l^m`n{o|p}q~r@example.org', 'a.b_c=d!e#f$g%h&i*j/k?l^m`n{o|p}q~r@example.org'],
    ['j\u00fcrgen@example.org', 'j\u00fcrgen@example.org'],
    ['ann@localhost', 'ann@localhost'],
  ])('%s is written to %s', async (to, envelope) => {
    const { mail, headers } = await mailed({ ...PAID, to });
    // The server shows a domain in its own script again.
    expect(mail.to.map((address) => mailboxOf(address))).toEqual([envelope]);
    expect(headers.get('to')).toBe(envelope);
  });
});

describe('URLs that nobody may call', () => {
  const FORMS = [
    'http://127.0.0.1/',
    'http://127.1/',
    'http://127.0.1/',
    'http://127.0.0.1./',
    'http://127.255.255.254/',
    'http://2130706433/',
    'http://0x7f000001/',
    'http://0x7f.0x0.0x0.0x1/',
    'http://0177.0.0.01/',
    'http://017700000001/',
    'http://0/',
    'http://0.0.0.0/',
    'http:127.0.0.1/',
    'http:\\\\127.0.0.1/',
    'http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460/',
    'http://127\u30020\u30020\u30021/',
    'http://%31%32%37.0.0.1/',
    'http://localhost/',
    'http://LOCALHOST/',
    'http://localhost./',
    'http://a.localhost/',
    'http://a.localhost./',
    'http://\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3/',
    'http://10.0.0.1/',
    'http://10.1/',
    'http://172.16.0.1/',
    'http://192.168.1/',
    'http://100.64.0.1/',
    'http://169.254.169.254/latest/meta-data',
    'http://0xa9fea9fe/',
    'http://2852039166/',
    'http://192.0.0.192/',
    'http://198.18.0.1/',
    'http://224.0.0.1/',
    'http://255.255.255.255/',
    'http://[::]/',
    'http://[::1]/',
    'http://[0:0:0:0:0:0:0:1]/',
    'http://[::ffff:127.0.0.1]/',
    'http://[::ffff:7f00:1]/',
    'http://[0:0:0:0:0:ffff:a9fe:a9fe]/',
    'http://[::ffff:0:127.0.0.1]/',
    'http://[::127.0.0.1]/',
    'http://[64:ff9b::a9fe:a9fe]/',
    'http://[2002:7f00:1::]/',
    'http://[fe80::1]/',
    'http://[fe80::1%25lo]/',
    'http://[fc00::1]/',
    'http://[ff02::1]/',
    'http://user@example.org/',
    'http://user:password@example.org/',
    'http://example.org:80:80/',
    'http://example.org:99999/',
    'http://256.1.1.1/',
    'http:///',
    'http://',
    'http://exa mple.org/',
    'http://[::1/',
    'ftp://example.org/',
    'file:///etc/passwd',
    'gopher://example.org/_x',
    'data:application/json,1',
    'javascript:alert(1)',
    'ws://example.org/',
    'unix:/var/run/docker.sock',
    '//example.org/',
    'example.org',
    `http://example.org/${'x'.repeat(1_990)}`,
  ];

  it.each(FORMS)('%s: 422 at every door', async (url) => {
    const at = closed;
    const webhook = { channel: 'webhook', template: 'order-shipped', data: { orderId: 1, parcel: 'p' } };
    const isLong = url.length > 2_000;
    await refused(isLong ? 400 : 422, 'POST', '/notifications', { ...webhook, to: url }, { at });
    for (const [method, path, body] of [
      ['POST', '/schedules', { delayMs: 1, target: { url } }],
      ['PUT', '/schedules/hostile', { cron: '* * * * *', target: { url } }],
      ['POST', '/retries', { payload: 1, target: { url } }],
      ['POST', '/retries', { httpRequest: { url } }],
    ] as const)
      await refused(isLong ? 400 : 422, method, path, body, { at });
  });

  it.each(['x\r\ny', 'x\ny', 'x\u0000', 'caf\u00e9 \u65e5'])('a header of a call %j: 422', async (value) => {
    const httpRequest = { url: 'https://example.org/', headers: { 'x-note': value } };
    await refused(422, 'POST', '/retries', { httpRequest });
  });
  it.each(['host', 'Content-Length', 'transfer-encoding', 'connection', 'x y', 'x:', '', 'webhook-id'])(
    'the header %j of a call is not a client’s to give: 422',
    async (name) => {
      const httpRequest = { url: 'https://example.org/', headers: { [name]: 'x' } };
      await refused(422, 'POST', '/retries', { httpRequest });
    },
  );
});

describe('receivers that misbehave', () => {
  let calls = 0;
  const answering = (answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<number> =>
    listen(
      createServer((request, response) => {
        calls += 1;
        request.resume().on('end', () => answer(request, response));
      }),
    );
  /** Bytes of its own after the first of a request; `write` may go on until the other side closes. */
  const raw = (write: (socket: Socket) => void): Promise<number> =>
    listen(
      createTcpServer((socket) => {
        calls += 1;
        socket.once('data', () => write(socket));
      }),
    );

  /** It ended, failed once, or was told to wait. */
  const isTried = ({ state, errors, runAt }: Job): boolean =>
    ['done', 'dead'].includes(state) ||
    (state === 'ready' && (errors.length > 0 || runAt.getTime() > Date.now() + 60_000));

  /** It spent an attempt, and there will be another. */
  function expectSpent(job: Job): void {
    expect([job.state, job.errors.length, job.attempts]).toEqual(['ready', 1, 1]);
  }

  /** A webhook to it, through the door: the job when its first attempt is over. */
  async function hooked(port: number, scheme = 'http'): Promise<Job> {
    calls = 0;
    const { id, status } = await ask('POST', '/notifications', {
      to: `${scheme}://127.0.0.1:${port}/hook?secret=1`,
      channel: 'webhook',
      template: 'order-shipped',
      data: { orderId: 1, parcel: 'p' },
    });
    expect(status).toBe(202);
    const job = await until(
      'it was tried',
      async () => {
        const found = await store.show(world.database.pool, id);
        return found !== null && isTried(found) ? found : null;
      },
      { withinMs: 60_000 },
    );
    expect(JSON.stringify(job.errors)).not.toContain('secret');
    return job;
  }

  it.each([301, 302, 303, 307, 308])(
    '%d to itself or to a private address: not followed, dead at once',
    async (status) => {
      for (const location of ['/hook', 'http://169.254.169.254/latest/meta-data', 'file:///etc/passwd']) {
        const port = await answering((_request, response) => response.writeHead(status, { location }).end());
        const job = await hooked(port);
        expect([job.state, job.errors.at(-1)?.message, calls]).toEqual([
          'dead',
          `HTTP ${status} from 127.0.0.1:${port}`,
          1,
        ]);
      }
    },
  );

  it('10 MB of headers, or headers without end: cut off, tried again later', async () => {
    const big = await raw((socket) => socket.end(`HTTP/1.1 200 OK\r\nx: ${'y'.repeat(10_000_000)}\r\n\r\n`));
    let written = 0;
    const endless = await raw((socket) => {
      const more = (): void => {
        while (!socket.destroyed && socket.write('x: y\r\n'.repeat(1_000))) written += 6_000;
      };
      socket.on('drain', more).write('HTTP/1.1 200 OK\r\n');
      more();
    });
    for (const port of [big, endless]) {
      const job = await hooked(port);
      expectSpent(job);
      expect(job.errors.at(-1)?.message).toBe(`HPE_HEADER_OVERFLOW calling 127.0.0.1:${port}`);
    }
    expect(written).toBeLessThan(20_000_000);
  });

  it.each([
    ['a body without end', 'HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n'],
    ['a length that is not kept', 'HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n'],
    ['a bomb that says it is compressed', 'HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n'],
  ])('%s: the status counts, the body is not read on', async (_name, head) => {
    let written = 0;
    const port = await raw((socket) => {
      const more = (): void => {
        while (!socket.destroyed && socket.write(Buffer.alloc(65_536, 'z'))) written += 65_536;
      };
      socket.on('drain', more).write(head);
      more();
    });
    expect((await hooked(port)).state).toBe('done');
    expect(written).toBeLessThan(20_000_000);
  });

  it('a body that breaks off: the status counts', async () => {
    const port = await raw((socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort'));
    expect((await hooked(port)).state).toBe('done');
  });

  it.each([
    ['nothing', ''],
    ['another protocol', '220 smtp.example.org ESMTP\r\n'],
    ['half a status line', 'HTTP/1.1 20'],
    ['no status', 'HTTP/1.1\r\n\r\n'],
    ['two lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab'],
    ['only that it goes on', 'HTTP/1.1 100 Continue\r\n\r\n'.repeat(3)],
  ])('%s: tried again later', async (_name, answer) => {
    const port = await raw((socket) => socket.end(answer));
    const job = await hooked(port);
    expectSpent(job);
  });

  it('a switch of protocols: dead at once', async () => {
    const port = await raw(
      (socket) =>
        void socket.write('HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'),
    );
    const job = await hooked(port);
    expect([job.state, job.errors.at(-1)?.message]).toEqual(['dead', `HTTP 101 from 127.0.0.1:${port}`]);
  });

  it('TLS that cannot be verified, or is none: nothing is sent, tried again later', async () => {
    const got: string[] = [];
    const port = await listen(
      createTcpServer((socket) => {
        calls += 1;
        socket.on('data', (chunk: Buffer) => void got.push(chunk.toString('latin1')));
        socket.end('HTTP/1.1 200 OK\r\n\r\n');
      }),
    );
    const job = await hooked(port, 'https');
    expectSpent(job);
    expect(got.join('')).not.toContain('secret');
  });

  it('TLS with a certificate that has run out: nothing is sent, tried again later', async () => {
    const got: string[] = [];
    const server = createTlsServer(await expiredCertificate(), (socket) => {
      socket.on('data', (chunk: Buffer) => void got.push(chunk.toString('latin1')));
      socket.end('HTTP/1.1 200 OK\r\n\r\n');
    });
    // After its handshake, which is when the other side looks at the certificate.
    server.on('tlsClientError', () => {
      calls += 1;
    });
    const job = await hooked(await listen(server), 'https');
    expectSpent(job);
    expect(JSON.stringify(job.errors)).toMatch(/certificate|CERT/i);
    expect(got).toEqual([]);
  });

  it.each([
    ['an HTTP date', (at: Date) => at.toUTCString()],
    ['a date as RFC 850 has it', (at: Date) => rfc850(at)],
    ['a date as asctime writes it', (at: Date) => asctime(at)],
    ['seconds', (at: Date) => String(Math.round((at.getTime() - Date.now()) / 1_000))],
  ])('503 with Retry-After as %s: waits until then, no attempt spent', async (_name, write) => {
    const at = new Date(Math.ceil(Date.now() / 1_000) * 1_000 + 7_200_000);
    const port = await answering((_request, response) =>
      response.writeHead(503, { 'retry-after': write(at) }).end(),
    );
    const job = await hooked(port);
    expect([job.state, job.attempts]).toEqual(['ready', 0]);
    expect(Math.abs(job.runAt.getTime() - at.getTime())).toBeLessThan(30_000);
  });

  it.each(['yesterday', '-5', '1e9', 'Fri, 99 Foo 2030 10:00:00 GMT', '', '\u0660'.repeat(3)])(
    '429 with Retry-After %j: as without, one attempt spent',
    async (text) => {
      const port = await raw((socket) =>
        socket.end(`HTTP/1.1 429 Slow\r\nretry-after: ${text}\r\ncontent-length: 0\r\n\r\n`),
      );
      const job = await hooked(port);
      expectSpent(job);
      expect(job.runAt.getTime() - Date.now()).toBeLessThan(3_600_000);
    },
  );

  it('a schedule and a retry meet the same: a redirect ends them', async () => {
    const port = await answering((_request, response) =>
      response.writeHead(302, { location: 'http://169.254.169.254/' }).end(),
    );
    const url = `http://127.0.0.1:${port}/`;
    const made = [
      await ask('POST', '/schedules', { delayMs: 0, target: { url } }),
      await ask('POST', '/retries', {
        payload: 1,
        target: { url },
        policy: { type: 'fixed', delayMs: 0, maxAttempts: 3 },
      }),
    ];
    for (const { id } of made) {
      const job = await ended(id);
      expect([job.state, job.errors.at(-1)?.message]).toEqual(['dead', `HTTP 302 from 127.0.0.1:${port}`]);
    }
  });
});

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const clock = (at: Date): string => at.toISOString().slice(11, 19);
const monthOf = (at: Date): string => at.toUTCString().slice(8, 11);
const two = (value: number): string => String(value).padStart(2, '0');
function rfc850(at: Date): string {
  const year = two(at.getUTCFullYear() % 100);
  return `${DAYS[at.getUTCDay()]}, ${two(at.getUTCDate())}-${monthOf(at)}-${year} ${clock(at)} GMT`;
}
function asctime(at: Date): string {
  const day = String(at.getUTCDate()).padStart(2, ' ');
  return `${at.toUTCString().slice(0, 3)} ${monthOf(at)} ${day} ${clock(at)} ${at.getUTCFullYear()}`;
}

it('no log line holds what was sent, or an address', () => {
  const lines = [...world.lines, ...closed.lines].join('\n');
  expect(lines).toContain('"/notifications"');
  for (const secret of ['example.org', 'Bcc', 'passwd', 'constructor']) expect(lines).not.toContain(secret);
});

/** Valid through 2020. Made by openssl, whose `ca` is the one command that sets both dates. */
async function expiredCertificate(): Promise<{ key: Buffer; cert: Buffer }> {
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-expired-'));
  try {
    const openssl = (...args: string[]) => promisify(execFile)('openssl', args, { cwd: folder });
    writeFileSync(join(folder, 'index.txt'), '');
    writeFileSync(
      join(folder, 'ca.cnf'),
      `[ca]
default_ca = c
[c]
database = ${folder}/index.txt
new_certs_dir = ${folder}
rand_serial = yes
default_md = sha256
policy = p
[p]
commonName = supplied
`,
    );
    await openssl(
      'req',
      '-new',
      '-newkey',
      'rsa:2048',
      '-nodes',
      '-keyout',
      'key',
      '-out',
      'csr',
      '-subj',
      '/CN=a',
    );
    const dates = ['-startdate', '20200101000000Z', '-enddate', '20210101000000Z'];
    const paths = ['-config', 'ca.cnf', '-keyfile', 'key', '-in', 'csr', '-out', 'crt'];
    await openssl('ca', '-batch', '-selfsign', '-notext', ...dates, ...paths);
    return { key: readFileSync(join(folder, 'key')), cert: readFileSync(join(folder, 'crt')) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
