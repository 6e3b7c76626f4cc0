/** A transcript without the old services: what is never written, which differences a declaration covers, ids on their way. */
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Declared, type Difference, declaredBy } from '../../src/shims/transcript/compare.js';
import { type Exchange, keptHeaders, readTranscript } from '../../src/shims/transcript/exchange.js';
import { startRecorder } from '../../src/shims/transcript/record.js';
import { replay } from '../../src/shims/transcript/replay.js';

test('what authenticates is dropped, whatever its case; the rest is kept', () => {
  const secret = 'sk-never-written';
  const names = ['Authorization', 'X-API-Key', 'Cookie', 'Set-Cookie', 'Proxy-Authorization', 'X-Signature'];
  const given = Object.fromEntries(names.map((name) => [name, secret]));
  expect(keptHeaders({ ...given, 'X-Trace': ['a', 'b'], Location: '/x' })).toEqual({
    'x-trace': 'a, b',
    location: '/x',
  });
});

test.each<[string, Partial<Declared>, boolean]>([
  ['the place itself', {}, true],
  ['another status', { status: 200 }, false],
  ['this status', { status: 400 }, true],
  ['any request', { request: '*' }, true],
  ['any id in the path', { request: 'GET /a/*/b' }, true],
  ['another method', { request: 'POST /a/1/b' }, false],
  ['a shorter path', { request: 'GET /a/*' }, false],
  ['a longer path', { request: 'GET /a/*/b/*' }, false],
  ['any index', { at: 'body.items[*].version' }, true],
  ['the beginning of the place', { at: 'body.items[2]' }, false],
  ['a place below it', { at: 'body.items[2].version.x' }, false],
  ['all below', { at: 'body.items.**' }, true],
  ['all below another', { at: 'body.other.**' }, false],
])('a declaration of %s', (_name, change, covers) => {
  const difference: Difference = {
    line: 1,
    request: 'GET /a/1/b',
    at: 'body.items[2].version',
    was: '',
    is: '',
  };
  const declared = { request: 'GET /a/1/b', at: 'body.items[2].version', reason: 'x', ...change };
  expect(declaredBy(difference, 400, [declared])).toBe(covers ? declared : null);
});

/** Gives each thing an id of its own kind and finds it again by it. */
function service(prefix: string): Server {
  const things = new Map<string, string>();
  return createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const headers = { 'content-type': 'application/json', 'x-service': 'things' };
      if (request.method === 'POST') {
        const id = `${prefix}-${things.size + 10_000_000}`;
        things.set(id, Buffer.concat(chunks).toString());
        response.writeHead(201, { ...headers, location: `/things/${id}` }).end(JSON.stringify({ id }));
        return;
      }
      const found = things.get(request.url?.split('/').at(-1) ?? '');
      response.writeHead(found === undefined ? 404 : 200, headers).end(found ?? '{}');
    });
  });
}

const folder = mkdtempSync(join(tmpdir(), 'unbroker-transcript-'));
const [was, is] = [service('old'), service('new')];
const servers = [was, is];
const urlOf = (server: Server): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
beforeAll(() =>
  Promise.all(servers.map((each) => new Promise<void>((done) => each.listen(0, '127.0.0.1', done)))),
);
afterAll(() => {
  for (const each of servers) each.close();
  rmSync(folder, { recursive: true, force: true });
});

test('a proxy changes nothing of an answer and writes for its owner alone; a replay follows ids and sees a changed status', async () => {
  const file = join(folder, 'things.ndjson');
  const recorder = await startRecorder({ target: urlOf(was), file });
  const post = await fetch(`${recorder.url}/things`, { method: 'POST', body: '{"n":1}' });
  expect([post.status, post.headers.get('x-service')]).toEqual([201, 'things']);
  const { id } = (await post.json()) as { id: string };
  expect(post.headers.get('location')).toBe(`/things/${id}`);
  expect(await (await fetch(`${recorder.url}/things/${id}`)).text()).toBe('{"n":1}');
  await recorder.close();
  expect(statSync(file).mode & 0o077).toBe(0);
  const exchanges = readTranscript(readFileSync(file, 'utf8'));
  const same = await replay(exchanges, { url: urlOf(is), declared: [] });
  expect(same).toMatchObject({ exchanges: 2, undeclared: [] });
  const changed = exchanges.map(
    (each): Exchange => ({ ...each, response: { ...each.response, status: 202 } }),
  );
  const other = await replay(changed, { url: urlOf(is), declared: [] });
  expect(other.undeclared.map(({ at }) => at)).toEqual(['status', 'status']);
});
