/**
 * Sends a transcript's requests to a shim, one after the other, and compares the answers. What it compares is compare.ts's;
 * it only speaks HTTP.
 */
import { compare, type Declared, type Difference, declaredBy, Ids } from './compare.js';
import { type Exchange, keptHeaders } from './exchange.js';

export interface ReplayOptions {
  /** Base URL of the shim. */
  readonly url: string;
  readonly declared: readonly Declared[];
  /** Sent as `X-API-Key`. */
  readonly key?: string | undefined;
}

export interface Replayed {
  readonly exchanges: number;
  readonly undeclared: readonly Difference[];
  /** Differences that were meant, by their declaration. */
  readonly meant: readonly { readonly declared: Declared; readonly count: number }[];
  /** Declarations that nothing came of: they can go. */
  readonly unused: readonly Declared[];
}

const TIMEOUT_MS = 30_000;

export async function replay(
  exchanges: readonly Exchange[],
  { url, declared, key }: ReplayOptions,
): Promise<Replayed> {
  const ids = new Ids();
  const counts = new Map<Declared, number>();
  const undeclared: Difference[] = [];
  for (const [index, exchange] of exchanges.entries()) {
    const answer = await send(exchange.request, url, ids, key);
    for (const difference of compare(index + 1, exchange, answer, ids)) {
      const by = declaredBy(difference, exchange.response.status, declared);
      if (by === null) undeclared.push(difference);
      else counts.set(by, (counts.get(by) ?? 0) + 1);
    }
  }
  return {
    exchanges: exchanges.length,
    undeclared,
    meant: [...counts].map(([one, count]) => ({ declared: one, count })),
    unused: declared.filter((one) => !counts.has(one)),
  };
}

async function send(
  { method, target, headers, body }: Exchange['request'],
  base: string,
  ids: Ids,
  key: string | undefined,
): Promise<Exchange['response']> {
  const answer = await fetch(`${base.replace(/\/+$/, '')}${ids.translate(target)}`, {
    method,
    headers: { ...headers, ...(key === undefined ? {} : { 'x-api-key': key }) },
    redirect: 'manual',
    signal: AbortSignal.timeout(TIMEOUT_MS),
    ...(body === '' ? {} : { body: ids.translate(body) }),
  });
  return {
    status: answer.status,
    headers: keptHeaders(Object.fromEntries(answer.headers)),
    body: await answer.text(),
  };
}
