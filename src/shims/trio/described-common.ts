/** What the descriptions of the trio's three services share. Pure data. */
import { type DescribedContract, given, integer, list, ref, type Schema, text } from '../described.js';

const problem: Schema = {
  type: 'object',
  description: 'RFC 9457. `error` repeats `code` and `message` repeats `detail`, for old clients.',
  properties: {
    type: { const: 'about:blank' },
    title: { type: 'string' },
    status: { type: 'integer', minimum: 400, maximum: 599 },
    code: { type: 'string', pattern: '^[a-z0-9]+(-[a-z0-9]+)*$' },
    detail: { type: 'string' },
    error: { type: 'string' },
    message: { type: 'string' },
  },
  required: ['type', 'title', 'status', 'code', 'detail'],
};

const maxAttempts = integer(1, 1_000);
const delay = integer(0, 30 * 86_400_000);

const policy: Schema = {
  description: 'Delays in ms. A ladder ends after its last rung.',
  oneOf: [
    given({ type: { const: 'fixed' }, delayMs: delay, maxAttempts }),
    given(
      { type: { const: 'exponential' }, baseMs: delay, maxAttempts },
      { factor: { type: 'number' }, maxMs: delay },
    ),
    given({ type: { const: 'ladder' }, delaysMs: list(delay, 1) }, { maxAttempts }),
  ],
};

const target: Schema = {
  oneOf: [
    given({ url: text(2_000, { format: 'uri' }) }),
    given({ queue: text(255) }),
    given({ exchange: text(255) }, { routingKey: text(255) }),
    given({ kind: text(255) }),
  ],
};

export const trioRef = (name: string): Schema => ref('trio', name);
export const trioError: DescribedContract['error'] = {
  mediaType: 'application/problem+json',
  schema: trioRef('Problem'),
};
export const trioSchemas: DescribedContract['schemas'] = {
  Problem: problem,
  Policy: policy,
  Target: target,
};

/** At most 200; more is cut to it. */
export const limit: Schema = { type: 'integer', minimum: 1, maximum: 999_999_999, default: 50 };
export const items = (schema: Schema): Schema => ({
  type: 'object',
  properties: { items: list(schema) },
  required: ['items'],
  additionalProperties: false,
});
