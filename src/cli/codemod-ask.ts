/**
 * Asks a person about each rewrite: yes, no, all the rest, or quit. It knows sites and answers; the terminal is handed
 * in, so that a test can answer.
 */
import { createInterface } from 'node:readline/promises';
import type { PlanSite } from '../../codemods/index.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { printable } from './printable.js';

/** The fingerprints of the sites that are to be rewritten. */
export async function chooseSites(
  sites: readonly PlanSite[],
  ask: (question: string) => Promise<string>,
  say: (line: string) => void,
): Promise<ReadonlySet<string>> {
  const chosen = new Set<string>();
  for (const [index, site] of sites.entries()) {
    say('');
    for (const line of about(site, index + 1, sites.length)) say(line);
    const answer = await oneOf(ask, say);
    if (answer === 'quit') return chosen;
    if (answer === 'all') return new Set([...chosen, ...sites.slice(index).map((s) => s.fingerprint)]);
    if (answer === 'yes') chosen.add(site.fingerprint);
  }
  return chosen;
}

type Answer = 'yes' | 'no' | 'all' | 'quit';

const ANSWERS: ReadonlyMap<string, Answer> = new Map(
  Object.entries({
    y: 'yes',
    yes: 'yes',
    n: 'no',
    no: 'no',
    a: 'all',
    all: 'all',
    q: 'quit',
    quit: 'quit',
  } as const),
);

async function oneOf(
  ask: (question: string) => Promise<string>,
  say: (line: string) => void,
): Promise<Answer> {
  for (;;) {
    const given = await ask('Rewrite this one? [y]es, [n]o, [a]ll, [q]uit: ');
    const answer = ANSWERS.get(given.trim().toLowerCase());
    if (answer !== undefined) return answer;
    say('Answer y, n, a or q.');
  }
}

function about(site: PlanSite, number: number, of: number): string[] {
  const handle = site.transaction?.handle ?? '';
  const then =
    site.kind === null
      ? `the same call, handed ${handle}: what it publishes is enqueued there`
      : `enqueue(${handle}, '${site.kind}', ${site.payload ?? 'null'})`;
  return [
    `${number} of ${of}: ${site.file}:${site.line} ${site.function} (${site.level})`,
    `  now   ${site.source}`,
    `  then  ${then}`,
    ...(site.delta?.notes ?? []).map((note) => `  look at: ${note}.`),
  ];
}

/** Throws `no-terminal` when there is none: a pipe would answer with whatever it holds. */
export function checkTerminal(): void {
  if (process.stdin.isTTY && process.stderr.isTTY) return;
  throw new UnbrokerError('no-terminal', '--interactive asks on a terminal, and this is none', {
    hint: 'Run it in a terminal, or name the files to rewrite instead',
    exitStatus: EXIT.badInput,
  });
}

/**
 * Asks on the terminal, which `checkTerminal` has seen. Throws `question-stopped` at a Ctrl-C: whoever presses it wants
 * nothing written, whatever was answered before.
 */
export async function askOnTerminal(sites: readonly PlanSite[]): Promise<ReadonlySet<string>> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  // The end of the input is a quit: nobody is there to answer any more.
  let ended: () => void = () => undefined;
  const end = new Promise<string>((resolve) => {
    ended = () => resolve('quit');
  });
  terminal.once('close', ended);
  const stop = new Promise<never>((_resolve, reject) => terminal.once('SIGINT', () => reject(stopped())));
  stop.catch(() => undefined);
  try {
    return await chooseSites(
      sites,
      (question) => Promise.race([terminal.question(question), end, stop]),
      (line) => process.stderr.write(`${printable(line)}\n`),
    );
  } finally {
    terminal.close();
  }
}

function stopped(): UnbrokerError {
  return new UnbrokerError('question-stopped', 'Stopped at the question; nothing was written', {
    hint: 'Run the command again',
    exitStatus: EXIT.interrupted,
  });
}
