/** Which connection a channel belongs to, as the management API tells it: at once, or some seconds later. */
import { expect, test } from 'vitest';
import { connectionOf } from '../../adapters/rabbitmq/management.js';

test.each([
  [
    { name: '127.0.0.1:4 -> 127.0.0.1:5672 (2)', connection_details: { name: 'of the details' } },
    'of the details',
  ],
  [
    { name: '127.0.0.1:4 -> 127.0.0.1:5672 (2)', connection_details: { name: '' } },
    '127.0.0.1:4 -> 127.0.0.1:5672',
  ],
  [{ name: '127.0.0.1:4 -> 127.0.0.1:5672 (13)', connection_details: [] }, '127.0.0.1:4 -> 127.0.0.1:5672'],
  [{ name: 'a (1) b (1)' }, 'a (1) b'],
  [{ connection_details: {} }, ''],
  [{}, ''],
])('%j', (channel, connection) => {
  expect(connectionOf(channel)).toBe(connection);
});
