/**
 * What may be told of something that was thrown. A log hears classes, codes and the place in the code: a message may quote a
 * payload. A row keeps the messages, too. Anything can be thrown (a text, a revoked proxy, an error whose getters throw,
 * causes that lead back to themselves, a message of megabytes), so nothing here throws, and all of it is bounded.
 */

/** Its class and its code. */
export interface ToldError {
  readonly error: string;
  readonly code?: string;
}

export interface ErrorFields extends ToldError {
  /** What caused it, the nearest first, what an AggregateError holds among them. Absent when there is nothing. */
  readonly causes?: readonly ToldError[];
}

const MAX_NAME = 100;
const MAX_FRAME = 200;
/** A stack has ten frames unless somebody asked for more. */
const MAX_STACK = 20_000;
const MAX_DEPTH = 5;
const MAX_ERRORS = 10;
/** In all, however they branch. */
const MAX_CAUSES = 20;

/** Of these a log hears: never of a message. */
export function errorFields(error: unknown): ErrorFields {
  const causes = causesOf(error);
  return causes.length === 0 ? told(error) : { ...told(error), causes: causes.map(told) };
}

function told(error: unknown): ToldError {
  const name = nameOf(error);
  const code = codeIn(error);
  return code === undefined ? { error: name } : { error: name, code };
}

function nameOf(error: unknown): string {
  try {
    return (error instanceof Error ? String(error.name) : typeof error).slice(0, MAX_NAME);
  } catch {
    return 'unreadable';
  }
}

function codeIn(error: unknown): string | undefined {
  const code = member(error, 'code');
  return typeof code === 'string' || typeof code === 'number' ? String(code).slice(0, MAX_NAME) : undefined;
}

/** Undefined, too, where it cannot be read. */
function member(value: unknown, name: string): unknown {
  if ((typeof value !== 'object' || value === null) && typeof value !== 'function') return undefined;
  try {
    return (value as Record<string, unknown>)[name];
  } catch {
    return undefined;
  }
}

/** One level below: its cause, and the first of what an AggregateError holds. */
function below(error: unknown): unknown[] {
  const cause = member(error, 'cause');
  const next = cause === undefined || cause === null ? [] : [cause];
  try {
    if (error instanceof AggregateError && Array.isArray(error.errors))
      next.push(...error.errors.slice(0, MAX_ERRORS));
  } catch {
    // A getter or a proxy that throws.
  }
  return next;
}

/** All that is below it, depth first, each once. */
function causesOf(error: unknown): unknown[] {
  const found = new Set<unknown>([error]);
  const walk = (from: unknown, depth: number): void => {
    if (depth > MAX_DEPTH) return;
    for (const next of below(from)) {
      if (found.has(next) || found.size > MAX_CAUSES) continue;
      found.add(next);
      walk(next, depth + 1);
    }
  };
  walk(error, 1);
  return [...found].slice(1);
}

/**
 * Its message with those of its causes, as `fetch failed: connect ECONNREFUSED 127.0.0.1:9`; what one AggregateError holds is set
 * apart by `; `. What a wrapper repeats of its cause is told once. Undefined when nothing can be read.
 */
export function messageOf(error: unknown, maxLength: number): string | undefined {
  const seen = new Set<unknown>();
  const words = (from: unknown, depth: number, above: string): string | undefined => {
    seen.add(from);
    const own = ownWords(from, depth > 0)?.slice(0, maxLength);
    const causes = new Set<string | undefined>();
    for (const next of depth < MAX_DEPTH ? below(from) : [])
      if (!seen.has(next) && seen.size <= MAX_CAUSES) causes.add(words(next, depth + 1, own ?? ''));
    const why = [...causes].filter(Boolean).join('; ');
    if (own === undefined || own === '') return why || (depth > 0 ? classAndCode(from) : own);
    if (repeats(above, own)) return why;
    if (why === '') return own;
    // However long it is, its causes have room.
    return `${own.slice(0, Math.max(maxLength - why.length - 2, maxLength / 2))}: ${why}`;
  };
  return words(error, 0, '')?.slice(0, maxLength);
}

/** `it failed: no` repeats `no`; `nothing` does not. */
const repeats = (above: string, own: string): boolean =>
  above.endsWith(own) || (own.length > 20 && above.includes(own));

/** Of what has the face of an error, its message; what else was thrown by its sort, and what is in it by its names. */
function ownWords(error: unknown, isCause: boolean): string | undefined {
  // One of ours ends with the next step.
  const message = member(error, member(error, 'name') === 'UnbrokerError' ? 'line' : 'message');
  if (typeof message === 'string') return message;
  const sort = sortOf(error);
  if (sort === undefined || typeof error === 'string' || isCause) return sort;
  return `a value that is not an Error was thrown: ${sort}`;
}

function sortOf(value: unknown): string | undefined {
  if (typeof value === 'symbol' || typeof value === 'function') return `a ${typeof value}`;
  if (typeof value !== 'object' || value === null) return String(value);
  try {
    if (value instanceof Error) return undefined;
    const names = Object.keys(value).slice(0, MAX_ERRORS).join(', ').slice(0, MAX_NAME);
    return names === '' ? 'an object' : `an object with ${names}`;
  } catch {
    return undefined;
  }
}

function classAndCode(error: unknown): string {
  const { error: name, code } = told(error);
  return code === undefined ? name : `${name} ${code}`;
}

/**
 * Where it was thrown, as `send (file:///app/handlers.ts:3:9)`: the first frame that is neither Node's, nor a package's, nor ours,
 * of the error or else of its causes; failing that, the first there is. Undefined without one.
 */
export function placeOf(error: unknown): string | undefined {
  const frames = framesOf(error);
  const own = frames.find(isCallers) ?? causesOf(error).flatMap(framesOf).find(isCallers);
  const frame = own ?? frames.find((line) => !isForeign(line)) ?? frames[0];
  return frame?.slice(0, MAX_FRAME);
}

/** Without the message that a stack begins with: a line of that, too, may look like a frame. */
function framesOf(error: unknown): string[] {
  const stack = member(error, 'stack');
  if (typeof stack !== 'string') return [];
  const message = member(error, 'message');
  const from =
    typeof message === 'string' && stack.includes(message) ? stack.indexOf(message) + message.length : 0;
  const lines = stack.slice(Math.max(from, stack.length - MAX_STACK)).split('\n');
  // Changed since, so that it was not found: the frames are what the stack ends with.
  const first = lines.findLastIndex((line) => !line.startsWith('    at ')) + 1;
  return lines
    .slice(first)
    .filter((line) => /:\d+:\d+\)?$/.test(line))
    .map((line) => line.slice('    at '.length));
}

/** Node's, or a package's. */
const isForeign = (frame: string): boolean => /(^|[\s(])node:|[/\\]node_modules[/\\]/.test(frame);

const isCallers = (frame: string): boolean => !isForeign(frame) && !isOurs(frame);

/** Where this package lies, which need not be below node_modules: a workspace, a link. */
const HERE = /(?:file:\/\/|\/|[A-Z]:\\).*(?=[/\\]src[/\\]thrown\.[cm]?[jt]s:)/.exec(
  framesOf(new Error('here'))[0] ?? '',
);

function isOurs(frame: string): boolean {
  const at = HERE === null ? -1 : frame.indexOf(HERE[0]);
  return HERE !== null && at >= 0 && /^[/\\](src|adapters)[/\\]/.test(frame.slice(at + HERE[0].length));
}
