/** What `rabbitmqctl eval` prints of a delayed-message table: recorded on RabbitMQ 3.10.8 from records such as the plugin keeps. */
import { describe, expect, test } from 'vitest';
import { readDelayedTables, readTakenPages, takeExpression } from '../../adapters/rabbitmq/delayed-table.js';
import { readProperties } from '../../adapters/rabbitmq/delivery.js';
import { readErlangTerm } from '../../adapters/rabbitmq/erlang-terms.js';

/** A whole entry as it lies in the table, printed over many lines. */
const RECORDED_ENTRY = String.raw`[{delay_entry,
     {delay_key,1764428400123,
         {exchange,
             {resource,<<"/">>,exchange,<<"delayed">>},
             'x-delayed-message',true,false,false,
             [{<<"x-delayed-type">>,longstr,<<"direct">>}],
             undefined,undefined,
             {[],[]},
             #{user => <<"guest">>}}},
     {delivery,false,true,<12307.1095.0>,
         {basic_message,
             {resource,<<"/">>,exchange,<<"delayed">>},
             [<<"order.placed">>],
             {content,60,none,<<176,128,255>>,rabbit_framing_amqp_0_9_1,
                 [<<"{\"n\":1,\"text\":\"\\\"quoted\\\" and \\u00e9\"}">>]},
             <<107,97,219,20>>,
             true},
         1,flow},
     #Ref<12307.187969639.2344878081.188418>}]`;

/** The answer to the first expression: one node with the plugin, one without, one that is down. */
const DUE_TIMES = `{['rabbit@three'],[{'unbroker-18025@localhost',
     {resource_table,2,[{{timed,1764428400123},<<"/">>,<<"delayed">>},
                        {{held,1764428400124},<<"/">>,<<"delayed">>}]}},
 {rabbit@two,none}]}
`;

/** The answer to the second: recorded on RabbitMQ 3.10.8 with the plugin. */
const TAKEN = `{[],[{'unbroker-28516@localhost',{taken,7,0,3,
                                      [{<<"EEgEjn1/VhMTQatx50FFA2EO2s1PhvdU2TLrWWWcHZg=">>,
                                        1795994121016,<<"delayed">>,
                                        [<<"k">>],
                                        [<<"q1">>,<<"q2">>],
                                        <<"MIAAAAANB3gtZGVsYXlJAAknxwICbTc=">>,
                                        <<"eyJpIjo3LCJwYWQiOiJ4eHh4eHh4eHh4eHh4eHh4eHh4eCJ9">>},
                                       {<<"Mjhqd1I5aof3UBVvyqmJmhfXiAs+cTwYkGv6mplsxUo=">>}]}},
     {rabbit@two,none}]}
`;

describe('terms', () => {
  test('a recorded entry is read whole', () => {
    const term = readErlangTerm(RECORDED_ENTRY);
    expect(term).toMatchObject({
      type: 'list',
      items: [{ type: 'tuple', items: [{ type: 'atom', name: 'delay_entry' }, {}, {}, { type: 'other' }] }],
    });
    const text = JSON.stringify(term);
    expect(text).toContain('{"type":"number","value":1764428400123}');
    expect(text).toContain(JSON.stringify([...Buffer.from('{"n":1,"text')]).slice(1, -1));
  });

  test.each<[string, unknown]>([
    ['<<>>', { type: 'binary', bytes: Buffer.alloc(0) }],
    ['<<0,255,10>>', { type: 'binary', bytes: Buffer.of(0, 255, 10) }],
    ['<<"a\\"b" "c">>', { type: 'binary', bytes: Buffer.from('a"bc') }],
    ['<<"é"/utf8>>', { type: 'binary', bytes: Buffer.from('é') }],
    ['"ab"', { type: 'list', items: [97, 98].map((value) => ({ type: 'number', value })) }],
    ["'it''s'", null],
    ["'a b'", { type: 'atom', name: 'a b' }],
    [
      '{ok,-1.5e3}',
      {
        type: 'tuple',
        items: [
          { type: 'atom', name: 'ok' },
          { type: 'number', value: -1500 },
        ],
      },
    ],
    ['#{a => [1,{2}]}', { type: 'other', text: '#{a => [1,{2}]}' }],
    ['[]', { type: 'list', items: [] }],
    ['ok.\n', { type: 'atom', name: 'ok' }],
  ])('%s', (text, term) => expect(readErlangTerm(text)).toEqual(term));

  test.each(['', '{', '<<256>>', '<<"open', '[1,]', '1 2', 'Variable', '<0.1', `${'['.repeat(500)}`])(
    'what is none: %s',
    (text) => expect(readErlangTerm(text)).toBeNull(),
  );
});

