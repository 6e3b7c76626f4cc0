/** The unmodified notifications-node-client against the shim: its own JWT, its own shapes. */
import { createHmac } from 'node:crypto';
import notify from 'notifications-node-client';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { jobIdOf, uuidOf } from '../../src/shims/govuk-notify.js';
import { type ShimWorld, startShimWorld } from './shim-world.js';

const SERVICE = '11111111-2222-4333-8444-555555555555';
const SECRET = 'aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee';
const TEMPLATE = 'f33517ff-2a88-4f6e-b855-c550268ce08a';

let world: ShimWorld;
// biome-ignore lint/suspicious/noExplicitAny: the package's answers are axios's
let client: any;

beforeAll(async () => {
  world = await startShimWorld({
    serve: {
      contracts: ['trio', 'govuk-notify'],
      keys: [
        { name: 'app', env: 'APP' },
        { name: 'reader', env: 'READER', verbs: ['read'] },
      ],
    },
    environment: {
      APP: `live-${SERVICE}-${SECRET}`,
      READER: `live-${SERVICE.replaceAll('1', '9')}-${SECRET.replaceAll('a', 'f')}`,
    },
  });
  client = new notify.NotifyClient(world.url, `live-${SERVICE}-${SECRET}`);
  for (const name of ['Old', 'New'])
    await put('email', { subject: `${name} {{name}}`, text: `Dear {{name}}` });
  await put('sms', { text: 'Code {{code}}' }, `${TEMPLATE.slice(0, -1)}b`);
});
afterAll(() => world?.close());

async function put(channel: string, parts: object, key = TEMPLATE, locale = 'en'): Promise<void> {
  const answer = await fetch(`${world.url}/templates/${key}`, {
    method: 'PUT',
    headers: { 'content-type': 'application/json', 'x-api-key': `live-${SERVICE}-${SECRET}` },
    body: JSON.stringify({ channel, parts, locale }),
  });
  if (!answer.ok) throw new Error(await answer.text());
}

const failure = async (call: Promise<unknown>) => {
  const error = await call.then(
    () => null,
    (thrown: unknown) => thrown as { response: { status: number; data: { errors: { error: string }[] } } },
  );
  return error?.response;
};

