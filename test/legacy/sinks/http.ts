/** An HTTP provider or webhook receiver that takes everything: any POST is journalled and answered with an id. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { env, intEnv, run } from '../common/service.js';
import { answer, control, readBody, serve } from './control.js';
import { failureFor, faultsFromEnv } from './faults.js';
import { idOf, Journal } from './journal.js';

await run('http-sink', async () => {
  const journal = new Journal(env('JOURNAL'));
  const faults = faultsFromEnv(503);
  let taken = 0;
  const { server, url } = await serve(intEnv('PORT', 0), async (request, response) => {
    if (await control(request, response, faults, () => taken)) return;
    const text = await readBody(request);
    if (faults.delayMs > 0) await sleep(faults.delayMs);
    const to = [request.url ?? '/'];
    const failure = failureFor(faults, [...to, text]);
    if (failure === null || faults.failAfterTaking) {
      const headers: Record<string, string> = {};
      for (const [name, value] of Object.entries(request.headers)) headers[name] = String(value);
      journal.append({
        at: new Date().toISOString(),
        sink: 'http',
        id: idOf(headers),
        to,
        subject: null,
        headers,
        text,
      });
      taken += 1;
    }
    if (failure === null) answer(response, 200, { id: randomUUID() });
    else answer(response, failure, { error: 'on purpose' });
  });
  return {
    url,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      journal.close();
    },
  };
});
