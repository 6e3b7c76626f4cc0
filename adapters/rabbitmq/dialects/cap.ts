/** CAP: everything in cap-* headers. It retries and delays in its own database, so what is on the broker is due. */
import { anyHeaderText, type Dialect, headerText, printedError } from './dialect.js';

const cap = (name: string) => headerText(`cap-${name}`);

export const capBus: Dialect = {
  name: 'cap',
  summary: 'CAP: cap-msg-name, cap-msg-id and cap-exception headers',
  claims: anyHeaderText('cap-msg-name'),
  fields: {
    kind: cap('msg-name'),
    id: cap('msg-id'),
    homeQueue: cap('msg-group'),
    error: (view) => printedError(cap('exception')(view), 'exception'),
    details: (view) => ({
      correlationId: cap('corr-id')(view),
      correlationSequence: cap('corr-seq')(view),
      valueType: cap('msg-type')(view),
      callbackName: cap('callback-name')(view),
    }),
    notes: (view) => (cap('callback-name')(view) ? ['expects-a-response'] : []),
  },
};
