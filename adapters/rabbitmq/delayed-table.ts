/**
 * What a delayed-message exchange holds: outside every queue, in a table of each node. The expressions that a node's shell
 * evaluates, and the reading of their answers. Pure; whoever has a shell runs them.
 *
 * An entry leaves the table in two steps. First it is held: written under a key that no timer asks for, by the very
 * process that would deliver it, so it is either delivered or held, never both; a crash of anybody leaves it held. Then,
 * once it has rows, it is removed. Both steps say the same thing however often they are taken.
 */
import { type ErlangTerm, readErlangTerm } from './erlang-terms.js';

export interface DelayedEntry {
  /** Epoch ms. */
  readonly dueMs: number;
  readonly vhost: string;
  readonly exchange: string;
  /** Kept from delivery by an import that has not ended. */
  readonly held: boolean;
}

export interface DelayedTable {
  readonly node: string;
  /** Null: there is no such table on this node, so the plugin does not run there. */
  readonly entries: readonly DelayedEntry[] | null;
  /** More than these are in the table. */
  readonly more: boolean;
}

/** A held entry with its message. */
export interface HeldEntry {
  /** Names it for good: of its node, its due time and the reference that the node gave it. */
  readonly id: string;
  readonly dueMs: number;
  readonly exchange: string;
  readonly routingKeys: readonly string[];
  /** Where the exchange would send it as it is bound now. */
  readonly queues: readonly string[];
  /** Flags and property list. */
  readonly propertyBytes: Buffer;
  readonly body: Buffer;
}

/** One node's answer to `takeExpression`. */
export interface TakenPage {
  readonly node: string;
  /** Entries of the virtual host that are not held. */
  readonly left: number;
  /** Entries of any virtual host in a form that we do not know. */
  readonly unknown: number;
  /** Held entries, those of this page among them. */
  readonly held: number;
  readonly entries: readonly HeldEntry[];
  /** Ids of held entries of this page whose message cannot be read. */
  readonly unreadable: readonly string[];
}

export interface TakeRequest {
  readonly vhost: string;
  /** Ids of held entries to remove: they have rows. */
  readonly done: readonly string[];
  /** Ids of held entries to give back to the timer. */
  readonly back: readonly string[];
  /** Hold entries until so many of each node are held; 0 = no more. */
  readonly hold: number;
  /** A page ends with the entry that passes this. */
  readonly maxBytes: number;
}

export const MAX_ENTRIES = 10_000;
/** Entries in one page of a node: with the ids of five nodes' pages the shell's argument still fits. */
const MAX_PAGE = 400;
const SERVER_TIMEOUT_MS = 45_000;
const NODE_TIMEOUT_MS = 55_000;

const TABLE = 'Table = list_to_atom("rabbit_delayed_message" ++ atom_to_list(node()))';
/** A node that is down keeps its entries to itself. */
const ON_EVERY_NODE = (call: string): string =>
  `{try rabbit_nodes:list_members() catch error:undef -> rabbit_nodes:all() end -- [node() | nodes()], ` +
  `[{Node, rpc:call(Node, erlang, apply, [Run, ${call}], ${NODE_TIMEOUT_MS})} || Node <- [node() | nodes()]]}.`;

/** Due times, of every running node. */
export function delayedTableExpression(): string {
  return (
    `Run = fun() -> ${TABLE}, case ets:info(Table, size) of undefined -> none; Size -> ` +
    '{resource_table, Size, [begin {resource, VHost, exchange, Name} = element(2, Exchange), ' +
    '{case Key of {unbroker_held, Due} -> {held, Due}; Due -> {timed, Due} end, VHost, Name} end ' +
    `|| {delay_entry, {delay_key, Key, Exchange}, _, _} <- lists:sublist(ets:tab2list(Table), ${MAX_ENTRIES})]} ` +
    `end end, ${ON_EVERY_NODE('[]')}`
  );
}

const HELD_KEY = '{delay_key, {unbroker_held, Due}, Exchange}';

/**
 * The plugin does all it does to the table in one process, without transactions; `Serially` runs in that process. The
 * index is what its timer reads, so a held entry is not in it. `sync_log`: a killed node would otherwise take a step back
 * that we have built on.
 */
