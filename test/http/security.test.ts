/** Who may do what: keys, signatures, certificates; the matrix of principals, services, verbs and kinds; many slow clients. */
import { execFile } from 'node:child_process';
import { createHash, createHmac } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { request as requestHttps } from 'node:https';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkServeConfig } from '../../src/shims/config.js';
import { until } from '../support/until.js';
import { rawPost, type ShimWorld, sendRaw, startShimWorld } from './shim-world.js';

const KEYS = {
  ALL: 'all-'.padEnd(32, 'a'),
  MAIL: 'mail'.padEnd(32, 'b'),
  READ: 'read'.padEnd(32, 'c'),
  KIND: 'kind'.padEnd(32, 'd'),
  SIGN: 'sign'.padEnd(32, 'e'),
};
let world: ShimWorld;

beforeAll(async () => {
  world = await startShimWorld({
    serve: {
      kinds: ['team.a', 'team.b'],
      keys: [
        { name: 'all', env: 'ALL' },
        { name: 'mail', env: 'MAIL', services: ['notification'] },
        { name: 'read', env: 'READ', verbs: ['read'] },
        { name: 'kind', env: 'KIND', kinds: ['team.a', 'notify.sms'] },
        { name: 'sign', env: 'SIGN', hmac: true },
      ],
    },
    environment: KEYS,
  });
});
afterAll(() => world?.close());

