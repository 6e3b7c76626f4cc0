/** Machinery: the task's signature is the body. It counts retries that remain, not those made. */
import { bodyWith, countOf, type Dialect, filled, headerOf, instantMs, type MessageView } from './dialect.js';

function signature(view: MessageView): Readonly<Record<string, unknown>> | undefined {
  const body = bodyWith(view, 'UUID', 'Name', 'Args', 'RetryCount', 'OnSuccess');
  return filled(body?.['UUID']) && filled(body?.['Name']) ? body : undefined;
}

const FOLLOWERS = ['OnSuccess', 'OnError', 'ChordCallback'];

export const machinery: Dialect = {
  name: 'machinery',
  summary: 'Machinery: Name, UUID, ETA and remaining RetryCount in the body',
  claims: (view) => signature(view) !== undefined,
  fields: {
    kind: (view) => filled(signature(view)?.['Name']),
    id: (view) => filled(signature(view)?.['UUID']),
    attemptsLeft: (view) => countOf(signature(view)?.['RetryCount']),
    dueMs: (view) => instantMs(signature(view)?.['ETA']),
    details: (view) => ({ group: filled(signature(view)?.['GroupUUID']) }),
    notes: (view) => {
      const body = signature(view) ?? {};
      const linked = FOLLOWERS.some((name) => body[name] != null) || filled(body['GroupUUID']) !== undefined;
      return [
        ...(linked ? ['machinery-workflow'] : []),
        // Without it, x-death alone counts what was tried.
        ...(headerOf(view, 'x-death') === undefined ? ['attempts-not-carried'] : []),
      ];
    },
  },
};