it('email: accepted with its content, found again, listed', async () => {
  const { status, data } = await client.sendEmail(TEMPLATE, 'ann@example.org', {
    personalisation: { name: 'Ann' },
    reference: 'ref-1',
    oneClickUnsubscribeURL: 'https://example.org/u?x=1',
  });
  expect(status).toBe(201);
  expect(data).toMatchObject({
    reference: 'ref-1',
    content: { subject: 'New Ann', body: 'Dear Ann' },
    template: { id: TEMPLATE, version: 2 },
  });
  expect(data.id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(JSON.parse(await world.payloadText(jobIdOf(data.id)))).toMatchObject({
    template: TEMPLATE,
    version: 2,
    unsubscribeUrl: 'https://example.org/u?x=1',
  });
  const one = (await client.getNotificationById(data.id)).data;
  expect(one).toMatchObject({
    id: data.id,
    reference: 'ref-1',
    type: 'email',
    status: 'created',
    email_address: 'ann@example.org',
    subject: 'New Ann',
    body: 'Dear Ann',
  });
  const listed = (await client.getNotifications('email', 'created', 'ref-1')).data;
  expect(listed.notifications.map(({ id }: { id: string }) => id)).toEqual([data.id]);
  expect((await client.getNotifications('email', 'delivered')).data.notifications).toEqual([]);
  expect(
    (await client.getNotifications(undefined, undefined, undefined, data.id)).data.notifications,
  ).toEqual([]);
});

it('sms: by its number', async () => {
  const { data } = await client.sendSms(`${TEMPLATE.slice(0, -1)}b`, '+447700900000', {
    personalisation: { code: '17' },
  });
  expect(data.content).toMatchObject({ body: 'Code 17' });
  expect((await client.getNotificationById(data.id)).data).toMatchObject({
    type: 'sms',
    phone_number: '+447700900000',
    email_address: null,
  });
});

it('of one reference: of the type that is asked for', async () => {
  const send = { reference: 'ref-both', personalisation: { name: 'Ann', code: '17' } };
  const mail = await client.sendEmail(TEMPLATE, 'ann@example.org', send);
  const text = await client.sendSms(`${TEMPLATE.slice(0, -1)}b`, '+447700900002', send);
  const listed = async (type?: string): Promise<string[]> =>
    (await client.getNotifications(type, undefined, 'ref-both')).data.notifications.map(
      ({ id }: { id: string }) => id,
    );
  expect(await listed('email')).toEqual([mail.data.id]);
  expect(await listed('sms')).toEqual([text.data.id]);
  expect(await listed()).toEqual([text.data.id, mail.data.id]);
});

it('a file, and an object where a text is wanted, are refused, nothing stored', async () => {
  const before = await world.jobCount();
  for (const [name, says] of [
    [client.prepareUpload(Buffer.from('%PDF')), 'Sending files by email is not served'],
    [{ first: 'Ann' }, 'prints an object'],
  ]) {
    const refused = await failure(client.sendEmail(TEMPLATE, 'a@example.org', { personalisation: { name } }));
    expect(refused?.status).toBe(400);
    expect(JSON.stringify(refused?.data)).toContain(says);
    expect((await failure(client.previewTemplateById(TEMPLATE, { name })))?.status).toBe(400);
  }
  expect(await world.jobCount()).toBe(before);
});

it('templates: as they are, as they were, previewed', async () => {
  expect((await client.getTemplateById(TEMPLATE)).data).toMatchObject({
    id: TEMPLATE,
    type: 'email',
    version: 2,
    subject: 'New {{name}}',
  });
  expect((await client.getTemplateByIdAndVersion(TEMPLATE, 1)).data).toMatchObject({
    version: 1,
    subject: 'Old {{name}}',
  });
  for (const [key, version] of [
    [TEMPLATE, 3],
    ['order-shipped', 2],
  ])
    expect((await failure(client.getTemplateByIdAndVersion(key, version)))?.data.errors[0]?.error).toBe(
      'NoResultFound',
    );
  expect((await client.previewTemplateById(TEMPLATE, { name: 'Bo' })).data).toMatchObject({
    type: 'email',
    version: 2,
    subject: 'New Bo',
    body: 'Dear Bo',
  });
});

it('lists its templates: written ones as they are now, files that nothing hides, of one type or all', async () => {
  await put('email', { subject: 'For all', text: 'x' }, 'shadowed', 'default');
  await put('email', { subject: 'In English', text: 'x' }, 'shadowed', 'en');
  await put('email', { subject: 'Over the file', text: 'x' }, 'order-note');
  const { templates } = (await client.getAllTemplates()).data as {
    templates: { id: string; type: string; version: number; subject?: string; created_at: string | null }[];
  };
  const of = (id: string) => templates.filter((one) => one.id === id);
  expect(of(TEMPLATE)).toMatchObject([
    { type: 'email', version: 2, subject: 'New {{name}}', body: 'Dear {{name}}', created_by: 'unbroker' },
  ]);
  expect(of('shadowed')).toMatchObject([{ subject: 'In English', version: 2 }]);
  expect(of('order-note')).toMatchObject([{ subject: 'Over the file', version: 1 }]);
  expect(of('order-shipped').map(({ type, version, created_at }) => [type, version, created_at])).toEqual([
    ['email', 1, null],
    ['sms', 1, null],
  ]);
  expect(templates.map(({ id }) => id)).toEqual(templates.map(({ id }) => id).toSorted());
  const texts = (await client.getAllTemplates('sms')).data.templates as { id: string; type: string }[];
  expect(new Set(texts.map(({ type }) => type))).toEqual(new Set(['sms']));
  expect(texts.map(({ id }) => id)).toContain(`${TEMPLATE.slice(0, -1)}b`);
  expect((await client.getAllTemplates('letter')).data.templates).toEqual([]);
  expect((await failure(client.getAllTemplates('fax')))?.data.errors[0]?.error).toBe('ValidationError');
  // As one of them is read, so it is listed.
  const { data } = await client.getTemplateById(TEMPLATE);
  expect(of(TEMPLATE)[0]).toEqual(data);
});

it('letters: refused as the service refuses them where they are not allowed, nothing stored', async () => {
  const before = await world.jobCount();
  for (const call of [
    client.sendLetter(TEMPLATE, { personalisation: { address_line_1: 'A', postcode: 'SW1A 1AA' } }),
    client.sendPrecompiledLetter('ref', Buffer.from('%PDF-1.4'), 'first'),
  ]) {
    const refused = await failure(call);
    expect(refused?.status).toBe(400);
    expect(refused?.data).toEqual({
      status_code: 400,
      errors: [{ error: 'BadRequestError', message: 'Service is not allowed to send letters' }],
    });
  }
  expect(await world.jobCount()).toBe(before);
  const { data } = await client.sendSms(`${TEMPLATE.slice(0, -1)}b`, '+447700900001', {
    personalisation: { code: '18' },
  });
  const get = (id: string) => failure(client.getPdfForLetterNotification(id));
  expect((await get(data.id))?.status).toBe(400);
  expect((await get(SERVICE))?.status).toBe(404);
  expect((await client.getReceivedTexts()).data.received_text_messages).toEqual([]);
});

it('says no in its own words', async () => {
  const before = await world.jobCount();
  const missing = await failure(client.sendEmail(TEMPLATE, 'a@example.org', { personalisation: {} }));
  expect(missing).toMatchObject({ status: 400, data: { status_code: 400 } });
  expect(missing?.data.errors[0]).toMatchObject({ error: 'BadRequestError' });
  const unknown = await failure(client.sendEmail(SERVICE, 'a@example.org', {}));
  expect(unknown?.status).toBe(400);
  const address = await failure(client.sendEmail(TEMPLATE, 'not one', { personalisation: { name: 'x' } }));
  expect(address?.data.errors[0]?.error).toBe('ValidationError');
  expect((await failure(client.getNotificationById(SERVICE)))?.data.errors[0]?.error).toBe('NoResultFound');
  expect((await failure(client.previewTemplateById(SERVICE, {})))?.status).toBe(404);
  expect(await world.jobCount()).toBe(before);
});

it('a token that is unsigned, foreign, stale, or of another service is nobody’s', async () => {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const now = Math.floor(Date.now() / 1_000);
  const token = (secret: string, claims: object, alg = 'HS256'): string => {
    const signed = `${part({ alg, typ: 'JWT' })}.${part(claims)}`;
    return `${signed}.${alg === 'none' ? '' : createHmac('sha256', secret).update(signed).digest('base64url')}`;
  };
  const ask = async (bearer: string): Promise<number> => {
    const answer = await fetch(`${world.url}/v2/notifications`, {
      headers: { authorization: `Bearer ${bearer}` },
    });
    return answer.status;
  };
  expect(await ask(token(SECRET, { iss: SERVICE, iat: now }))).toBe(200);
  for (const bad of [
    token(SECRET, { iss: SERVICE, iat: now }, 'none'),
    token(SECRET, { iss: SERVICE, iat: now }, 'HS512'),
    token('x', { iss: SERVICE, iat: now }),
    token(SECRET, { iss: SERVICE, iat: now - 3_600 }),
    token(SECRET, { iss: SERVICE, iat: now + 3_600 }),
    token(SECRET, { iss: SERVICE }),
    token(SECRET, { iss: TEMPLATE, iat: now }),
    `live-${SERVICE}-${SECRET}`,
    'a.b',
  ])
    expect(await ask(bad)).toBe(403);
  const reader = new notify.NotifyClient(
    world.url,
    `live-${SERVICE.replaceAll('1', '9')}-${SECRET.replaceAll('a', 'f')}`,
  );
  expect((await reader.getNotifications()).status).toBe(200);
  expect((await failure(reader.sendEmail(TEMPLATE, 'a@example.org', {})))?.status).toBe(403);
});

it('ids there and back', () => {
  for (const id of ['1', '4711', '9223372036854775807']) expect(jobIdOf(uuidOf(id))).toBe(id);
});
