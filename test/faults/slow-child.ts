/**
 * Opens connections to an HTTP door, sends half a request on each and leaves them. What is closed is opened again a while
 * later, until it is told to stop. Prints how many were opened and are open, twice a second.
 */
import { connect, type Socket } from 'node:net';

const [port = 0, count = 0, perMs = 1, address = 0] = process.argv.slice(2).map(Number);
const AGAIN_MS = 3_000;
const HEAD = 'POST /notifications HTTP/1.1\r\nhost: localhost\r\nx-slow: ';
const open = new Set<Socket>();
let opened = 0;
let refused = 0;
let failed = 0;
let stopped = false;

function openOne(): void {
  const socket = connect({ port, host: '127.0.0.1', localAddress: `127.0.0.${address}` });
  let heard = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    heard += chunk;
  });
  socket.on('connect', () => {
    opened += 1;
    open.add(socket);
    socket.write(HEAD);
  });
  socket.on('error', () => undefined);
  socket.on('close', () => {
    if (!open.delete(socket)) failed += 1;
    if (heard.startsWith('HTTP/1.1 503')) refused += 1;
    if (!stopped) setTimeout(() => stopped || openOne(), AGAIN_MS).unref();
  });
}

let begun = 0;
const opening = setInterval(() => {
  for (let n = 0; n < perMs * 10 && begun < count; n += 1) {
    begun += 1;
    openOne();
  }
  if (begun >= count) clearInterval(opening);
}, 10);
setInterval(() => {
  process.stdout.write(`${JSON.stringify({ begun, opened, open: open.size, refused, failed })}\n`);
}, 500);
process.on('SIGUSR2', () => {
  stopped = true;
});
