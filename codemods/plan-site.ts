/**
 * What a plan says of one publish: where it is, what it would become and why not, and what changes with it. It decides
 * nothing: the verdict is read off what the site's reader found.
 */

import type { ts } from 'ts-morph';
import type { OpenSite } from './changes.js';
import { type Delta, deltaOf } from './delta.js';
import type { Analysis } from './program.js';
import type { Obstacle, ReasonCode } from './reasons.js';
import type { ReadSite, SiteReader } from './site.js';
import { endLineOf, lineOf, quote } from './syntax.js';
import { memberName, type ThreadStep } from './thread.js';
import { type Confidence, decide, type Level } from './verdict.js';

export interface PlanSite {
  /** The same after lines have moved; see fingerprint.ts. */
  readonly fingerprint: string;
  readonly file: string;
  readonly line: number;
  readonly endLine: number;
  readonly function: string;
  readonly source: string;
  readonly publish: {
    readonly idiom: string;
    readonly path: readonly string[];
    readonly exchange: string | null;
  };
  readonly kind: string | null;
  readonly payload: string | null;
  readonly options: Readonly<Record<string, string>>;
  readonly transaction: {
    readonly idiom: string;
    readonly handle: string;
    readonly begin: number | null;
    readonly commit: number | null;
    readonly position: 'after' | 'inside' | 'none';
  } | null;
  readonly level: Level;
  /** Whether this plan's level applies it. */
  readonly applied: boolean;
  readonly reason: ReasonCode | null;
  readonly message: string | null;
  readonly next: string | null;
  readonly also: readonly Obstacle[];
  /** What the handle passes through, and for `no-transaction-here` would have to: functions, interfaces, test doubles. */
  readonly thread: readonly ThreadStep[];
  readonly confidence: Confidence;
  readonly delta: Delta | null;
}

export function siteOf(
  site: OpenSite,
  analysis: Analysis,
  reader: SiteReader,
  applied: boolean,
  fingerprint: string,
): PlanSite {
  const { read } = site;
  const { publish, transaction } = read;
  const verdict = decide({
    reach: site.reach,
    obstacles: read.obstacles,
    degraded: analysis.unresolvedPackages.length > 0,
    caveats: publish.notes.length + (read.shared ? 1 : 0) + (read.pool?.behind.length ?? 0),
    noWriteSeen: transaction !== undefined && !transaction.writes,
  });
  return {
    fingerprint,
    file: analysis.pathOf(read.call.getSourceFile()),
    line: lineOf(read.call),
    endLine: endLineOf(read.call),
    function: read.functionName,
    source: quote(read.call),
    publish: { idiom: publish.idiom, path: publish.path, exchange: publish.exchange },
    kind: publish.kind,
    payload: publish.payload,
    options: { ...publish.options },
    transaction: transactionOf(read),
    ...verdict,
    thread: read.thread,
    applied,
    delta: verdict.level === 'refused' ? null : delta(read, reader, analysis),
  };
}

function transactionOf(read: ReadSite): PlanSite['transaction'] {
  const { transaction, pool } = read;
  if (transaction !== undefined) {
    const elsewhere = transaction.end.getSourceFile() !== read.call.getSourceFile();
    return {
      idiom: transaction.idiom,
      handle: transaction.handle,
      begin: transaction.begin === undefined || elsewhere ? null : lineOf(transaction.begin),
      commit: elsewhere ? null : lineOf(transaction.end),
      position: transaction.position,
    };
  }
  if (pool === undefined) return null;
  return {
    idiom: pool.idiom,
    handle: pool.pool?.text ?? pool.handleNode.getText(),
    begin: null,
    commit: null,
    position: 'none',
  };
}

/** Of a call that is handed the transaction: what the functions behind it publish. */
function kindsOf({ publish, rewrite }: ReadSite): string[] {
  const inner = rewrite?.threading?.publishes.flatMap((p) => p.facts.kind ?? []) ?? [];
  return inner.length > 0 ? [...new Set(inner)] : [publish.kind ?? ''];
}

function placeFrom(near: ts.Node, node: ts.Node, analysis: Analysis): string {
  const file = node.getSourceFile();
  return near.getSourceFile() === file ? `line ${lineOf(node)}` : `${analysis.pathOf(file)}:${lineOf(node)}`;
}

function throughOf(read: ReadSite, analysis: Analysis): string[] {
  const changed = new Set((read.rewrite?.threading?.parameters ?? []).map((p) => p.signature));
  return [...changed].map((s) => `${memberName(s)} (${analysis.pathOf(s.getSourceFile())}:${lineOf(s)})`);
}

/** One that was declined has no rewrite any more: what would have changed follows from where it stands. */
function howOf({ rewrite, transaction, pool }: ReadSite): 'moved' | 'replaced' | 'wrapped' {
  if (rewrite?.how === 'wrap' || (rewrite === undefined && transaction === undefined && pool !== undefined))
    return 'wrapped';
  const isBehind = rewrite === undefined ? transaction?.position === 'after' : rewrite.how === 'move';
  return isBehind ? 'moved' : 'replaced';
}

function delta(read: ReadSite, reader: SiteReader, analysis: Analysis): Delta {
  const { transaction, pool, publish } = read;
  const how = howOf(read);
  const [first] = pool?.statements ?? [];
  const shared = read.shared
    ? [
        'A call between the commit and the publish was handed a value of the payload; it is read before that call now',
      ]
    : [];
  return deltaOf({
    kinds: kindsOf(read),
    how,
    awaited: read.awaited || publish.path.length === 1,
    rollbackCatch: transaction?.rollbackCatch,
    commitAt: placeFrom(read.call, transaction?.end ?? first ?? read.call, analysis),
    through: throughOf(read, analysis),
    optional: read.rewrite?.threading?.parameters.every((p) => p.optional !== undefined) === true,
    publishLine: lineOf(read.call),
    notes: [...publish.notes, ...shared, ...besides(read, analysis)],
    copied: !publish.plain,
    writes: pool === undefined ? 0 : reader.writesIn(pool),
  });
}

/** What else a new transaction changes around it. */
function besides({ pool, rewrite }: ReadSite, analysis: Analysis): string[] {
  const around = rewrite?.how === 'wrap' ? rewrite.around : undefined;
  const notes = (pool?.behind ?? []).map(movedBehind);
  if (around?.reported !== undefined)
    notes.push(
      `A failed publish was only reported (catch at line ${lineOf(around.reported)}); a failed enqueue takes the write back and is thrown`,
    );
  if (around?.list !== undefined && around.list.elements.length > 1)
    notes.push(
      `What ran beside the publish (line ${lineOf(around.list)}) runs behind the commit now, and not when the enqueue fails`,
    );
  if (pool?.queries.some((q) => q.list !== undefined) === true)
    notes.push("The list became a callback, which has Prisma's time limit: 5 s unless it says otherwise");
  for (const { what, beside } of rewrite?.threading?.additions ?? []) {
    const place = `${analysis.pathOf(beside.getSourceFile())}:${lineOf(beside)}`;
    if (what === 'export') notes.push(`The pool is exported now (${place})`);
    if (what === 'method')
      notes.push(`A new method beside ${memberName(beside)} opens the transaction (${place})`);
  }
  return notes;
}

function movedBehind(statement: ts.Statement): string {
  return `Line ${lineOf(statement)} (${quote(statement)}) runs behind the commit now: its failure no longer keeps the job from being made, and a worker may be faster`;
}
