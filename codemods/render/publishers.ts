/** The wrappers that were found, as the rows of a table: what a person confirms or corrects. */

import { CONFIG_NAME } from '../config.js';
import type { Mapped } from '../mapping.js';
import type { PlanWrapper } from '../plan.js';

export const PUBLISHER_HEAD = ['function', 'calls', 'kind', 'payload', 'options', 'state'] as const;

export function publisherRow(wrapper: PlanWrapper): string[] {
  const { kind, payload, options } = wrapper.mapping;
  return [
    `${wrapper.id} (line ${wrapper.line})`,
    String(wrapper.calls),
    shown(kind, "'"),
    shown(payload, ''),
    shown(options, ''),
    stateOf(wrapper),
  ];
}

function stateOf({ confirmed, usable, obstacles }: PlanWrapper): string {
  if (confirmed) return 'confirmed';
  return usable ? 'found' : obstacles.map((o) => `${o.code}: ${o.what}`).join('; ');
}

/** The entry of the configuration that says what the scan has read, to be corrected where it is wrong. */
export function howToConfirm(wrappers: readonly PlanWrapper[]): string[] {
  const listed = wrappers.filter((w) => !w.confirmed);
  const [first] = listed;
  if (first === undefined) return [];
  const readable = listed.filter((w) => numberOf(w.mapping.payload) !== undefined);
  const example = readable.find((w) => !w.usable) ?? readable[0] ?? first;
  const { kind, payload, options } = example.mapping;
  const third = numberOf(options);
  const entry = {
    kind: kind !== null && 'text' in kind ? kind.text : (numberOf(kind) ?? 0),
    payload: numberOf(payload) ?? 1,
    ...(third === undefined ? {} : { options: third }),
  };
  return [
    `Arguments count from 0. To confirm or correct one, write in ${CONFIG_NAME}:`,
    `  { "wrappers": { ${JSON.stringify(example.id)}: ${written(entry)} } }`,
    'where "kind" may be a text, and false in place of { … } says that it is no publisher.',
  ];
}

function written(entry: object): string {
  const fields = Object.entries(entry).map(
    ([key, value]) => `${JSON.stringify(key)}: ${JSON.stringify(value)}`,
  );
  return `{ ${fields.join(', ')} }`;
}

function numberOf(mapped: Mapped | null): number | undefined {
  return mapped !== null && 'argument' in mapped ? mapped.argument : undefined;
}

function shown(mapped: Mapped | null, quote: string): string {
  if (mapped === null) return '-';
  if ('argument' in mapped) return `argument ${mapped.argument}`;
  const text = 'text' in mapped ? `${quote}${mapped.text}${quote}` : mapped.source;
  return text.length > 40 ? `${text.slice(0, 37)}...` : text;
}
