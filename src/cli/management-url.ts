/** Where the broker's management API is, for the verbs that ask it: told by the environment, or guessed from the AMQP URL. */
import { managementUrlOf } from '../../adapters/rabbitmq/broker.js';
import { EXIT, UnbrokerError } from '../errors.js';

/** Throws `management-url-invalid` (exit 2), without the URL: it holds a password. */
export function managementAddress(amqpUrl: string): string {
  const told = process.env['RABBITMQ_MANAGEMENT_URL'];
  if (told === undefined || told === '') return managementUrlOf(amqpUrl);
  if (!URL.canParse(told) || !/^https?:$/.test(new URL(told).protocol)) {
    throw new UnbrokerError('management-url-invalid', 'RABBITMQ_MANAGEMENT_URL is not an http or https URL', {
      hint: 'Write http://user:password@host:15672 with special characters percent-encoded.',
      exitStatus: EXIT.badInput,
    });
  }
  // Copied from a call of it, a URL often ends so.
  return told.replace(/\/api\/*$/, '');
}