async function ask(key: string | null, method: string, path: string, body?: unknown) {
  const answer = await fetch(`${world.url}${path}`, {
    method,
    headers: {
      ...(key === null ? {} : { 'x-api-key': key }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  return { status: answer.status, body: text === '' ? null : JSON.parse(text) };
}

const mail = { to: 'a@example.org', body: 'x' };
const sms = { to: '+15550100', channel: 'sms', body: 'x' };
const scheduled = (kind: string) => ({ delayMs: 600_000, target: { kind }, payload: 1 });
const cron = (kind: string) => ({ cron: '0 0 1 1 *', target: { kind }, payload: 1 });

describe('the matrix of principals, services, verbs and kinds', () => {
  it.each<[string, string | null, string, string, unknown, number]>([
    ['nobody sends', null, 'POST', '/notifications', mail, 401],
    ['a wrong key sends', 'x'.repeat(32), 'POST', '/notifications', mail, 401],
    ['all sends', KEYS.ALL, 'POST', '/notifications', mail, 202],
    ['mail sends', KEYS.MAIL, 'POST', '/notifications', mail, 202],
    ['mail lists', KEYS.MAIL, 'GET', '/notifications', undefined, 200],
    ['mail schedules', KEYS.MAIL, 'POST', '/schedules', scheduled('team.a'), 403],
    ['mail reads schedules', KEYS.MAIL, 'GET', '/schedules', undefined, 403],
    ['mail reads dead letters', KEYS.MAIL, 'GET', '/dead-letters', undefined, 403],
    ['read lists', KEYS.READ, 'GET', '/dead-letters', undefined, 200],
    ['read previews', KEYS.READ, 'POST', '/templates/none/preview', { data: {} }, 404],
    ['read sends', KEYS.READ, 'POST', '/notifications', mail, 403],
    ['read writes a template', KEYS.READ, 'PUT', '/templates/x', { parts: { text: 'x' } }, 403],
    ['read replays', KEYS.READ, 'POST', '/dead-letters/replay', { ids: ['1'] }, 403],
    ['kind sends sms', KEYS.KIND, 'POST', '/notifications', sms, 202],
    ['kind sends mail', KEYS.KIND, 'POST', '/notifications', mail, 403],
    [
      'kind batches one of each',
      KEYS.KIND,
      'POST',
      '/notifications/batch',
      { notifications: [sms, mail] },
      403,
    ],
    ['kind schedules its own', KEYS.KIND, 'POST', '/schedules', scheduled('team.a'), 201],
    ['kind schedules another', KEYS.KIND, 'POST', '/schedules', scheduled('team.b'), 403],
    ['kind puts its own cron', KEYS.KIND, 'PUT', '/schedules/mine', cron('team.a'), 201],
    ['kind puts another cron', KEYS.KIND, 'PUT', '/schedules/theirs', cron('team.b'), 403],
    ['kind replaces another', KEYS.KIND, 'PUT', '/schedules/once', scheduled('team.b'), 403],
    ['kind retries another', KEYS.KIND, 'POST', '/retries', { payload: 1, target: { kind: 'team.b' } }, 403],
    ['a signing key is sent', KEYS.SIGN, 'GET', '/notifications', undefined, 401],
  ])('%s', async (_name, key, method, path, body, status) => {
    const before = await world.jobCount();
    expect((await ask(key, method, path, body)).status).toBe(status);
    if (status >= 400) expect(await world.jobCount()).toBe(before);
  });

  it('a key for some kinds cannot run others by replaying, hurrying, triggering or editing them', async () => {
    const { rows } = await world.database.pool.query<{ id: string }>(
      `insert into unbroker.jobs (kind, payload, state, finished_at, source)
       values ('team.b', '1', 'dead', now(), 'x'), ('team.a', '1', 'dead', now(), 'x') returning id::text`,
    );
    const [theirs = '', mine = ''] = rows.map(({ id }) => id);
    expect((await ask(KEYS.KIND, 'POST', `/dead-letters/${theirs}/replay`)).status).toBe(404);
    expect((await ask(KEYS.KIND, 'PATCH', `/dead-letters/${theirs}`, { payload: 2 })).status).toBe(403);
    expect(
      (await ask(KEYS.KIND, 'PATCH', `/dead-letters/${mine}`, { target: { kind: 'team.b' } })).status,
    ).toBe(403);
    const replayed = await ask(KEYS.KIND, 'POST', '/dead-letters/replay', { filter: { from: '1970-01-01' } });
    expect(replayed.body.ids).toEqual([mine]);
    await ask(KEYS.ALL, 'PUT', '/schedules/of-b', cron('team.b'));
    expect((await ask(KEYS.KIND, 'POST', '/schedules/of-b/trigger')).status).toBe(404);
    expect((await ask(KEYS.KIND, 'DELETE', '/schedules/of-b')).status).toBe(404);
    expect((await ask(KEYS.KIND, 'PATCH', '/schedules/mine', { target: { kind: 'team.b' } })).status).toBe(
      403,
    );
    const { body } = await ask(KEYS.ALL, 'POST', '/notifications', { ...mail, delayMs: 600_000 });
    expect((await ask(KEYS.KIND, 'POST', `/notifications/${body.id}/send-now`)).status).toBe(404);
  });
});

describe('who changed what is written down', () => {
  interface Line {
    readonly act: string;
    readonly filter: {
      readonly ids?: readonly string[];
      readonly schedule?: string;
      readonly template?: string;
    };
    readonly by: string;
    readonly changed: string;
    readonly finished: boolean;
  }
  const lines = async (): Promise<Line[]> => {
    const { rows } = await world.database.pool.query<Line>(
      `select act, filter, by, changed, finished_at is not null as finished from unbroker.operations order by id`,
    );
    return rows;
  };
  /** What these requests wrote: act, rows, number. Each by the principal and the database role. */
  const noted = async (work: () => Promise<unknown>, key = 'all') => {
    const before = (await lines()).length;
    await work();
    const added = (await lines()).slice(before);
    for (const { by, finished } of added) {
      expect(by).toMatch(new RegExp(`^http:${key} as .`));
      expect(finished).toBe(true);
    }
    return added.map(({ act, filter, changed }) => [act, filter, Number(changed)]);
  };
  const ok = async (method: string, path: string, body?: unknown, key = KEYS.ALL) => {
    const answer = await ask(key, method, path, body);
    expect(answer.status).toBeLessThan(300);
    return answer.body;
  };
  const later = async (tag: string): Promise<string> =>
    (await ok('POST', '/notifications', { ...mail, delayMs: 600_000, tags: [tag] })).id;
  const dead = async (count: number): Promise<string[]> => {
    const { rows } = await world.database.pool.query<{ id: string }>(
      `insert into unbroker.jobs (kind, payload, state, finished_at, source)
       select 'team.a', '1', 'dead', now(), 'audit' from generate_series(1, $1::int) returning id::text`,
      [count],
    );
    return rows.map(({ id }) => id);
  };

  it('cancel, hurry, replay, discard and edit of jobs; not what only adds or reads', async () => {
    const [one, two, three, four] = [await later('a'), await later('a'), await later('b'), await later('b')];
    const [lost = '', found = '', gone = '', changed = ''] = await dead(4);
    expect(await noted(() => later('c'))).toEqual([]);
    expect(await noted(() => ok('GET', `/notifications/${one}`))).toEqual([]);
    expect(await noted(() => ok('POST', `/notifications/${one}/cancel`))).toEqual([
      ['cancel', { ids: [one] }, 1],
    ]);
    expect(
      await noted(() => ok('POST', `/notifications/${two}/send-now`, undefined, KEYS.MAIL), 'mail'),
    ).toEqual([['run-now', { ids: [two] }, 1]]);
    expect(await noted(() => ok('POST', '/notifications/cancel', { tag: 'b' }))).toEqual([
      ['cancel', { ids: [three, four] }, 2],
    ]);
    expect(await noted(() => ok('POST', `/dead-letters/${lost}/replay`))).toEqual([
      ['retry', { ids: [lost] }, 1],
    ]);
    expect(await noted(() => ok('POST', '/dead-letters/replay', { ids: [found, '404'] }))).toEqual([
      ['retry', { ids: [found] }, 1],
    ]);
    expect(await noted(() => ok('POST', `/dead-letters/${gone}/discard`))).toEqual([
      ['dismiss', { ids: [gone] }, 1],
    ]);
    expect(await noted(() => ok('PATCH', `/dead-letters/${changed}`, { payload: { secret: 1 } }))).toEqual([
      ['edit', { ids: [changed] }, 1],
    ]);
  });

  it('pause, resume, trigger, edit and deletion of schedules; a new version of a template', async () => {
    const rule = cron('team.a');
    expect(await noted(() => ok('PUT', '/schedules/audited', rule))).toEqual([]);
    const named = { schedule: 'audited' };
    expect(await noted(() => ok('PUT', '/schedules/audited', rule))).toEqual([['edit', named, 1]]);
    for (const act of ['pause', 'resume'])
      expect(await noted(() => ok('POST', `/schedules/audited/${act}`))).toEqual([[act, named, 1]]);
    expect(await noted(() => ok('POST', '/schedules/audited/trigger'))).toEqual([
      ['trigger', { ...named, ids: [expect.stringMatching(/^\d+$/)] }, 1],
    ]);
    expect(await noted(() => ok('PATCH', '/schedules/audited', { cron: '0 0 2 1 *' }))).toEqual([
      ['edit', named, 1],
    ]);
    expect(await noted(() => ok('DELETE', '/schedules/audited'))).toEqual([['delete', named, 1]]);
    const once = await ok('PUT', '/schedules/audited-once', scheduled('team.a'));
    expect(await noted(() => ok('PUT', '/schedules/audited-once', scheduled('team.a')))).toEqual([
      ['cancel', { ids: [once.id] }, 1],
    ]);
    const parts = { subject: 'x', text: 'y' };
    expect(await noted(() => ok('PUT', '/templates/audited', { channel: 'email', parts }))).toEqual([
      ['edit', { template: 'audited', version: 1 }, 1],
    ]);
  });

  it('nothing for what was refused, missed or came again; nothing is changed that cannot be written down', async () => {
    const id = await later('d');
    const cancel = (key: string) =>
      fetch(`${world.url}/notifications/${id}/cancel`, {
        method: 'POST',
        headers: { 'x-api-key': KEYS.ALL, 'idempotency-key': key },
      });
    await world.database.pool.query('alter table unbroker.operations rename to operations_away');
    expect((await cancel('away')).status).toBe(500);
    await world.database.pool.query('alter table unbroker.operations_away rename to operations');
    expect((await ask(KEYS.ALL, 'GET', `/notifications/${id}`)).body.status).toBe('accepted');
    // Nor is written down what was taken back: the answer could not be kept.
    const { pool } = world.database;
    await pool.query('alter table unbroker.requests add constraint none check (status is null) not valid');
    expect(await noted(async () => expect((await cancel('unkept')).status).toBe(500))).toEqual([]);
    await pool.query('alter table unbroker.requests drop constraint none');
    expect((await ask(KEYS.ALL, 'GET', `/notifications/${id}`)).body.status).toBe('accepted');
    expect(await noted(() => ask(KEYS.READ, 'POST', `/notifications/${id}/cancel`))).toEqual([]);
    expect(await noted(() => ask(KEYS.ALL, 'POST', '/notifications/404/cancel'))).toEqual([]);
    expect(
      await noted(async () => {
        for (let n = 0; n < 3; n += 1) expect((await cancel('again')).status).toBe(202);
      }),
    ).toEqual([['cancel', { ids: [id] }, 1]]);
    expect(await noted(() => ask(KEYS.ALL, 'POST', `/notifications/${id}/cancel`))).toEqual([]);
  });
});

describe('signed requests', () => {
  interface Signed {
    readonly method?: string;
    readonly path?: string;
    readonly body?: string;
    readonly sentBody?: string;
    readonly sentPath?: string;
    readonly sentMethod?: string;
    readonly name?: string;
    readonly secret?: string;
    readonly ageS?: number;
  }
  const send = async (given: Signed): Promise<number> => {
    const { method = 'POST', path = '/notifications', body = JSON.stringify(mail), ageS = 0 } = given;
    const timestamp = String(Math.floor(Date.now() / 1_000) - ageS);
    const text = [timestamp, method, path, createHash('sha256').update(body).digest('hex')].join('\n');
    const signature = createHmac('sha256', given.secret ?? KEYS.SIGN)
      .update(text)
      .digest('hex');
    const answer = await fetch(`${world.url}${given.sentPath ?? path}`, {
      method: given.sentMethod ?? method,
      headers: {
        'x-key': given.name ?? 'sign',
        'x-timestamp': timestamp,
        'x-signature': `v1=${signature}`,
        ...(method === 'GET' ? {} : { 'content-type': 'application/json' }),
      },
      ...(method === 'GET' ? {} : { body: given.sentBody ?? body }),
    });
    await answer.arrayBuffer();
    return answer.status;
  };

  it.each<[string, Signed, number]>([
    ['as it should be', {}, 202],
    ['without a body', { method: 'GET', path: '/notifications?limit=1', body: '' }, 200],
    ['another body', { sentBody: JSON.stringify({ ...mail, body: 'y' }) }, 401],
    ['another path', { sentPath: '/schedules' }, 401],
    [
      'another method',
      { path: '/schedules/signed', body: JSON.stringify(cron('team.a')), sentMethod: 'PUT' },
      401,
    ],
    [
      'another query',
      { method: 'GET', path: '/notifications?limit=1', sentPath: '/notifications?limit=2', body: '' },
      401,
    ],
    ['another secret', { secret: KEYS.ALL }, 401],
    ['the name of a key that is sent', { name: 'all', secret: KEYS.ALL }, 401],
    ['old', { ageS: 600 }, 401],
    ['from the future', { ageS: -600 }, 401],
    ['a route that is not there, with a body', { path: '/openapi.json' }, 401],
  ])('%s', async (_name, given, status) => {
    const before = await world.jobCount();
    expect(await send(given)).toBe(status);
    if (status >= 400) expect(await world.jobCount()).toBe(before);
  });
});

describe('certificates', () => {
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-tls-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  // Not the synchronous one: the run's services take a process that does not answer for dead.
  const openssl = (...args: string[]) => promisify(execFile)('openssl', args, { cwd: folder });
  const pem = (name: string): Buffer => readFileSync(join(folder, name));

  async function issue(name: string, ca: string): Promise<void> {
    await openssl(
      'req',
      '-newkey',
      'rsa:2048',
      '-nodes',
      '-keyout',
      `${name}.key`,
      '-out',
      `${name}.csr`,
      '-subj',
      `/CN=${name}`,
    );
    await openssl(
      'x509',
      '-req',
      '-in',
      `${name}.csr`,
      '-CA',
      `${ca}.crt`,
      '-CAkey',
      `${ca}.key`,
      '-CAcreateserial',
      '-days',
      '2',
      '-out',
      `${name}.crt`,
    );
  }

  it('a certificate that the authority signed is its principal; any other is nobody', async () => {
    for (const ca of ['ca', 'other'])
      await openssl(
        'req',
        '-x509',
        '-newkey',
        'rsa:2048',
        '-nodes',
        '-keyout',
        `${ca}.key`,
        '-out',
        `${ca}.crt`,
        '-days',
        '2',
        '-subj',
        `/CN=${ca}`,
      );
    await issue('localhost', 'ca');
    await issue('known', 'ca');
    await issue('unknown', 'ca');
    await issue('forged', 'other');
    const fingerprint = (name: string): string => {
      const text = pem(`${name}.crt`).toString();
      const der = Buffer.from(text.replace(/-----[^-]+-----|\s/g, ''), 'base64');
      return createHash('sha256').update(der).digest('hex');
    };
    const tls = await startShimWorld({
      files: { 'a.crt': pem('localhost.crt'), 'a.key': pem('localhost.key'), 'ca.crt': pem('ca.crt') },
      serve: {
        tls: { certFile: 'a.crt', keyFile: 'a.key', caFile: 'ca.crt' },
        keys: [
          { name: 'known', certificate: fingerprint('known'), verbs: ['read'] },
          // Listed, and signed by somebody else: an authority that was changed takes its clients along.
          { name: 'forged', certificate: fingerprint('forged') },
          { name: 'all', env: 'ALL' },
        ],
      },
      environment: KEYS,
    });
    const call = (client: string | null, method = 'GET', key?: string): Promise<number> =>
      new Promise((resolve, reject) => {
        const request = requestHttps({
          ...{ host: '127.0.0.1', servername: 'localhost', port: tls.port, method, path: '/notifications' },
          ca: pem('ca.crt'),
          checkServerIdentity: () => undefined,
          ...(client === null ? {} : { cert: pem(`${client}.crt`), key: pem(`${client}.key`) }),
          headers: key === undefined ? {} : { 'x-api-key': key },
          agent: false,
        });
        request.on('error', reject).on('response', (response) => {
          response.resume().on('end', () => resolve(response.statusCode ?? 0));
        });
        request.end();
      });
    try {
      expect(await call('known')).toBe(200);
      expect(await call('known', 'POST')).toBe(403);
      for (const client of ['unknown', 'forged', null]) expect(await call(client)).toBe(401);
      expect(await call('forged', 'GET', KEYS.ALL)).toBe(200);
    } finally {
      await tls.close();
    }
  });

  it.each([
    { keys: [{ name: 'a', certificate: 'a'.repeat(64) }] },
    { keys: [{ name: 'a', sha256: 'a'.repeat(64), hmac: true }] },
    { keys: [{ name: 'a', sha256: 'a'.repeat(64), env: 'A' }] },
    { tls: { certFile: 'a' } },
  ])('a config that would let nobody in is refused: %j', (config) => {
    expect(() => checkServeConfig(config)).toThrow(expect.objectContaining({ code: 'config-invalid' }));
  });
});

describe('more clients than connections', () => {
  const HALF = 'POST /notifications HTTP/1.1\r\nhost: localhost\r\nx-slow: ';
  /** Opens connections, sends half a request on each and leaves them. */
  function slowClients(port: number) {
    const sockets: Socket[] = [];
    let ended = 0;
    return {
      get ended() {
        return ended;
      },
      open(count: number): void {
        for (let n = 0; n < count; n += 1) {
          const socket = connect(port, '127.0.0.1');
          socket
            .resume()
            .on('error', () => undefined)
            .on('close', () => {
              ended += 1;
            });
          socket.write(HALF);
          sockets.push(socket);
        }
      },
      close(): void {
        for (const socket of sockets) socket.destroy();
      },
    };
  }

  it('slow ones hold no more than there are, and not for long', async () => {
    const world = await startShimWorld({ limits: { connections: 50, headersTimeoutMs: 1_000 } });
    const slow = slowClients(world.port);
    try {
      slow.open(1_000);
      await until('all are closed when their time is up', () => slow.ended === 1_000, { withinMs: 60_000 });
      expect((await fetch(`${world.url}/livez`)).status).toBe(200);
      expect(await world.jobCount()).toBe(0);
      const told = world.lines.filter((line) => line.includes('more connections than'));
      expect(told).toHaveLength(1);
    } finally {
      slow.close();
      await world.close();
    }
  });

  it('slow ones make room for others; where all are at work, a new one is told 503', async () => {
    const world = await startShimWorld({
      limits: { connections: 5, headersTimeoutMs: 60_000, requestTimeoutMs: 60_000 },
    });
    const slow = slowClients(world.port);
    const holder = await world.database.pool.connect();
    try {
      slow.open(20);
      await until('those above the limit are turned away', () => slow.ended === 15, { withinMs: 60_000 });
      const once = { headers: { connection: 'close' } };
      await until('another is served', async () =>
        fetch(`${world.url}/livez`, once).then(
          ({ status }) => status === 200,
          () => false,
        ),
      );
      await until('it took the place of one', () => slow.ended === 16);
      slow.close();
      await holder.query('begin; lock table unbroker.jobs in exclusive mode');
      const pending = Array.from({ length: 5 }, () =>
        sendRaw(world.port, [rawPost('/notifications', JSON.stringify(mail))], { maxMs: 30_000 }),
      );
      const full = async () => {
        const answer = await sendRaw(world.port, ['GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n']);
        return answer.status === 503 ? answer : null;
      };
      const refused = await until('there is no more room', full, { withinMs: 60_000 });
      expect(refused.headers['retry-after']).toBe('1');
      expect(refused.headers['content-type']).toBe('application/problem+json');
      await holder.query('commit');
      expect((await Promise.all(pending)).map(({ status }) => status)).toEqual(Array(5).fill(202));
    } finally {
      holder.release();
      slow.close();
      await world.close();
    }
  });
});

it('long lists on their way are bounded together, and so is silence on a connection', async () => {
  const world = await startShimWorld({ limits: { answerBytes: 200_000, stalledMs: 500 } });
  const holder = await world.database.pool.connect();
  try {
    await world.database.pool.query(
      `insert into unbroker.jobs (kind, payload, state, finished_at)
       select 'team.a', to_jsonb(repeat('x', 150000)), 'dead', now() from generate_series(1, 2)`,
    );
    const list = (limit: number) =>
      sendRaw(world.port, [`GET /dead-letters?limit=${limit} HTTP/1.1\r\nhost: localhost\r\n\r\n`]);
    const refused = await until('a list that is too long is refused', async () => {
      const answer = await list(2);
      return answer.status === 503 ? answer : null;
    });
    expect(refused.headers['retry-after']).toBe('1');
    // What was read makes room again.
    for (let n = 0; n < 3; n += 1)
      await until('a shorter one is answered', async () => (await list(1)).status === 200);
    await holder.query('begin; lock table unbroker.jobs in exclusive mode');
    const post = rawPost('/notifications', JSON.stringify(mail));
    expect(await sendRaw(world.port, [post])).toMatchObject({ status: 0, closed: true });
  } finally {
    await holder.query('rollback');
    holder.release();
    await world.close();
  }
});

it('a list ends early rather than fill the memory, and goes on below its last', async () => {
  await world.database.pool.query(
    `insert into unbroker.jobs (kind, payload, state, finished_at)
     select 'team.long', to_jsonb(repeat('x', 1000000)), 'dead', now() from generate_series(1, 20)`,
  );
  const ids = new Set<string>();
  let pages = 0;
  for (let before = ''; ; pages += 1) {
    const { body } = await ask(KEYS.ALL, 'GET', `/dead-letters?kind=team.long&limit=200${before}`);
    if (body.items.length === 0) break;
    for (const { id } of body.items) ids.add(id);
    before = `&before=${body.items.at(-1).id}`;
  }
  expect(ids.size).toBe(20);
  expect(pages).toBe(2);
  const filter = { kind: 'team.long' };
  const first = await ask(KEYS.ALL, 'POST', '/dead-letters/discard', { filter, limit: 500 });
  expect(first.body).toMatchObject({ discarded: 16, more: true });
});
