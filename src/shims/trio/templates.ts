/**
 * The trio's template routes: read and preview. Templates are files now, so writing them is refused with the way to do
 * it. Pure: the renderer holds what the files say.
 */
import { toPlain } from '../../json-text.js';
import { DEFAULT_LOCALE, isChannel, isLocale, MessageError } from '../../notify/message.js';
import {
  type Answer,
  type AnyRoute,
  answerRoute,
  type ContractContext,
  jsonResponse,
  Refusal,
  type ShimRequest,
} from '../contract.js';
import { objectOf as fieldsOf, invalid } from '../fields.js';

const notFound = (): Refusal => new Refusal(404, 'not-found', 'no such template');

const TEMPLATES_ELSEWHERE = new Refusal(
  422,
  'unsupported',
  'templates are files now: edit them in the folder that notify.templates names',
);

function answer(status: number, value: unknown): Answer {
  return { type: 'answer', response: jsonResponse(status, JSON.stringify(value)) };
}

const showTemplate = answerRoute({
  method: 'GET',
  path: '/templates/:key',
  parse({ params }, { renderer }) {
    const variants = renderer?.variants(params['key'] ?? '') ?? [];
    if (variants.length === 0) return notFound();
    return answer(200, { key: params['key'], variants });
  },
});

const preview = answerRoute({
  method: 'POST',
  path: '/templates/:key/preview',
  verb: 'read',
  parse: (request, context) => previewOf(request, context),
});

function previewOf(request: ShimRequest, { renderer }: ContractContext): Answer | Refusal {
  const fields = fieldsOf(request.body, ['locale', 'channel', 'data']);
  const locale = fields.text('locale', 50)?.value ?? DEFAULT_LOCALE;
  const channel = fields.text('channel', 20)?.value ?? 'email';
  const data = fields.object('data');
  if (!isLocale(locale) || !isChannel(channel)) throw invalid('locale or channel is not valid');
  const key = request.params['key'] ?? '';
  if (renderer === null || renderer.variants(key).length === 0) return notFound();
  try {
    return answer(200, {
      key,
      ...renderer.render(key, channel, locale, data === undefined ? {} : toPlain(data)),
    });
  } catch (error) {
    if (error instanceof MessageError) return new Refusal(422, 'render-failed', error.message);
    throw error;
  }
}

function noEdit(method: 'PUT' | 'DELETE') {
  return answerRoute({
    method,
    path: '/templates/:key',
    parse: () => TEMPLATES_ELSEWHERE,
  });
}

export const templateRoutes: readonly AnyRoute[] = [showTemplate, preview, noEdit('PUT'), noEdit('DELETE')];
