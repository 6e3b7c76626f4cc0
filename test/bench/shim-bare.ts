/**
 * The yardstick of the shim bench: node:http, JSON.parse, one insert a request on the same table through the same kind of
 * pool, 202 after the commit. As fast as we could make it: a prepared statement, no framework, no checks, no log.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import pg from 'pg';

const pool = new pg.Pool({ connectionString: process.env['DATABASE_URL'], max: 10 });

const INSERT = {
  name: 'insert',
  text: 'insert into unbroker.jobs (kind, payload, source) values ($1, $2, $3) returning id::text',
};

const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const { channel = 'email', ...payload } = JSON.parse(Buffer.concat(chunks).toString('utf8')) as {
      channel?: string;
    };
    pool
      .query({ ...INSERT, values: [`notify.${channel}`, JSON.stringify(payload), 'trio:notification'] })
      .then(
        ({ rows }) => {
          const id = (rows[0] as { id: string }).id;
          const body = JSON.stringify({ id, status: 'accepted' });
          response.writeHead(202, {
            'content-type': 'application/json; charset=utf-8',
            'content-length': Buffer.byteLength(body),
            location: `/notifications/${id}`,
          });
          response.end(body);
        },
        () => response.writeHead(500).end(),
      );
  });
});

server.listen(0, '127.0.0.1', () => {
  console.log(`bare listening on http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
