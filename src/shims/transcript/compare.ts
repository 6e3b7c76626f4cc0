/**
 * How an answer differs from the one that was recorded: status, headers, body, place by place. Pure. Ids are the server's
 * own: where the old one gave one, the new one's takes its place in all that follows. Times only have to be times.
 */
import type { Exchange } from './exchange.js';

/** `at`: `status`, `header.location`, `body.items[0].id`. Values are shown: a transcript is the team's own. */
export interface Difference {
  /** Of the transcript, from 1. */
  readonly line: number;
  /** Method and path, ids as they are. */
  readonly request: string;
  readonly at: string;
  readonly was: string;
  readonly is: string;
}

/**
 * A difference on purpose. `request`: method and path, `*` for any one part of a path, or `*` for all. `at`: a place, `*`
 * for any name or index in it, `**` for all below. `status`: only of answers that were recorded with it.
 */
export interface Declared {
  readonly request: string;
  readonly at: string;
  readonly status?: number;
  readonly reason: string;
}

/** Old ids to new ones, learnt from answers. */
export class Ids {
  readonly #known = new Map<string, string>();

  learn(was: string, is: string): void {
    if (was !== is && was.length >= MIN_ID) this.#known.set(was, is);
  }

  /** True when `is` is what took the place of `was`. */
  same(was: string, is: string): boolean {
    return this.#known.get(was) === is;
  }

  /** A text with every old id as its new one. */
  translate(text: string): string {
    let out = text;
    for (const [was, is] of this.#known) out = out.replaceAll(was, is);
    return out;
  }
}

/** Shorter ones stand in too much by chance. */
const MIN_ID = 8;
const ID_NAME = /^(?:id|.*Id|.*_id|location)$/i;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)$/;

export function compare(
  line: number,
  { request, response: was }: Exchange,
  is: Exchange['response'],
  ids: Ids,
): Difference[] {
  const found: Difference[] = [];
  const path = request.target.split('?', 1)[0] ?? '';
  const note = (at: string, before: string, after: string): void => {
    found.push({ line, request: `${request.method} ${path}`, at, was: short(before), is: short(after) });
  };
  if (was.status !== is.status) note('status', String(was.status), String(is.status));
  compareBodies(was.body, is.body, ids, note);
  for (const name of new Set([...Object.keys(was.headers), ...Object.keys(is.headers)])) {
    const [before, after] = [was.headers[name], is.headers[name]].map((value) => normal(name, value));
    if (before === after) continue;
    const translated = before !== undefined && after !== undefined && ids.translate(before) === after;
    if (!translated) note(`header.${name}`, before ?? '(none)', after ?? '(none)');
  }
  return found;
}

type Note = (at: string, was: string, is: string) => void;

/** Case and the default charset of a media type mean nothing. */
function normal(name: string, value: string | undefined): string | undefined {
  if (name !== 'content-type') return value;
  return value
    ?.toLowerCase()
    .replace(/;\s*charset="?utf-8"?/, '')
    .trim();
}

function compareBodies(was: string, is: string, ids: Ids, note: Note): void {
  const [before, after] = [parsed(was), parsed(is)];
  if (before === undefined || after === undefined) {
    if (ids.translate(was) !== is) note('body', was, is);
    return;
  }
  compareValues('body', before.value, after.value, ids, note);
}

function parsed(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

function compareValues(at: string, was: unknown, is: unknown, ids: Ids, note: Note): void {
  if (Array.isArray(was) && Array.isArray(is)) {
    for (let n = 0; n < Math.max(was.length, is.length); n += 1)
      compareMember(`${at}[${n}]`, n in was, was[n], n in is, is[n], ids, note);
    return;
  }
  if (isObject(was) && isObject(is)) {
    for (const name of new Set([...Object.keys(was), ...Object.keys(is)]))
      compareMember(`${at}.${name}`, name in was, was[name], name in is, is[name], ids, note);
    return;
  }
  if (was === is || sameText(at, was, is, ids)) return;
  note(at, JSON.stringify(was) ?? '', JSON.stringify(is) ?? '');
}

function compareMember(
  at: string,
  wasThere: boolean,
  was: unknown,
  isThere: boolean,
  is: unknown,
  ids: Ids,
  note: Note,
): void {
  if (wasThere && isThere) compareValues(at, was, is, ids, note);
  else
    note(
      at,
      wasThere ? (JSON.stringify(was) ?? '') : '(none)',
      isThere ? (JSON.stringify(is) ?? '') : '(none)',
    );
}

function sameText(at: string, was: unknown, is: unknown, ids: Ids): boolean {
  if (typeof was !== 'string' || typeof is !== 'string') return false;
  if (TIME.test(was) && TIME.test(is)) return true;
  if (ids.same(was, is) || ids.translate(was) === is) return true;
  const name = /([^.[\]]+)(?:\[\d+\])*$/.exec(at)?.[1] ?? '';
  if (!ID_NAME.test(name)) return false;
  ids.learn(was, is);
  return was.length >= MIN_ID;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const MAX_SHOWN = 200;
const short = (text: string): string => (text.length <= MAX_SHOWN ? text : `${text.slice(0, MAX_SHOWN)}…`);

/** Which of the declared ones covers it; null: nobody meant it. */
export function declaredBy(
  difference: Difference,
  status: number,
  declared: readonly Declared[],
): Declared | null {
  return (
    declared.find(
      (one) =>
        (one.status === undefined || one.status === status) &&
        requestFits(one.request, difference.request) &&
        placeFits(one.at, difference.at),
    ) ?? null
  );
}

function requestFits(pattern: string, request: string): boolean {
  if (pattern === '*') return true;
  const [parts, given] = [pattern.split('/'), request.split('/')];
  return parts.length === given.length && parts.every((part, n) => part === '*' || part === given[n]);
}

function placeFits(pattern: string, at: string): boolean {
  const split = (text: string): string[] => text.replaceAll('[', '.').replaceAll(']', '').split('.');
  const [parts, given] = [split(pattern), split(at)];
  for (const [n, part] of parts.entries()) {
    if (part === '**') return true;
    if (part !== '*' && part !== given[n]) return false;
  }
  return parts.length === given.length;
}
