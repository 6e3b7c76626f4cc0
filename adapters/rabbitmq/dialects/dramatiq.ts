/** Dramatiq: everything in the JSON body; a delayed message lies in `<queue>.DQ`, which is worked, not waited out. */
import { objectText } from '../../../src/json-text.js';
import { memberText } from '../body.js';
import {
  bodyWith,
  countOf,
  type Dialect,
  filled,
  type MessageView,
  objectOf,
  printedError,
} from './dialect.js';

function message(view: MessageView): Readonly<Record<string, unknown>> | undefined {
  const body = bodyWith(view, 'actor_name', 'message_id', 'args', 'kwargs', 'options');
  return filled(body?.['actor_name']) && filled(body?.['message_id']) && Array.isArray(body?.['args'])
    ? body
    : undefined;
}

const optionsOf = (view: MessageView): Readonly<Record<string, unknown>> =>
  objectOf(message(view)?.['options']) ?? {};

/** What another message waits for. */
const WORKFLOW = ['pipe_target', 'group_callbacks', 'group_completion_uuid'];
const isWorkflow = (view: MessageView): boolean => WORKFLOW.some((name) => optionsOf(view)[name] != null);

const plus = (left: number | undefined, right: number | undefined): number | undefined =>
  left === undefined || right === undefined ? undefined : left + right;

export const dramatiq: Dialect = {
  name: 'dramatiq',
  summary: 'Dramatiq: actor_name, message_id and options in the body, eta in milliseconds',
  claims: (view) => message(view) !== undefined,
  fields: {
    kind: (view) => filled(message(view)?.['actor_name']),
    id: (view) => filled(message(view)?.['message_id']),
    payloadText: (view) => {
      const text = view.body.payloadText;
      if (text === null || message(view) === undefined) return undefined;
      return objectText({
        args: memberText(text, 'args'),
        kwargs: memberText(text, 'kwargs'),
        options: isWorkflow(view) ? memberText(text, 'options') : undefined,
      });
    },
    attempts: (view) => countOf(optionsOf(view)['retries']),
    maxAttempts: (view) => plus(countOf(optionsOf(view)['max_retries']), 1),
    dueMs: (view) => countOf(optionsOf(view)['eta']),
    expiresMs: (view) =>
      plus(countOf(message(view)?.['message_timestamp']), countOf(optionsOf(view)['max_age'])),
    homeQueue: (view) => filled(message(view)?.['queue_name'])?.replace(/\.[DX]Q$/, ''),
    // A traceback ends with the exception.
    error: (view) =>
      printedError(filled(optionsOf(view)['traceback'])?.trimEnd().split('\n').at(-1), 'traceback'),
    details: (view) => ({ timeLimitMs: countOf(optionsOf(view)['time_limit']) }),
    notes: (view) => (isWorkflow(view) ? ['dramatiq-workflow'] : []),
  },
};