describe('due times', () => {
  test('to the millisecond; held ones; a node without the plugin; a node that is down', () => {
    const entry = { vhost: '/', exchange: 'delayed' };
    expect(readDelayedTables(DUE_TIMES)).toEqual({
      down: ['rabbit@three'],
      nodes: [
        {
          ...{ node: 'unbroker-18025@localhost', more: false },
          entries: [
            { ...entry, dueMs: 1_764_428_400_123, held: false },
            { ...entry, dueMs: 1_764_428_400_124, held: true },
          ],
        },
        { node: 'rabbit@two', entries: null, more: false },
      ],
    });
  });

  test('more than are read; an answer of another form is no answer', () => {
    const table = `{[],[{rabbit@one,{resource_table,12000,[{{timed,1},<<"/">>,<<"x">>}]}}]}`;
    expect(readDelayedTables(table)?.nodes[0]).toMatchObject({ more: true, entries: [{ dueMs: 1 }] });
    for (const other of ['', 'ok', '{[],[{rabbit@one,{badrpc,nodedown}}]}', '{[],[{1,2}]}', '[]']) {
      expect(readDelayedTables(other)).toBeNull();
      expect(readTakenPages(other)).toBeNull();
    }
  });
});

describe('held entries', () => {
  test('id, due time, queues, properties and body as they were; one that cannot be read has its id', () => {
    const [page, ...others] = readTakenPages(TAKEN)?.nodes ?? [];
    expect(others).toEqual([]);
    expect(page).toMatchObject({ left: 7, unknown: 0, held: 3 });
    expect(page?.unreadable).toEqual(['Mjhqd1I5aof3UBVvyqmJmhfXiAs+cTwYkGv6mplsxUo=']);
    const [entry] = page?.entries ?? [];
    expect(entry).toMatchObject({
      ...{ id: 'EEgEjn1/VhMTQatx50FFA2EO2s1PhvdU2TLrWWWcHZg=', dueMs: 1_795_994_121_016 },
      ...{ exchange: 'delayed', routingKeys: ['k'], queues: ['q1', 'q2'] },
      body: Buffer.from('{"i":7,"pad":"xxxxxxxxxxxxxxxxxxxx"}'),
    });
    const { properties, headers } = readProperties(entry?.propertyBytes as Buffer);
    expect(properties).toMatchObject({ deliveryMode: 2, messageId: 'm7' });
    expect(headers.map(({ key, value }) => [key.toString(), value])).toEqual([
      ['x-delay', { tag: 'I', value: 600_007 }],
    ]);
  });

  test('names of a virtual host cannot end the expression', () => {
    const request = { done: ['YQ=='], back: [], hold: 3, maxBytes: 9 };
    const hostile = takeExpression({ ...request, vhost: '">>], halt(). é' });
    expect(hostile).toContain(`[[<<${[...Buffer.from('">>], halt(). é')].join(',')}>>,`.slice(1));
    expect(hostile).not.toContain('halt');
    expect(takeExpression({ ...request, vhost: '/' })).toContain('[<<"/">>, [<<"YQ==">>], [], 3, 9]');
  });
});
