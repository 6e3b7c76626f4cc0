/** The short form of `npm run faults -- shim`: 6 of its 100 points. */
import { expect, test } from 'vitest';
import { startPostgres } from '../support/services.js';
import { shimKills } from './shim.js';

test('kill -9 of the HTTP door and its database under its clients: what was accepted is stored, once', async () => {
  const server = await startPostgres({ controllable: true });
  try {
    const result = await shimKills(server, 6);
    expect(result.acknowledged).toBeGreaterThan(10);
    expect(result).toMatchObject({ lost: 0, extra: 0 });
  } finally {
    await server.close();
  }
}, 180_000);
