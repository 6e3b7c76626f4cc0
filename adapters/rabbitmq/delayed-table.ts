/**
 * What a delayed-message exchange holds: outside every queue, in a table of each node. The expression that a node's shell
 * evaluates, and the reading of its answer. Pure; whoever has a shell runs it.
 */
import { type ErlangTerm, readErlangTerm } from './erlang-terms.js';

export interface DelayedEntry {
  /** Epoch ms. */
  readonly dueMs: number;
  readonly vhost: string;
  readonly exchange: string;
  readonly routingKeys: readonly string[];
  /** Flags and property list; null when only due times were asked for, or the node keeps messages in another form. */
  readonly propertyBytes: Buffer | null;
  readonly body: Buffer | null;
}

export interface DelayedTable {
  readonly node: string;
  /** Null: there is no such table on this node, so the plugin does not run there. */
  readonly entries: readonly DelayedEntry[] | null;
  /** More than these are in the table. */
  readonly more: boolean;
}

export const MAX_ENTRIES = 10_000;

/** Of every running node. With `messages`, properties and bodies, in Base64; this costs what they weigh. */
export function delayedTableExpression({ messages }: { readonly messages: boolean }): string {
  const content =
    'try {basic_message, _, Keys, Content, _, _} = element(5, Delivery), ' +
    'Encoded = rabbit_binary_generator:ensure_content_encoded(Content, rabbit_framing_amqp_0_9_1), ' +
    '[Keys, base64:encode(element(4, Encoded)), base64:encode(iolist_to_binary(lists:reverse(element(6, Encoded))))] ' +
    'catch _:_ -> [] end';
  return (
    'Read = fun() -> Table = list_to_atom("rabbit_delayed_message" ++ atom_to_list(node())), ' +
    'case ets:info(Table, size) of undefined -> none; Size -> ' +
    '{resource_table, Size, [begin {resource, VHost, exchange, Name} = element(2, Exchange), ' +
    `{Due, VHost, Name, ${messages ? content : '[]'}} end ` +
    `|| {delay_entry, {delay_key, Due, Exchange}, Delivery, _} <- lists:sublist(ets:tab2list(Table), ${MAX_ENTRIES})]} ` +
    'end end, [{Node, rpc:call(Node, erlang, apply, [Read, []])} || Node <- [node() | nodes()]].'
  );
}

/** Null when the answer is not what the expression gives. */
export function readDelayedTables(printed: string): readonly DelayedTable[] | null {
  const term = readErlangTerm(printed.trim());
  if (term?.type !== 'list') return null;
  const tables = term.items.map(readTable);
  return tables.every((table) => table !== null) ? tables : null;
}

function readTable(term: ErlangTerm): DelayedTable | null {
  const [node, answer] = itemsOf(term);
  if (node?.type !== 'atom' || answer === undefined) return null;
  if (answer.type === 'atom' && answer.name === 'none')
    return { node: node.name, entries: null, more: false };
  const [, size, list] = itemsOf(answer);
  if (size?.type !== 'number' || list?.type !== 'list') return null;
  const entries = list.items.map(readEntry);
  if (!entries.every((entry) => entry !== null)) return null;
  return { node: node.name, entries, more: size.value > entries.length };
}

function readEntry(term: ErlangTerm): DelayedEntry | null {
  const [due, vhost, exchange, content] = itemsOf(term);
  if (due?.type !== 'number' || vhost?.type !== 'binary' || exchange?.type !== 'binary') return null;
  const [keys, properties, body] = itemsOf(content);
  return {
    ...{ dueMs: due.value, vhost: vhost.bytes.toString(), exchange: exchange.bytes.toString() },
    routingKeys: itemsOf(keys).flatMap((key) => (key.type === 'binary' ? [key.bytes.toString()] : [])),
    propertyBytes: decoded(properties),
    body: decoded(body),
  };
}

const itemsOf = (term: ErlangTerm | undefined): readonly ErlangTerm[] =>
  term?.type === 'tuple' || term?.type === 'list' ? term.items : [];

const decoded = (term: ErlangTerm | undefined): Buffer | null =>
  term?.type === 'binary' ? Buffer.from(term.bytes.toString('latin1'), 'base64') : null;
