/** What failures mean, which addresses are out of bounds, and servers that misbehave on purpose. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, isIP, type Server, type Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { SMTPServer } from 'smtp-server';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { parseFrom, smtpProvider } from '../../adapters/providers/smtp.js';
import { gatewayProvider, webhookProvider } from '../../adapters/providers/webhook.js';
import { addressRules, refuseUrl } from '../../src/notify/address.js';
import { checkNotifyConfig } from '../../src/notify/config.js';
import { DeliveryError, type Fate, httpFate, parseRetryAfter, smtpFate } from '../../src/notify/fate.js';
import { isMailAddress, type Message } from '../../src/notify/message.js';
import { post, type Resolver } from '../../src/notify/post.js';

const NOW = Date.parse('2024-03-01T10:00:00Z');

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

describe('fates', () => {
  it.each([
    [200, undefined, null],
    [204, undefined, null],
    [301, undefined, 'final'],
    [400, undefined, 'final'],
    [401, undefined, 'deferred'],
    [403, undefined, 'deferred'],
    [404, undefined, 'final'],
    [408, undefined, 'transient'],
    [410, undefined, 'final'],
    [425, undefined, 'transient'],
    [429, undefined, 'transient'],
    [429, '120', 'deferred'],
    [500, undefined, 'transient'],
    [503, 'Fri, 01 Mar 2024 10:01:00 GMT', 'deferred'],
    [503, 'soon', 'transient'],
    [0, undefined, 'final'],
  ])('HTTP %d with Retry-After %s: %s', (status, retryAfter, type) => {
    expect(httpFate(status, retryAfter, NOW)?.type ?? null).toBe(type);
  });

  it.each([
    ['120', 120_000],
    ['0', 0],
    ['99999999', 86_400_000],
    ['Fri, 01 Mar 2024 10:01:00 GMT', 60_000],
    ['Fri, 01 Mar 2020 10:01:00 GMT', 0],
    ['-1', null],
    ['1.5', null],
    ['1e3', null],
    ['', null],
    ['9'.repeat(400), null],
  ])('Retry-After %s: %s ms', (text, ms) => {
    expect(parseRetryAfter(text, NOW)).toBe(ms);
  });

  it.each([
    ['Friday, 01-Mar-24 10:01:00 GMT', 60_000],
    ['Fri Mar  1 10:01:00 2024', 60_000],
    ['Fri, 01 Mar 2024 10:01:00 GMT', 60_000],
    ['Fri, 01 Mar 2024 10:01:00 EST', null],
    ['Fri, 01 Mar 2024 10:01:00', null],
  ])('Retry-After %s is UTC wherever this machine is: %s ms', (text, ms) => {
    const before = process.env['TZ'];
    process.env['TZ'] = 'America/New_York';
    try {
      expect(parseRetryAfter(text, NOW)).toBe(ms);
    } finally {
      if (before === undefined) delete process.env['TZ'];
      else process.env['TZ'] = before;
    }
  });

  it.each([
    [{ responseCode: 421 }, true, 'transient'],
    [{ responseCode: 451 }, true, 'transient'],
    [{ responseCode: 550 }, true, 'final'],
    [{ responseCode: 552 }, false, 'final'],
    [{ responseCode: 535, code: 'EAUTH' }, false, 'deferred'],
    [{ code: 'ECONNECTION' }, false, 'transient'],
    [{ code: 'ETIMEDOUT' }, false, 'transient'],
    [{ code: 'ETIMEDOUT' }, true, 'ambiguous'],
    [{ code: 'ESOCKET' }, true, 'ambiguous'],
    [{}, true, 'ambiguous'],
  ])('SMTP %j, all handed over: %s: %s', (error, handedOver, type) => {
    expect(smtpFate(error, handedOver).type).toBe(type);
  });
});

describe('addresses', () => {
  const closed = addressRules();
  it.each([
    'http://127.0.0.1/',
    'http://127.1/',
    'http://2130706433/',
    'http://0x7f.1/',
    'http://0177.0.0.1/',
    'http://0/',
    'http://0.0.0.0/',
    'http://localhost/',
    'http://a.localhost/',
    'http://LOCALHOST./',
    'http://10.0.0.1/',
    'http://172.16.0.1/',
    'http://172.31.255.255/',
    'http://192.168.1.1/',
    'http://100.64.0.1/',
    'http://169.254.169.254/',
    'http://192.0.2.1/',
    'http://198.18.0.1/',
    'http://198.51.100.7/',
    'http://203.0.113.9/',
    'http://224.0.0.1/',
    'http://240.0.0.1/',
    'http://255.255.255.255/',
    'http://192.0.0.8/',
    'http://[::]/',
    'http://[::1]/',
    'http://[::127.0.0.1]/',
    'http://[::ffff:127.0.0.1]/',
    'http://[::ffff:7f00:1]/',
    'http://[::ffff:10.0.0.1]/',
    'http://[64:ff9b::7f00:1]/',
    'http://[64:ff9b::10.0.0.1]/',
    'http://[64:ff9b:1::1]/',
    'http://[fe80::1]/',
    'http://[fec0::1]/',
    'http://[fc00::1]/',
    'http://[fd12:3456::1]/',
    'http://[ff02::1]/',
    'http://[2001:db8::1]/',
    'http://[2001::1]/',
    'http://[2002:7f00:1::]/',
    'http://[2002:a00:1::1]/',
    'http://[100::1]/',
    'http://[3fff::1]/',
    'http://[5f00::1]/',
    'ftp://example.org/',
    'file:///etc/passwd',
    'gopher://example.org/',
    'data:text/plain,x',
    'javascript:0',
    'http://user:pw@example.org/',
    'http://user@example.org/',
    'http://',
    '',
    'example.org',
    `http://example.org/${'x'.repeat(2_000)}`,
  ])('%s is refused', (url) => {
    expect(refuseUrl(url, closed)).not.toBeNull();
  });

  it.each([
    'http://example.org/',
    'https://example.org:8443/a?b=c',
    'http://93.184.216.34/',
    'http://[2606:2800:220:1:248:1893:25c8:1946]/',
    'http://172.32.0.1/',
    'http://100.128.0.1/',
    'http://11.0.0.1/',
  ])('%s may be called', (url) => {
    expect(refuseUrl(url, closed)).toBeNull();
  });

  it('a listed network is open, mapped forms of it too, its neighbours are not', () => {
    const rules = addressRules(['127.0.0.0/8', '10.1.0.0/16', 'fd00::/8']);
    for (const address of [
      '127.0.0.1',
      '127.9.9.9',
      '10.1.255.255',
      '::ffff:10.1.0.1',
      '::ffff:7f00:1',
      'fd12::1',
    ])
      expect(rules.allows(address)).toBe(true);
    for (const address of [
      '10.2.0.1',
      'fc00::1',
      '::1',
      '169.254.169.254',
      'fe80::1%eth0',
      'example.org',
      '',
    ])
      expect(rules.allows(address)).toBe(false);
  });

  it.each([
    '10.0.0.0',
    '10.0.0.0/33',
    '10.0.0/8',
    'localhost/8',
    '::1/129',
    '/8',
    '10.0.0.0/-1',
    '10.0.0.0/8/8',
  ])('%s is no network', (entry) => {
    expect(() => addressRules([entry])).toThrow(expect.objectContaining({ code: 'config-invalid' }));
  });
});

describe('mail addresses', () => {
  it.each([
    'ann@example.org',
    'a.b+c@example.org',
    "o'neil@example.org",
    'j\u00fcrgen@m\u00fcller.example',
    'a@[192.0.2.1]'.replace(/[[\]]/g, ''),
  ])('%s', (address) => {
    expect(isMailAddress(address)).toBe(true);
  });
  it.each([
    '',
    'ann',
    '@example.org',
    'ann@',
    'a@b@c',
    'a b@example.org',
    'a@b.example, c@d.example',
    'a@b.example;c@d.example',
    'Ann <a@b.example>',
    'a@b.example\r\nBcc: c@d.example',
    'a@b.example\n',
    '"a b"@example.org',
    'a@b.example>',
    `${'x'.repeat(320)}@example.org`,
  ])('%j is none', (address) => {
    expect(isMailAddress(address)).toBe(false);
  });
});

const servers: { close(): void }[] = [];
const sockets = new Set<Socket>();
afterEach(() => {
  for (const socket of sockets) socket.destroy();
});
afterAll(() => {
  for (const server of servers) server.close();
});

async function listen(server: Server): Promise<number> {
  servers.push(server);
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  return (server.address() as AddressInfo).port;
}

const serveHttp = (answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<number> =>
  listen(createServer(answer));
/** Raw bytes after the whole request is in. */
const serveRaw = (answer: (socket: Socket) => void): Promise<number> =>
  listen(createTcpServer((socket) => void socket.once('data', () => answer(socket))));

