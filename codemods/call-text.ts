/**
 * The text of an enqueue: `await enqueue(client, 'kind', payload, options)` or, inline, the SQL function through the
 * handle. Pure. It refuses to know where the text goes.
 */

import { baseIndent, type Layout, quoteText, reindent } from './edits.js';

export interface BulkParts {
  /** What the loop binds, as it is written: `x`, `{ id }`. */
  readonly binding: string;
  readonly iterable: string;
  /** Certainly an array; anything else that can be iterated goes through Array.from. */
  readonly isArray: boolean;
  /** Comments above the publish inside the loop. */
  readonly comments: readonly string[];
}

export interface PassParts {
  readonly callee: string;
  readonly args: readonly string[];
  /** Where the handle goes; undefined: it is among the arguments. */
  readonly index: number | undefined;
}

export interface CallParts {
  readonly handle: string;
  /** The function of `unbroker/transactions` that the handle goes through; undefined for pg. */
  readonly adapter?: string | undefined;
  readonly kind: string;
  /** The kind as an expression of the registry: `kinds['order.placed']`. */
  readonly kindOf?: string | undefined;
  /** Source text; null: no payload. */
  readonly payload: string | null;
  /** False: copied through JSON, since enqueue takes nothing that JSON.stringify would change. */
  readonly plain: boolean;
  readonly options: {
    readonly priority?: string;
    readonly dedupeKey?: string;
    readonly delayMs?: string;
    readonly headers?: string;
  };
  /** A call that is handed the transaction instead of an enqueue: its function publishes. */
  readonly pass?: PassParts | undefined;
  /** The loop that the publish is all of: one bulk enqueue takes its place. */
  readonly bulk?: BulkParts | undefined;
  /** Whether the publish had an argument to a line. */
  readonly spread: boolean;
  readonly trailingComma: boolean;
}

/** Longer calls put an argument to a line. */
const MAX_WIDTH = 100;

/** Without indentation on the first line and without a semicolon. `name` is what `enqueue` is called in the file. */
export function enqueueText(parts: CallParts, name: string, layout: Layout, indent: string): string {
  const options = optionsText(parts);
  const copied =
    parts.payload === null || parts.plain ? parts.payload : `JSON.parse(JSON.stringify(${parts.payload}))`;
  const payload = copied ?? (options === undefined ? undefined : 'null');
  const args = [parts.handle, parts.kindOf ?? quoteText(parts.kind, layout.quote), payload, options].filter(
    (a) => a !== undefined,
  );
  return callText(`await ${name}`, args, parts, layout, indent);
}

/** `await tellCustomer(order, client)`. */
export function passText(parts: CallParts, pass: PassParts, layout: Layout, indent: string): string {
  const args = [...pass.args];
  if (pass.index !== undefined) args.splice(pass.index, 0, parts.handle);
  return callText(`await ${pass.callee}`, args, parts, layout, indent);
}

/** `await enqueueMany(client, xs.map((x) => ({ kind: 'k', payload: x })))`. */
export function enqueueManyText(
  parts: CallParts,
  bulk: BulkParts,
  name: string,
  layout: Layout,
  indent: string,
): string {
  const copied =
    parts.payload === null || parts.plain ? parts.payload : `JSON.parse(JSON.stringify(${parts.payload}))`;
  const payload = copied === null ? [] : [copied === 'payload' ? copied : `payload: ${copied}`];
  const fields = [`kind: ${quoteText(parts.kind, layout.quote)}`, ...payload, ...optionFields(parts)];
  const options = optionsText(parts);
  const job =
    parts.kindOf === undefined
      ? `({ ${fields.join(', ')} })`
      : `${parts.kindOf}.job(${copied ?? 'null'}${options === undefined ? '' : `, ${options}`})`;
  const each = `(${bulk.binding}) => ${job}`;
  const simple = /^[\w$.]+(?:\([^()]*\))?$/.test(bulk.iterable);
  const jobs = bulk.isArray
    ? `${simple ? bulk.iterable : `(${bulk.iterable})`}.map(${each})`
    : `Array.from(${bulk.iterable}, ${each})`;
  return callText(`await ${name}`, [parts.handle, jobs], { ...parts, spread: false }, layout, indent);
}

/** ``client.query('select unbroker.enqueue($1, $2::jsonb)', [kind, JSON.stringify(payload)])``. */
export function inlineSqlText(parts: CallParts, layout: Layout, indent: string): string {
  const { priority, dedupeKey, delayMs, headers } = parts.options;
  const values = [
    quoteText(parts.kind, layout.quote),
    parts.payload === null ? `${layout.quote}null${layout.quote}` : stringify(parts.payload),
  ];
  const named: string[] = [];
  const add = (value: string | undefined, form: (n: string) => string): void => {
    if (value === undefined) return;
    values.push(value);
    named.push(form(`$${values.length}`));
  };
  add(delayMs, (n) => `run_at => now() + ${n} * interval '1 millisecond'`);
  add(priority, (n) => `priority => ${n}`);
  add(dedupeKey, (n) => `dedupe_key => ${n}`);
  add(headers === undefined ? undefined : stringify(headers), (n) => `headers => ${n}::jsonb`);
  const sql = `select unbroker.enqueue(${['$1', '$2::jsonb', ...named].join(', ')})`;
  const args = [quoteText(sql, sql.includes("'") ? '"' : layout.quote), `[${values.join(', ')}]`];
  return callText(`await ${parts.handle}.query`, args, { ...parts, spread: false }, layout, indent);
}

function stringify(value: string): string {
  return `JSON.stringify(${value})`;
}

function optionsText(parts: CallParts): string | undefined {
  const entries = optionFields(parts);
  return entries.length === 0 ? undefined : `{ ${entries.join(', ')} }`;
}

function optionFields({ options }: CallParts): string[] {
  return Object.entries({
    priority: options.priority,
    delayMs: options.delayMs,
    dedupeKey: options.dedupeKey,
    headers: options.headers,
  }).flatMap(([key, value]) => (value === undefined ? [] : [value === key ? key : `${key}: ${value}`]));
}

function callText(
  callee: string,
  args: readonly string[],
  parts: Pick<CallParts, 'spread' | 'trailingComma'>,
  layout: Layout,
  indent: string,
): string {
  const fitted = (to: string): string[] => args.map((a) => reindent(a, baseIndent(a), to));
  const flat = fitted(indent).join(', ');
  const oneLine = `${callee}(${flat})`;
  const long = !flat.includes('\n') && indent.length + oneLine.length > MAX_WIDTH && args.length > 2;
  if (!parts.spread && !long) return oneLine;
  const inner = indent + layout.unit;
  const comma = parts.trailingComma || !parts.spread ? ',' : '';
  return `${callee}(${layout.eol}${fitted(inner)
    .map((a) => inner + a)
    .join(`,${layout.eol}`)}${comma}${layout.eol}${indent})`;
}
