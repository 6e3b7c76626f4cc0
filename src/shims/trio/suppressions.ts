/**
 * Routes for the suppression list: who gets nothing any more. The old service had none; they stand beside its own because
 * whoever hears of bounces and complaints speaks to that door. Pure.
 */
import { CHANNELS, type Channel, isChannel } from '../../notify/message.js';
import { isRecipient } from '../../notify/suppressions.js';
import {
  type AnyRoute,
  type ChangeSuppressions,
  jsonResponse,
  type ListSuppressions,
  Refusal,
  route,
} from '../contract.js';
import { objectOf as fieldsOf, invalid, limitOf, queryOf } from '../fields.js';

/** One request's. The command line takes more at once. */
const MAX_RECIPIENTS = 500;

function channelOf(text: string): Channel {
  if (isChannel(text)) return text;
  throw invalid(`channel is none of ${CHANNELS.join(', ')}`);
}

const list = route<ListSuppressions>({
  method: 'GET',
  path: '/suppressions',
  parse(request) {
    const { channel, after, limit } = queryOf(request, ['channel', 'after', 'limit']);
    if (after !== undefined && channel === undefined) throw invalid('after is given with channel');
    const of = channel === undefined ? undefined : channelOf(channel);
    return {
      type: 'list-suppressions',
      limit: limitOf(limit),
      ...(of === undefined ? {} : { channel: of }),
      ...(of === undefined || after === undefined ? {} : { after: { channel: of, recipient: after } }),
    };
  },
  render: (found) => jsonResponse(200, JSON.stringify({ items: found })),
});

function change(act: ChangeSuppressions['act'], path: string, member: string): AnyRoute {
  return route<ChangeSuppressions>({
    method: 'POST',
    path,
    parse(request) {
      const known = act === 'suppress' ? (['channel', 'recipients', 'reason'] as const) : NAMES;
      const fields = fieldsOf(request.body, known);
      const channel = channelOf(fields.text('channel', 20)?.value ?? 'email');
      const given = fields.array('recipients', MAX_RECIPIENTS);
      if (given === undefined) throw invalid('recipients is missing');
      const recipients = given.items.map((item, index) => {
        if (item.type === 'string' && isRecipient(channel, item.value)) return item.value;
        throw new Refusal(422, 'recipient-invalid', `recipients[${index}] is none of that channel`);
      });
      const reason = act === 'suppress' ? (fields.line('reason' as never, 500)?.value ?? null) : null;
      return { type: 'change-suppressions', act, channel, recipients, reason };
    },
    render: (changed, { channel }) => jsonResponse(200, JSON.stringify({ channel, [member]: changed })),
  });
}

const NAMES = ['channel', 'recipients'] as const;

export const suppressionRoutes: readonly AnyRoute[] = [
  list,
  change('suppress', '/suppressions', 'added'),
  change('unsuppress', '/suppressions/remove', 'removed'),
];