const RULES = addressRules(['127.0.0.0/8']);
const signal = new AbortController().signal;

async function fateOf(work: Promise<unknown>): Promise<Fate['type'] | 'delivered'> {
  try {
    await work;
    return 'delivered';
  } catch (error) {
    if (error instanceof DeliveryError) return error.fate.type;
    throw error;
  }
}

const call = (
  port: number,
  change: { timeoutMs?: number; rules?: typeof RULES; host?: string; signal?: AbortSignal } = {},
) =>
  post({
    url: `http://${change.host ?? '127.0.0.1'}:${port}/x`,
    body: '{"secret":1}',
    headers: {},
    rules: RULES,
    // More than any answer takes here; what never comes has a limit of its own.
    timeoutMs: 20_000,
    signal,
    ...change,
  });

describe('calls to servers that misbehave', () => {
  it('nobody listens: not delivered', async () => {
    const server = createTcpServer();
    const port = await listen(server);
    await new Promise<void>((resolve) => server.close(() => resolve()));
    expect(await fateOf(call(port))).toBe('transient');
  });

  it('a name that does not resolve: not delivered', async () => {
    expect(await fateOf(call(80, { host: 'no-such-host.invalid', timeoutMs: 2_000 }))).toBe('transient');
  });

  it('a name is vetted by all its addresses, and the vetted one is what is called', async () => {
    let calls = 0;
    const port = await serveHttp((request, response) => {
      calls += 1;
      request.resume();
      response.end('{}');
    });
    const named = (rules: typeof RULES, ...answers: readonly string[][]) => {
      let asked = 0;
      const resolver: Resolver = (_hostname, found) => {
        const addresses = answers[Math.min(asked, answers.length - 1)] ?? [];
        asked += 1;
        found(
          null,
          addresses.map((address) => ({ address, family: isIP(address) })),
        );
      };
      return fateOf(
        post({
          url: `http://hook.example.org:${port}/`,
          body: '{}',
          headers: {},
          rules,
          signal,
          resolver,
          timeoutMs: 10_000,
        }),
      );
    };
    const closed = addressRules();
    for (const addresses of [
      ['127.0.0.1'],
      ['::1'],
      ['::ffff:127.0.0.1'],
      ['93.184.216.34', '127.0.0.1'],
      ['10.0.0.1', '93.184.216.34'],
    ])
      expect(await named(closed, addresses)).toBe('final');
    expect(await named(closed, [])).toBe('transient');
    expect(calls).toBe(0);
    // A resolver that answers otherwise the second time is never asked a second time.
    expect(await named(RULES, ['127.0.0.1'], ['192.0.2.1'])).toBe('delivered');
    expect(calls).toBe(1);
  });

  it('closes without an answer: nobody knows', async () => {
    expect(await fateOf(call(await serveRaw((socket) => socket.destroy())))).toBe('ambiguous');
  });

  it('never answers: nobody knows, and not for longer than the limit', async () => {
    const startedAt = performance.now();
    expect(await fateOf(call(await serveRaw(() => undefined), { timeoutMs: 300 }))).toBe('ambiguous');
    // Ten seconds is the limit where none is given.
    expect(performance.now() - startedAt).toBeLessThan(9_000);
  });

  it('the wait is ended from outside: nobody knows', async () => {
    const controller = new AbortController();
    const port = await serveRaw(() => controller.abort());
    expect(await fateOf(call(port, { signal: controller.signal }))).toBe('ambiguous');
  });

  it('10 MB of headers: bounded', async () => {
    const port = await serveRaw((socket) =>
      socket.write(`HTTP/1.1 200 OK\r\n${`x: ${'y'.repeat(8_000)}\r\n`.repeat(1_300)}`),
    );
    expect(await fateOf(call(port))).toBe('ambiguous');
  });

  it('a body without end: the status counts, the body is not read on', async () => {
    let written = 0;
    const port = await serveHttp((request, response) => {
      request.resume();
      response.writeHead(200);
      const more = (): void => {
        while (!response.destroyed && written < 100_000_000 && response.write(Buffer.alloc(65_536, 'x')))
          written += 65_536;
      };
      response.on('drain', more);
      more();
    });
    expect(await fateOf(call(port))).toBe('delivered');
    expect(written).toBeLessThan(50_000_000);
  });

  it('a body that dribbles: the status counts, no later than the limit', async () => {
    const port = await serveHttp((request, response) => {
      request.resume();
      response.writeHead(503);
      const dribble = setInterval(() => {
        response.write('x');
        // Whatever counts the limit must not be forgotten meanwhile: two of five runs took for ever.
        collectGarbage();
      }, 20);
      response.on('close', () => clearInterval(dribble));
    });
    const startedAt = performance.now();
    expect(await fateOf(call(port, { timeoutMs: 400 }))).toBe('transient');
    // Ten seconds is the limit where none is given.
    expect(performance.now() - startedAt).toBeLessThan(9_000);
  });

  it('a redirect is not followed', async () => {
    let calls = 0;
    const port = await serveHttp((request, response) => {
      calls += 1;
      request.resume();
      response.writeHead(301, { location: `http://127.0.0.1:${port}/again` }).end();
    });
    expect(await fateOf(call(port))).toBe('final');
    expect(calls).toBe(1);
  });

  it('an answer that is not HTTP: nobody knows', async () => {
    expect(await fateOf(call(await serveRaw((socket) => socket.end('220 smtp.example.org ESMTP\r\n'))))).toBe(
      'ambiguous',
    );
  });

  it('TLS that is none: not delivered', async () => {
    const port = await serveRaw((socket) => socket.end('HTTP/1.1 200 OK\r\n\r\n'));
    expect(
      await fateOf(post({ url: `https://127.0.0.1:${port}/`, body: '', headers: {}, rules: RULES, signal })),
    ).toBe('transient');
  });

  it('what is said of it names neither path nor body', async () => {
    const port = await serveHttp(
      (request, response) =>
        void request.resume().on('end', () => response.writeHead(500).end('internal details')),
    );
    await expect(call(port)).rejects.toThrow(`HTTP 500 from 127.0.0.1:${port}`);
  });

  it('a webhook that says 401 is final, a gateway that does is to be mended', async () => {
    const port = await serveHttp(
      (request, response) => void request.resume().on('end', () => response.writeHead(401).end()),
    );
    const url = `http://127.0.0.1:${port}`;
    const options = { idempotencyKey: '7', signal };
    expect(
      await fateOf(
        webhookProvider({ rules: RULES }).deliver(
          { id: '7', channel: 'webhook', to: url, parts: { body: '{}' } },
          options,
        ),
      ),
    ).toBe('final');
    expect(
      await fateOf(
        gatewayProvider(url, { rules: RULES }).deliver(
          { id: '7', channel: 'sms', to: '+1', parts: { text: 'x' } },
          options,
        ),
      ),
    ).toBe('deferred');
  });
});

