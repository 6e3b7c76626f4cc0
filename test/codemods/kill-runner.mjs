/**
 * Runs one function of a kill point's `place.mjs` and dies when the nth answer arrives: ReadyForQuery of Postgres,
 * whichever driver reads it, or a confirm of the broker. Without a death it ends with 0. Started by kill-points.ts.
 */
import { createRequire } from 'node:module';
import net from 'node:net';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const { FOLDER, DATABASE_URL, AMQP_URL, KILL_AFTER, CUSTOMER, SHAPE } = process.env;
const killAfter = Number(KILL_AFTER);
const port = Number(new URL(DATABASE_URL).port || 5432);
let counting = false;
let answers = 0;

function answered() {
  if (!counting || ++answers !== killAfter) return;
  process.kill(process.pid, 'SIGKILL');
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}

/** Every message of the server is a letter and a length; Z is ReadyForQuery. */
const rest = new WeakMap();
const { push } = net.Socket.prototype;
net.Socket.prototype.push = function counted(chunk, encoding) {
  if (chunk !== null && this.remotePort === port) {
    const before = rest.get(this) ?? Buffer.alloc(0);
    let bytes = Buffer.concat([before, chunk]);
    while (bytes.length >= 5 && bytes.length >= 1 + bytes.readUInt32BE(1)) {
      if (bytes[0] === 0x5a) answered();
      bytes = bytes.subarray(1 + bytes.readUInt32BE(1));
    }
    rest.set(this, bytes);
  }
  return push.call(this, chunk, encoding);
};

const amqp = createRequire(join(FOLDER, 'package.json'))('amqplib');
const connection = await amqp.connect(AMQP_URL);
connection.on('error', () => {});
const channel = await connection.createConfirmChannel();
channel.on('error', () => {});
const publish = channel.publish.bind(channel);
channel.publish = (exchange, key, content, options, confirmed) =>
  publish(exchange, key, content, options, (...reply) => {
    answered();
    confirmed?.(...reply);
  });

const source = (name) => import(pathToFileURL(join(FOLDER, 'src', name)).href);
const { close } = await source('db.mjs');
const { Bus } = await source('bus.mjs');
const place = (await source('place.mjs'))[SHAPE];
counting = true;
await place(new Bus(channel), CUSTOMER);
counting = false;
await connection.close();
await close();
process.exit(0);
