/** The sinks' control: POST /_control sets faults, GET /_control shows them and how much was taken. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { adjust, type Faults } from './faults.js';

const BODY_LIMIT = 1_048_576;

export async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > BODY_LIMIT) throw new Error('body too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

export function answer(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

/** True when it was a control request, answered. */
export async function control(
  request: IncomingMessage,
  response: ServerResponse,
  faults: Faults,
  taken: () => number,
): Promise<boolean> {
  if (request.url !== '/_control') return false;
  try {
    if (request.method === 'POST') adjust(faults, JSON.parse(await readBody(request)));
    answer(response, 200, { ...faults, taken: taken() });
  } catch (error) {
    answer(response, 400, { error: error instanceof Error ? error.message : String(error) });
  }
  return true;
}

export async function serve(
  port: number,
  handle: (request: IncomingMessage, response: ServerResponse) => Promise<void>,
): Promise<{ server: Server; url: string }> {
  const server = createServer((request, response) => {
    handle(request, response).catch((error) => {
      console.error(error instanceof Error ? error.message : String(error));
      response.destroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}
