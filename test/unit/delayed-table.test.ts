/** What `rabbitmqctl eval` prints of a delayed-message table: recorded on RabbitMQ 3.10.8 from records such as the plugin keeps. */
import { describe, expect, test } from 'vitest';
import { delayedTableExpression, readDelayedTables } from '../../adapters/rabbitmq/delayed-table.js';
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

/** The answer to the expression: one node with the plugin, one without. */
const RECORDED_ANSWER = `[{'unbroker-18025@localhost',
     {resource_table,1,
         [{1764428400123,<<"/">>,<<"delayed">>,
           [[<<"order.placed">>],
            <<"sIAQYXBwbGljYXRpb24vanNvbgAAABEHeC1kZWxheUkAAOpgAWF0AQICbTE=">>,
            <<"eyJuIjoxfQ==">>]}]}},
 {rabbit@two,none}]
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

describe('tables', () => {
  test('due time to the millisecond, routing keys, properties and body as they were; a node without the plugin', () => {
    const tables = readDelayedTables(RECORDED_ANSWER);
    expect(tables).toEqual([
      {
        node: 'unbroker-18025@localhost',
        more: false,
        entries: [
          {
            ...{ dueMs: 1_764_428_400_123, vhost: '/', exchange: 'delayed', routingKeys: ['order.placed'] },
            ...{ propertyBytes: expect.any(Buffer), body: Buffer.from('{"n":1}') },
          },
        ],
      },
      { node: 'rabbit@two', entries: null, more: false },
    ]);
    const { properties, headers } = readProperties(tables?.[0]?.entries?.[0]?.propertyBytes as Buffer);
    expect(properties).toMatchObject({ contentType: 'application/json', deliveryMode: 2, messageId: 'm1' });
    expect(headers.map(({ key, value }) => [key.toString(), value])).toEqual([
      ['x-delay', { tag: 'I', value: 60_000 }],
      ['a', { tag: 't', value: true }],
    ]);
  });

  test('due times only; more than are read; an answer of another form is no answer', () => {
    const table = `[{rabbit@one,{resource_table,12000,[{1,<<"/">>,<<"x">>,[]}]}}]`;
    expect(readDelayedTables(table)?.[0]).toMatchObject({
      more: true,
      entries: [{ dueMs: 1, routingKeys: [], propertyBytes: null, body: null }],
    });
    for (const other of ['', 'ok', '[{rabbit@one,{badrpc,nodedown}}]', '[{1,2}]'])
      expect(readDelayedTables(other)).toBeNull();
    expect(delayedTableExpression({ messages: false })).not.toContain('base64');
  });
});