const TAKE = `
Run = fun(VHost, Done, Back, Hold, MaxBytes) -> ${TABLE}, case ets:info(Table, size) of undefined -> none; _ ->
  Index = list_to_atom(atom_to_list(Table) ++ "_index"),
  Ours = fun(Exchange) -> {resource, Where, exchange, _} = element(2, Exchange), Where =:= VHost end,
  Id = fun(Due, Ref) -> base64:encode(crypto:hash(sha256, term_to_binary({node(), Due, Ref}))) end,
  Held = fun() -> [Entry || {delay_entry, {delay_key, _, Exchange}, _, _} = Entry <- mnesia:dirty_select(Table,
    [{{delay_entry, {delay_key, {unbroker_held, '_'}, '_'}, '_', '_'}, [], ['$_']}]), Ours(Exchange)] end,
  Named = fun(Ids) -> [Entry || Ids =/= [], {delay_entry, {delay_key, {_, Due}, _}, _, Ref} = Entry <- Held(),
    lists:member(Id(Due, Ref), Ids)] end,
  Change = fun(Work) -> {atomic, _} = mnesia:transaction(Work) end,
  Serially = fun(Work) -> sys:replace_state(rabbit_delayed_message,
    fun(State) -> Change(Work), State end, ${SERVER_TIMEOUT_MS}) end,
  Move = fun(Entry, Key) -> ok = mnesia:delete_object(Table, Entry, write),
    ok = mnesia:write(Table, setelement(2, Entry, Key), write) end,
  Gone = Named(Done),
  Change(fun() -> [ok = mnesia:delete_object(Table, Entry, write) || Entry <- Gone] end),
  case Named(Back) of [] -> ok; Given ->
    Serially(fun() -> [begin Key = {delay_key, Due, Exchange}, Move(Entry, Key),
      ok = mnesia:write(Index, {delay_index, Key, true}, write) end
      || {delay_entry, ${HELD_KEY}, _, _} = Entry <- Given] end),
    gen_server:cast(rabbit_delayed_message, go)
  end,
  Choose = fun
    Next(Key, Left, Bytes, Keys) when Key =:= '$end_of_table'; Left =< 0; Bytes =< 0 -> Keys;
    Next({delay_key, Due, Exchange} = Key, Left, Bytes, Keys) when is_integer(Due) -> case Ours(Exchange) of
      true -> Entries = ets:lookup(Table, Key), Next(ets:next(Table, Key), Left - length(Entries),
        Bytes - lists:sum([erlang:external_size(Entry) || Entry <- Entries]), [Key | Keys]);
      false -> Next(ets:next(Table, Key), Left, Bytes, Keys) end;
    Next(Key, Left, Bytes, Keys) -> Next(ets:next(Table, Key), Left, Bytes, Keys) end,
  case Hold - length(Held()) of Free when Free =< 0 -> ok; Free ->
    Serially(fun() -> [begin [Move(Entry, ${HELD_KEY}) || Entry <- mnesia:read(Table, Key, write)],
      ok = mnesia:delete(Index, Key, write) end
      || {delay_key, Due, Exchange} = Key <- Choose(ets:first(Table), Free, MaxBytes, [])] end)
  end,
  mnesia:sync_log(),
  Show = fun({delay_entry, ${HELD_KEY}, Delivery, Ref}) ->
    Message = case element(1, Delivery) of delivery -> element(5, Delivery); _ -> Delivery end,
    {Keys, Content, Routed} = case element(1, Message) of
      basic_message -> {element(3, Message), element(4, Message), Delivery};
      _ -> {mc:routing_keys(Message), mc:protocol_state(mc:convert(mc_amqpl, Message)), Message} end,
    Encoded = rabbit_binary_generator:ensure_content_encoded(Content, rabbit_framing_amqp_0_9_1),
    Elapsed = case element(3, Exchange) of
      'x-delayed-message' -> rabbit_delayed_message_utils:swap_delay_header(Routed); _ -> Routed end,
    {resource, _, exchange, From} = element(2, Exchange),
    {Id(Due, Ref), Due, From, Keys,
      lists:usort([Queue || {resource, _, queue, Queue} <- rabbit_exchange:route(Exchange, Elapsed)]),
      base64:encode(element(4, Encoded)), base64:encode(iolist_to_binary(lists:reverse(element(6, Encoded))))} end,
  Name = fun({delay_entry, {delay_key, {_, Due}, _}, _, Ref}) -> {Id(Due, Ref)} end,
  Page = fun More([Entry | Rest], Bytes) when Bytes > 0 ->
    [try Show(Entry) catch _:_ -> Name(Entry) end | More(Rest, Bytes - erlang:external_size(Entry))]; More(_, _) -> [] end,
  Left = ets:select_count(Table, [{{delay_entry, {delay_key, '$1', '$2'}, '_', '_'},
    [{is_integer, '$1'}, {'=:=', {element, 2, {element, 2, '$2'}}, VHost}], [true]}]),
  Shaped = ets:select_count(Table, [{{delay_entry, {delay_key, '$1', '_'}, '_', '_'}, [{is_integer, '$1'}], [true]},
    {{delay_entry, {delay_key, {unbroker_held, '_'}, '_'}, '_', '_'}, [], [true]}]),
  {taken, Left, ets:info(Table, size) - Shaped, length(Held()), Page(lists:sublist(Held(), ${MAX_PAGE}), MaxBytes)}
end end, `;

