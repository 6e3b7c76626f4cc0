/** The fault proxy against a small echo server: what it promises to the tests that lean on it. */
import { connect, createServer, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type FaultProxy, startFaultProxy } from '../support/fault-proxy.js';
import { until } from '../support/until.js';

let proxy: FaultProxy;
const echoes = new Set<Socket>();
const server = createServer((socket) => {
  echoes.add(socket);
  socket.on('error', () => {});
  socket.pipe(socket);
});
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  proxy = await startFaultProxy(`tcp://user@127.0.0.1:${port}/x`);
});
afterAll(async () => {
  await proxy.close();
  for (const socket of echoes) socket.destroy();
  server.close();
});

interface Client {
  readonly socket: Socket;
  heard: string;
  closed: boolean;
}
function client(): Client {
  const socket = connect(Number(new URL(proxy.url).port), '127.0.0.1');
  const state: Client = { socket, heard: '', closed: false };
  socket.on('data', (chunk) => {
    state.heard += String(chunk);
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    state.closed = true;
  });
  return state;
}

test('passes everything on, both ways, and keeps user and path in its URL', async () => {
  expect(proxy.url).toMatch(/^tcp:\/\/user@127\.0\.0\.1:\d+\/x$/);
  const one = client();
  one.socket.write('hello');
  await until('the echo', () => one.heard === 'hello');
  one.socket.destroy();
  await until('the pair is gone', () => proxy.open === 0);
});

test('a black hole holds and, healed, delivers; only the open ones when told so', async () => {
  const one = client();
  one.socket.write('a');
  await until('the echo', () => one.heard === 'a');
  proxy.blackHole({ onlyOpen: true });
  one.socket.write('b');
  const two = client();
  two.socket.write('c');
  await until('the new one works', () => two.heard === 'c');
  expect(one.heard).toBe('a');
  proxy.blackHole();
  const three = client();
  three.socket.write('d');
  two.socket.write('d');
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect([one.heard, two.heard, three.heard]).toEqual(['a', 'c', '']);
  expect([one.closed, two.closed, three.closed]).toEqual([false, false, false]);
  proxy.heal();
  await until('all is delivered', () => one.heard === 'ab' && two.heard === 'cd' && three.heard === 'd');
  for (const { socket } of [one, two, three]) socket.destroy();
});

test('delays in order, cuts, refuses', async () => {
  const one = client();
  proxy.delay(80);
  const startedAt = Date.now();
  one.socket.write('1');
  await new Promise((resolve) => setTimeout(resolve, 10));
  one.socket.write('2');
  await until('the echo', () => one.heard === '12');
  expect(Date.now() - startedAt).toBeGreaterThan(150);
  proxy.cut();
  await until('it is cut', () => one.closed);
  proxy.refuse();
  const two = client();
  await until('it is refused', () => two.closed);
  proxy.heal();
  const three = client();
  three.socket.write('x');
  await until('it works again', () => three.heard === 'x');
  three.socket.destroy();
});
