/**
 * A program for the guardian's tests: it opens a service folder, runs a stand-in for a server out of it, and ends in
 * the way that a word on its standard input says.
 */

import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { PrivateServer } from './private-server.js';
import { openServiceFolder } from './service-folder.js';

const folder = openServiceFolder('test');
const server = new PrivateServer({
  command: 'sh',
  args: ['-c', 'sleep 1000 & wait'],
  environment: folder.environment(),
  cwd: folder.path,
  logFile: join(folder.path, 'server.log'),
});
server.spawn();
console.log(`folder=${folder.path} pid=${server.pid}`);

createInterface({ input: process.stdin }).on('line', (word) => {
  if (word === 'throw') throw new Error('as asked');
  if (word === 'exit') process.exit(0);
  if (word === 'close') {
    void folder.close();
    process.stdin.destroy();
  }
});
