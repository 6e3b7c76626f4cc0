/** Which calls are worth asking about for a function: all that may reach it, and none that cannot. */
import { ts } from 'ts-morph';
import { describe, expect, test } from 'vitest';
import { CallNames } from '../../codemods/call-names.js';
import { parse } from '../../codemods/program.js';
import { eachNode, type Fn, isFn, nameOf } from '../../codemods/syntax.js';

/** The calls, as they are written, that may reach `publish`. */
function callsOf(text: string): string[] {
  return callsIn(`export default function publish(order: object): void {}\n${text}`, 'publish');
}

function callsIn(text: string, name: string): string[] {
  const file = parse('/a.ts', text);
  if (file === undefined) throw new Error('it does not parse');
  let fn: Fn | undefined;
  eachNode(file, (node) => {
    if (fn === undefined && isFn(node) && nameOf(node)?.replace('Bus.', '') === name) fn = node;
  });
  if (fn === undefined) throw new Error(`there is no ${name}`);
  return new CallNames([file], [file])
    .of(fn)
    .filter((call) => ts.isCallExpression(call))
    .map((call) => call.getText());
}

describe('calls by name', () => {
  test.each([
    ['its own name', 'publish(order); bus.publish(order);', ['publish(order)', 'bus.publish(order)']],
    ['another name', 'const send = publish; send(order);', ['send(order)']],
    ['an import', "import { publish as send } from './bus.js'; send(order);", ['send(order)']],
    ['the default of a module', 'bus.default(order);', ['bus.default(order)']],
    ['one of a list', 'const [send] = [publish]; send(order);', ['send(order)']],
    ['each of a list', 'for (const send of [publish]) send(order);', ['send(order)']],
    ['a property', 'const bus = { send: publish }; bus.send(order);', ['bus.send(order)']],
    ['no name', "bus['publish'](order); (ok ? publish : log)(order);", undefined],
  ])('%s', (_what, text, found) => {
    expect(callsOf(text)).toEqual(found ?? text.split('; ').map((call) => call.replace(/;$/, '')));
  });

  test('a call under another name that stands for nothing is left alone', () => {
    expect(
      callsOf('save(order); for (const n of list) publish(n); const count = 3; bus.count(order);'),
    ).toEqual(['publish(n)']);
  });

  test.each([
    ['a private field', 'class Bus { #put = () => {}; all() { this.#put(); } }', '#put', ['this.#put()']],
    ['a private method', 'class Bus { #put() {} all() { this.#put(); } }', '#put', ['this.#put()']],
    ['both of its names', 'const put = function next() { next(); }; put();', 'put', ['next()', 'put()']],
    ['a name of its own alone', 'use(function next() { next(); });', 'next', ['next()']],
  ])('a function is called by %s', (_what, text, name, found) => {
    expect(callsIn(text, name)).toEqual(found);
  });
});
