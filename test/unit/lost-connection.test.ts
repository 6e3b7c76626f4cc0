/** Which errors another attempt may heal: the words of both clients, kept here because they are all that there is. */
import { expect, test } from 'vitest';
import { isTransient } from '../../adapters/rabbitmq/drain.js';
import { isLostConnection } from '../../adapters/rabbitmq/lost-connection.js';
import { isTransient as isTransientForUndo } from '../../adapters/rabbitmq/undo-errors.js';
import { UnbrokerError } from '../../src/errors.js';

test.each([
  'Unexpected close',
  'Connection terminated unexpectedly',
  'Heartbeat timeout',
  'Channel closed',
  'Socket closed abruptly during opening handshake',
  'IllegalOperationError: Connection closed',
  'timeout exceeded when trying to connect',
])('%s', (message) => {
  const error = new Error(message);
  expect([isLostConnection(error), isTransient(error), isTransientForUndo(error)]).toEqual([
    true,
    true,
    true,
  ]);
});

test.each(['ECONNRESET', 'EPIPE', '57P01', '08006', '40001', '53300'])('code %s', (code) => {
  expect(isLostConnection(Object.assign(new Error('x'), { code }))).toBe(true);
});

test('what would only repeat itself', () => {
  expect(isLostConnection(new Error('Cannot read properties of undefined'))).toBe(false);
  expect(isLostConnection(Object.assign(new Error('permission denied'), { code: '42501' }))).toBe(false);
  const error = new UnbrokerError('drain-busy', 'a connection', { hint: 'Wait.' });
  expect([isTransient(error), isTransientForUndo(error)]).toEqual([false, false]);
});
