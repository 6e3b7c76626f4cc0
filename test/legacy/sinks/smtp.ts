/** An SMTP server that takes every mail and journals it before it answers 250. CONTROL_PORT is where faults are set. */
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { SMTPServer, type SMTPServerSession } from 'smtp-server';
import { env, intEnv, run } from '../common/service.js';
import { answer, control, serve } from './control.js';
import { failureFor, faultsFromEnv } from './faults.js';
import { idOf, Journal } from './journal.js';
import { decodeHeader, parseMail } from './mail.js';

const MAX_MAIL = 10_485_760;

await run('smtp-sink', async () => {
  const journal = new Journal(env('JOURNAL'));
  const faults = faultsFromEnv(451);
  let taken = 0;

  /** Throws an error with a responseCode for a refusal; returns when the mail is on disk. */
  async function take(session: SMTPServerSession, raw: Buffer): Promise<void> {
    if (faults.delayMs > 0) await sleep(faults.delayMs);
    const to = session.envelope.rcptTo.map(({ address }) => address);
    const failure = failureFor(faults, to);
    if (failure === null || faults.failAfterTaking) {
      const { headers, text } = parseMail(raw);
      const subject = decodeHeader(headers['subject'] ?? '');
      journal.append({
        at: new Date().toISOString(),
        sink: 'smtp',
        id: idOf(headers),
        to,
        subject,
        headers,
        text,
      });
      taken += 1;
    }
    if (failure !== null) throw Object.assign(new Error('refused on purpose'), { responseCode: failure });
  }

  const smtp = new SMTPServer({
    authOptional: true,
    hideSTARTTLS: true,
    disabledCommands: ['AUTH', 'STARTTLS'],
    disableReverseLookup: true,
    size: MAX_MAIL,
    logger: false,
    onData(stream, session, callback) {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        take(session, Buffer.concat(chunks)).then(() => callback(null), callback);
      });
    },
  });
  smtp.on('error', (error) => console.error(`smtp-sink: ${error.message}`));
  await new Promise<void>((resolve) => smtp.listen(intEnv('PORT', 0), '127.0.0.1', () => resolve()));
  const { server, url } = await serve(intEnv('CONTROL_PORT', 0), async (request, response) => {
    if (await control(request, response, faults, () => taken)) return;
    answer(response, 404, { error: 'only /_control is here' });
  });
  console.log(`smtp-sink control on ${url}`);
  return {
    url: `smtp://127.0.0.1:${(smtp.server.address() as AddressInfo).port}`,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await new Promise<void>((resolve) => smtp.close(() => resolve()));
      journal.close();
    },
  };
});