describe('mail servers that misbehave', () => {
  const MAIL: Message = {
    id: '7',
    channel: 'email',
    to: 'ann@example.org',
    parts: { subject: 'Hi', text: 'Hello\n.\nBye' },
  };
  const deliver = (port: number, message: Message = MAIL, timeoutMs = 20_000) =>
    smtpProvider({ url: `smtp://127.0.0.1:${port}`, from: 'shop@example.org', timeoutMs }).deliver(message, {
      idempotencyKey: '7',
      signal,
    });

  interface Script {
    readonly onMail?: number;
    readonly onRcpt?: number;
    readonly onData?: 'reject' | 'cut' | 'silent' | 'take';
  }
  const taken: string[] = [];
  async function mailServer({ onMail, onRcpt, onData = 'take' }: Script): Promise<number> {
    const refuse = (code: number) => Object.assign(new Error('on purpose'), { responseCode: code });
    const server = new SMTPServer({
      authOptional: true,
      disabledCommands: ['AUTH', 'STARTTLS'],
      disableReverseLookup: true,
      onMailFrom: (_address, _session, callback) => callback(onMail === undefined ? null : refuse(onMail)),
      onRcptTo: (_address, _session, callback) => callback(onRcpt === undefined ? null : refuse(onRcpt)),
      onData(stream, _session, callback) {
        const chunks: Buffer[] = [];
        stream.on('data', (chunk: Buffer) => chunks.push(chunk));
        stream.on('end', () => {
          taken.push(Buffer.concat(chunks).toString('utf8'));
          if (onData === 'take') callback(null);
          if (onData === 'reject') callback(refuse(451));
          if (onData === 'cut') for (const socket of sockets) socket.destroy();
        });
      },
    });
    server.on('error', () => undefined);
    return listen(server.server as unknown as Server);
  }

  it('delivers, with an id made of the key, body unharmed', async () => {
    taken.length = 0;
    const { providerId } = await deliver(await mailServer({}));
    expect(providerId).toBe('<7@example.org>');
    expect(taken[0]).toContain('Message-ID: <7@example.org>');
    expect(taken[0]).toMatch(/^X-Notification-Id: 7\r$/im);
    expect(taken[0]).toContain('Hello\r\n.\r\nBye');
  });

  it.each<[string, Script, string]>([
    ['refuses the sender for now', { onMail: 451 }, 'transient'],
    ['refuses the recipient for good', { onRcpt: 550 }, 'final'],
    ['refuses the recipient for now', { onRcpt: 450 }, 'transient'],
    ['refuses the mail for now', { onData: 'reject' }, 'transient'],
    ['takes the mail and goes', { onData: 'cut' }, 'ambiguous'],
    ['takes the mail and says nothing', { onData: 'silent' }, 'ambiguous'],
  ])('%s', async (_name, script, fate) => {
    const timeoutMs = script.onData === 'silent' ? 1_500 : 20_000;
    expect(await fateOf(deliver(await mailServer(script), MAIL, timeoutMs))).toBe(fate);
  });

  it('is not there, greets with 421, or goes before the mail: not delivered', async () => {
    const server = createTcpServer();
    const port = await listen(server);
    await new Promise<void>((resolve) => server.close(() => resolve()));
    expect(await fateOf(deliver(port))).toBe('transient');
    expect(
      await fateOf(deliver(await listen(createTcpServer((socket) => void socket.end('421 busy\r\n'))))),
    ).toBe('transient');
    expect(await fateOf(deliver(await listen(createTcpServer((socket) => void socket.destroy()))))).toBe(
      'transient',
    );
    expect(await fateOf(deliver(await listen(createTcpServer(() => undefined)), MAIL, 300))).toBe(
      'transient',
    );
  });

  it('header injection is refused at the send', async () => {
    const port = await mailServer({});
    taken.length = 0;
    for (const message of [
      { ...MAIL, to: 'ann@example.org\r\nBcc: eve@example.org' },
      { ...MAIL, to: 'ann@example.org, eve@example.org' },
      { ...MAIL, parts: { ...MAIL.parts, subject: 'Hi\r\nBcc: eve@example.org' } },
    ])
      expect(await fateOf(deliver(port, message))).toBe('final');
    expect(taken).toEqual([]);
  });

  it('reads a configured sender', () => {
    expect(parseFrom('Shop & Sons <shop@example.org>')).toEqual({
      name: 'Shop & Sons',
      address: 'shop@example.org',
    });
    expect(parseFrom('shop@example.org')).toEqual({ name: '', address: 'shop@example.org' });
    expect(() => parseFrom('Shop\r\nBcc: x@y.example <shop@example.org>')).toThrow(TypeError);
  });
});

