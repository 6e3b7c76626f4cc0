/**
 * CloudEvents over AMQP: binary (attributes in headers, under either prefix in use) and structured (one JSON object). An
 * event is identified by source and id together; its `time` is when it happened, never when it is due.
 */
import { memberText } from '../body.js';
import { bodyObject, type Dialect, filled, headerText, instantMs, type MessageView } from './dialect.js';

const STRUCTURED = /^application\/cloudevents\+json\b/;

function event(view: MessageView): Readonly<Record<string, unknown>> | undefined {
  const structured = STRUCTURED.test(view.delivery.properties.contentType ?? '');
  return structured ? bodyObject(view) : undefined;
}

const attribute = (name: string): ((view: MessageView) => string | undefined) => {
  const colon = headerText(`cloudEvents:${name}`);
  const underscore = headerText(`cloudEvents_${name}`);
  return (view) => colon(view) ?? underscore(view) ?? filled(event(view)?.[name]);
};
const type = attribute('type');
const eventId = attribute('id');

export const cloudevents: Dialect = {
  name: 'cloudevents',
  summary: 'CloudEvents: cloudEvents: or cloudEvents_ headers, or application/cloudevents+json',
  claims: (view) => type(view) !== undefined && eventId(view) !== undefined,
  fields: {
    kind: type,
    id: (view) => {
      const [source, id] = [attribute('source')(view), eventId(view)];
      return source === undefined ? id : `${source} ${id}`;
    },
    payloadText: (view) => {
      const text = view.body.payloadText;
      if (event(view) === undefined || text === null) return undefined;
      return memberText(text, 'data') ?? 'null';
    },
    inner: (view) => {
      const data = event(view)?.['data_base64'];
      const contentType = attribute('datacontenttype')(view) ?? null;
      return typeof data === 'string' ? { bytes: Buffer.from(data, 'base64'), contentType } : undefined;
    },
    expiresMs: (view) => instantMs(attribute('expirytime')(view)),
    details: (view) => ({
      source: attribute('source')(view),
      subject: attribute('subject')(view),
      time: attribute('time')(view),
      correlationId: view.delivery.properties.correlationId,
    }),
    trace: (view) => {
      const found: Record<string, string> = {};
      for (const name of ['traceparent', 'tracestate']) {
        const value = attribute(name)(view);
        if (value !== undefined) found[name] = value;
      }
      return found;
    },
  },
};
