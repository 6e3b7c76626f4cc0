/**
 * A load generator: keep-alive connections that each send the same request again as soon as its answer is complete. Raw
 * sockets, since fetch would be slower than what it measures.
 */
import { connect } from 'node:net';

export interface LoadResult {
  /** Answers with the expected status. */
  readonly accepted: number;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Any other answer, or a connection that ended. */
  readonly errors: number;
}

export interface Load {
  readonly port: number;
  readonly request: Buffer;
  readonly status: number;
  readonly connections: number;
  readonly forMs: number;
}

export async function generateLoad({ port, request, status, connections, forMs }: Load): Promise<LoadResult> {
  const latenciesMs: number[] = [];
  let errors = 0;
  const endAt = performance.now() + forMs;
  const wanted = Buffer.from(`HTTP/1.1 ${status} `);

  const connection = (): Promise<void> =>
    new Promise((resolve) => {
      const socket = connect(port, '127.0.0.1');
      socket.setNoDelay(true);
      let sentAt = 0;
      let kept: Buffer = Buffer.alloc(0);
      const send = (): void => {
        sentAt = performance.now();
        if (sentAt >= endAt) socket.end();
        else socket.write(request);
      };
      socket.on('connect', send);
      socket.on('data', (chunk: Buffer) => {
        kept = kept.length === 0 ? chunk : Buffer.concat([kept, chunk]);
        const size = answerSize(kept);
        if (size === null || kept.length < size) return;
        const good = kept.subarray(0, wanted.length).equals(wanted);
        kept = kept.subarray(size);
        if (good) latenciesMs.push(performance.now() - sentAt);
        else errors += 1;
        send();
      });
      socket.on('error', () => {
        errors += 1;
      });
      socket.on('close', () => resolve());
    });

  const startAt = performance.now();
  await Promise.all(Array.from({ length: connections }, connection));
  const seconds = (performance.now() - startAt) / 1_000;
  latenciesMs.sort((a, b) => a - b);
  const at = (q: number): number =>
    latenciesMs[Math.min(latenciesMs.length - 1, Math.floor(q * latenciesMs.length))] ?? 0;
  return {
    accepted: latenciesMs.length,
    perSecond: latenciesMs.length / seconds,
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    errors,
  };
}

/** Bytes of the first answer, head and body; null while its head is not complete. */
function answerSize(bytes: Buffer): number | null {
  const end = bytes.indexOf('\r\n\r\n');
  if (end === -1) return null;
  const length = /content-length: (\d+)/i.exec(bytes.toString('latin1', 0, end))?.[1];
  return end + 4 + Number(length ?? 0);
}
