/** The suppression list over HTTP: put on, listed, taken off; who did it is written down, and a key's kinds bind it. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createGate } from '../../src/notify/gate.js';
import { hashOf } from '../../src/notify/suppressions.js';
import { createOperations } from '../../src/operations.js';
import { type ShimWorld, startShimWorld } from './shim-world.js';

const KEYS = { app: 'a'.repeat(32), texter: 't'.repeat(32), reader: 'r'.repeat(32) };
let world: ShimWorld;

beforeAll(async () => {
  world = await startShimWorld({
    serve: {
      keys: [
        { name: 'app', env: 'APP' },
        { name: 'texter', env: 'TEXTER', kinds: ['notify.sms'] },
        { name: 'reader', env: 'READER', verbs: ['read'] },
      ],
    },
    environment: { APP: KEYS.app, TEXTER: KEYS.texter, READER: KEYS.reader },
  });
});
afterAll(() => world?.close());

async function ask(path: string, body?: object, key: keyof typeof KEYS = 'app') {
  const response = await fetch(`${world.url}${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: {
      'x-api-key': KEYS[key],
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

it('put on in one spelling, listed page by page, taken off, written down under the key’s name', async () => {
  const recipients = ['Ann@B\u00fccher.example', 'bo@example.org', 'BO@example.org'];
  expect(await ask('/suppressions', { recipients, reason: 'bounce' })).toEqual({
    status: 200,
    body: { channel: 'email', added: ['ann@xn--bcher-kva.example', 'bo@example.org'] },
  });
  expect((await ask('/suppressions', { recipients })).body).toEqual({ channel: 'email', added: [] });
  const gate = createGate(world.database.pool, 'unbroker');
  expect(await gate.suppressed('email', 'ann@b\u00fccher.example')).toBe(true);
  const first = await ask('/suppressions?channel=email&limit=1', undefined, 'reader');
  expect(first.body).toMatchObject({ items: [{ recipient: 'ann@xn--bcher-kva.example', reason: 'bounce' }] });
  const next = await ask('/suppressions?channel=email&after=ann@xn--bcher-kva.example');
  expect(next.body).toMatchObject({ items: [{ recipient: 'bo@example.org' }] });
  expect(
    (await ask('/suppressions/remove', { recipients: ['bo@EXAMPLE.org', 'cy@example.org'] })).body,
  ).toEqual({
    channel: 'email',
    removed: ['bo@example.org'],
  });
  expect(await gate.suppressed('email', 'bo@example.org')).toBe(false);
  const lines = await createOperations('unbroker').list(world.database.pool, 10);
  expect(lines.map(({ act, changed }) => [act, changed])).toEqual([
    ['unsuppress', 1],
    ['suppress', 2],
  ]);
  expect(lines[0]?.by).toMatch(/^http:app as /);
  expect(lines[0]?.filter).toEqual({ suppression: 'email', recipients: [hashOf('bo@example.org')] });
});

it.each<[string, number, object, (keyof typeof KEYS)?]>([
  ['no recipients', 400, {}],
  ['none in the list', 400, { recipients: [] }],
  ['501', 400, { recipients: Array.from({ length: 501 }, (_, n) => `u${n}@example.org`) }],
  ['one that is no address', 422, { recipients: ['ok@example.org', 'Eve <eve@example.org>'] }],
  ['a line break', 422, { channel: 'sms', recipients: ['+1\n+2'] }],
  ['a number', 422, { recipients: [5] }],
  ['a channel that is none', 400, { channel: 'fax', recipients: ['1'] }],
  ['an unknown member', 400, { recipients: ['ok@example.org'], by: 'me' }],
  ['a key for another channel', 403, { recipients: ['ok@example.org'] }, 'texter'],
  ['a key that may only read', 403, { recipients: ['ok@example.org'] }, 'reader'],
])('%s: %d, nothing changed', async (_name, status, body, key) => {
  const count = async () =>
    (await world.database.pool.query('select count(*) from unbroker.suppressions')).rows[0];
  const before = await count();
  const answer = await ask('/suppressions', body, key);
  expect(answer.status).toBe(status);
  expect(JSON.stringify(answer.body)).not.toContain('eve@example.org');
  expect(await count()).toEqual(before);
});
