/**
 * A file that somebody names on the command line, as text and up to a limit: it may be a pipe or a device that never
 * ends. It does not know what the text is for.
 */
import { closeSync, openSync, readSync } from 'node:fs';

const CHUNK_BYTES = 65_536;

/** `-` is standard input. Throws what Node throws, and an error of code EFBIG above `maxBytes`. */
export function readBounded(file: string, maxBytes: number): string {
  const descriptor = file === '-' ? 0 : openSync(file, 'r');
  try {
    const chunks: Buffer[] = [];
    for (let total = 0; ; ) {
      const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
      const read = readSync(descriptor, chunk);
      if (read === 0) return Buffer.concat(chunks).toString('utf8');
      total += read;
      if (total > maxBytes) throw Object.assign(new Error(`more than ${maxBytes} bytes`), { code: 'EFBIG' });
      chunks.push(chunk.subarray(0, read));
    }
  } finally {
    if (descriptor !== 0) closeSync(descriptor);
  }
}