describe('the notify section', () => {
  it('takes a whole one', () => {
    const config = {
      templates: './t',
      defaultLocale: 'fr',
      email: { url: 'smtp://localhost', from: 'a@b.example' },
      sms: { urlEnv: 'SMS_URL', onAmbiguous: 'resend' },
      webhook: {},
      allowedNetworks: ['10.0.0.0/8'],
    };
    expect(checkNotifyConfig(config)).toEqual(config);
  });

  it.each([
    { email: {} },
    { email: { from: 'a@b.example' } },
    { email: { url: 'smtp://x', urlEnv: 'X', from: 'a@b.example' } },
    { email: { url: 'http://x', from: 'a@b.example' } },
    { email: { url: 'smtp://x', from: 'not an address' } },
    { email: { url: 'smtp://x', from: 'a@b.example', onAmbiguous: 'guess' } },
    { sms: { url: 'smtp://x' } },
    { sms: {} },
    { webhook: { url: 'http://x' } },
    { allowedNetworks: ['everything'] },
    { defaultLocale: '../en' },
    { emial: {} },
  ])('refuses %j', (config) => {
    expect(() => checkNotifyConfig(config)).toThrow(
      expect.objectContaining({ code: 'config-invalid', exitStatus: 2 }),
    );
  });
});
