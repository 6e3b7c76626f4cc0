/** Rebus: everything in rbs2-* headers, all of them text. */
import {
  anyHeaderText,
  type Dialect,
  headerText,
  instantMs,
  type MessageView,
  printedError,
  timeSpanMs,
} from './dialect.js';

const rbs = (name: string) => headerText(`rbs2-${name}`);
const sourceQueue = rbs('source-queue');
const errorDetails = rbs('error-details');

export const rebus: Dialect = {
  name: 'rebus',
  summary: 'Rebus: rbs2-msg-type, rbs2-msg-id, rbs2-deferred-until and rbs2-error-details headers',
  claims: anyHeaderText('rbs2-msg-type', 'rbs2-msg-id'),
  fields: {
    kind: rbs('msg-type'),
    id: rbs('msg-id'),
    dueMs: (view) => instantMs(rbs('deferred-until')(view)),
    expiresMs: (view) => {
      const span = timeSpanMs(rbs('time-to-be-received')(view));
      const sent = instantMs(rbs('senttime')(view));
      return span === undefined || sent === undefined ? undefined : sent + span;
    },
    homeQueue: sourceQueue,
    dead: (view: MessageView) =>
      errorDetails(view) !== undefined && sourceQueue(view) !== view.delivery.queue,
    error: (view) => {
      // A count of failures may stand before the exceptions, which follow line by line.
      const lines = errorDetails(view)?.split('\n') ?? [];
      const line = lines.find((each) => /^\S*Exception\b/.test(each.trim())) ?? lines[0];
      return printedError(line?.trim(), 'error');
    },
    details: (view) => ({
      correlationId: rbs('corr-id')(view),
      correlationSequence: rbs('corr-seq')(view),
      returnAddress: rbs('return-address')(view),
      intent: rbs('intent')(view),
      // The body then lies elsewhere.
      attachmentId: rbs('payload-attachment-id')(view),
    }),
    notes: (view) =>
      rbs('payload-attachment-id')(view) === undefined ? [] : ['rebus-payload-is-an-attachment'],
  },
};