/** Removes, gives back, holds more, and shows what is held then. */
export function takeExpression({ vhost, done, back, hold, maxBytes }: TakeRequest): string {
  const ids = (list: readonly string[]): string => `[${list.map((id) => binary(id)).join(',')}]`;
  return `${TAKE}${ON_EVERY_NODE(`[${binary(vhost)}, ${ids(done)}, ${ids(back)}, ${hold}, ${maxBytes}]`)}`;
}

/** As bytes, so that no character of it means anything to the shell. */
const binary = (text: string): string =>
  /^[\w+/=.-]*$/.test(text) ? `<<"${text}">>` : `<<${[...Buffer.from(text)].join(',')}>>`;

interface Answers<T> {
  /** Nodes of the cluster that do not run. */
  readonly down: readonly string[];
  readonly nodes: readonly T[];
}

/** Null when the answer is not what the expression gives. */
export function readDelayedTables(printed: string): Answers<DelayedTable> | null {
  return readAnswers(printed, readTable);
}

/** Null as above; nodes without the plugin are left out. */
export function readTakenPages(printed: string): Answers<TakenPage> | null {
  const read = readAnswers(printed, (node, answer) =>
    answer.type === 'atom' && answer.name === 'none' ? 'none' : readPage(node, answer),
  );
  return read === null ? null : { ...read, nodes: read.nodes.filter((page) => page !== 'none') };
}

function readAnswers<T>(
  printed: string,
  read: (node: string, answer: ErlangTerm) => T | null,
): Answers<T> | null {
  const [down, answers] = itemsOf(readErlangTerm(printed.trim()) ?? undefined);
  if (down?.type !== 'list' || answers?.type !== 'list') return null;
  const nodes = answers.items.map((each) => {
    const [node, answer] = itemsOf(each);
    return node?.type !== 'atom' || answer === undefined ? null : read(node.name, answer);
  });
  if (!nodes.every((each) => each !== null)) return null;
  return { down: down.items.flatMap((each) => (each.type === 'atom' ? [each.name] : [])), nodes };
}

function readTable(node: string, answer: ErlangTerm): DelayedTable | null {
  if (answer.type === 'atom' && answer.name === 'none') return { node, entries: null, more: false };
  const [, size, list] = itemsOf(answer);
  if (size?.type !== 'number' || list?.type !== 'list') return null;
  const entries = list.items.map(readEntry);
  if (!entries.every((entry) => entry !== null)) return null;
  return { node, entries, more: size.value > entries.length };
}

function readEntry(term: ErlangTerm): DelayedEntry | null {
  const [key, vhost, exchange] = itemsOf(term);
  const [mark, due] = itemsOf(key);
  if (mark?.type !== 'atom' || due?.type !== 'number') return null;
  if (vhost?.type !== 'binary' || exchange?.type !== 'binary') return null;
  const held = mark.name === 'held';
  return { dueMs: due.value, vhost: vhost.bytes.toString(), exchange: exchange.bytes.toString(), held };
}

function readPage(node: string, answer: ErlangTerm): TakenPage | null {
  const [mark, left, unknown, held, list] = itemsOf(answer);
  if (mark?.type !== 'atom' || mark.name !== 'taken' || list?.type !== 'list') return null;
  if (left?.type !== 'number' || unknown?.type !== 'number' || held?.type !== 'number') return null;
  const entries = list.items.map(readHeld);
  if (!entries.every((entry) => entry !== null)) return null;
  return {
    ...{ node, left: left.value, unknown: unknown.value, held: held.value },
    entries: entries.filter((entry) => typeof entry !== 'string'),
    unreadable: entries.filter((entry) => typeof entry === 'string'),
  };
}

/** Its id alone when its message could not be read. */
function readHeld(term: ErlangTerm): HeldEntry | string | null {
  const [id, due, exchange, keys, queues, properties, body] = itemsOf(term);
  if (id?.type !== 'binary') return null;
  if (due === undefined) return id.bytes.toString();
  if (due.type !== 'number' || exchange?.type !== 'binary') return null;
  if (properties?.type !== 'binary' || body?.type !== 'binary') return null;
  return {
    ...{ id: id.bytes.toString(), dueMs: due.value, exchange: exchange.bytes.toString() },
    ...{ routingKeys: texts(keys), queues: texts(queues) },
    ...{ propertyBytes: fromBase64(properties.bytes), body: fromBase64(body.bytes) },
  };
}

const itemsOf = (term: ErlangTerm | undefined): readonly ErlangTerm[] =>
  term?.type === 'tuple' || term?.type === 'list' ? term.items : [];

const texts = (term: ErlangTerm | undefined): string[] =>
  itemsOf(term).flatMap((each) => (each.type === 'binary' ? [each.bytes.toString()] : []));

const fromBase64 = (bytes: Buffer): Buffer => Buffer.from(bytes.toString('latin1'), 'base64');
