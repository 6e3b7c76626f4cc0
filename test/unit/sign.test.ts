/** Against the example of the standard itself, and what else a secret may be. */
import { createServer, type IncomingHttpHeaders } from 'node:http';
import { expect, test } from 'vitest';
import type { HandlerContext, HandlerJob } from '../../src/jobs/handler.js';
import { createNotifyHandlers } from '../../src/notify/index.js';
import { secretBytes, webhookHeaders } from '../../src/notify/sign.js';

test('the signature is that of Standard Webhooks', () => {
  const secret = secretBytes('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
  const headers = webhookHeaders(
    'msg_p5jXN8AQM9LWM0D4loKWxJek',
    '{"test": 2432232314}',
    secret,
    1_614_265_330_999,
  );
  expect(headers).toEqual({
    'idempotency-key': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
    'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
    'webhook-timestamp': '1614265330',
    'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
  });
});

test('bytes and text of one body are signed alike; without a secret nothing is', () => {
  const secret = secretBytes('just some text of mine');
  expect(webhookHeaders('1', Buffer.from('ü'), secret, 0)).toEqual(webhookHeaders('1', 'ü', secret, 0));
  expect(webhookHeaders('1', 'ü', null, 0)).not.toHaveProperty('webhook-signature');
});

test('relay.http sends what it signs; a secret that is not there is said at the start', async () => {
  const got: { headers: IncomingHttpHeaders; body: string }[] = [];
  const server = createServer((incoming, outgoing) => {
    let body = '';
    incoming.on('data', (chunk) => {
      body += chunk;
    });
    incoming.on('end', () => {
      got.push({ headers: incoming.headers, body });
      outgoing.end('{}');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    const config = { webhookSecretEnv: 'HOOK', allowedNetworks: ['127.0.0.0/8'] };
    const handlers = (environment: Record<string, string>) =>
      createNotifyHandlers({ config, directory: '/', environment })['relay.http'];
    const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
    const { port } = server.address() as { port: number };
    const payloadText = JSON.stringify({ url: `http://127.0.0.1:${port}/x`, body: { n: 1 } });
    const job = { id: '42', attempt: 1, payloadText, headers: null, progress: null } as HandlerJob;
    const context = { signal: new AbortController().signal } as HandlerContext;
    await handlers({ HOOK: secret })?.handle(job, context);
    const [{ headers, body }] = got as [(typeof got)[0]];
    const sentMs = Number(headers['webhook-timestamp']) * 1_000;
    expect(headers).toMatchObject(webhookHeaders('42', body, secretBytes(secret), sentMs));
    for (const HOOK of ['', 'whsec_c2hvcnQ='])
      expect(() => handlers({ HOOK })).toThrow('The secret that signs webhooks is not set or too short');
  } finally {
    server.close();
  }
});
