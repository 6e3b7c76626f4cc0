/** The plan for a terminal: a block a site, then what was left out. The caller makes control characters harmless. */

import type { Plan } from '../plan.js';
import type { PlanSite } from '../plan-site.js';
import { howToConfirm, PUBLISHER_HEAD, publisherRow } from './publishers.js';

export function renderText(plan: Plan): string {
  const lines: string[] = [];
  for (const site of plan.sites) lines.push(...siteLines(site), '');
  if (plan.wrappers.length > 0) {
    lines.push(...publisherLines(plan), '');
  }
  if (plan.skipped.length > 0) {
    lines.push('Files not looked at:');
    for (const s of plan.skipped) lines.push(`  ${s.path}: ${s.reason} (${s.detail})`);
    lines.push('');
  }
  lines.push(...kindLines(plan));
  const leftovers = plan.changes.filter((c) => c.leftovers.length > 0);
  if (leftovers.length > 0) {
    lines.push('Read by nothing after the edit, to be removed by hand:');
    for (const c of leftovers) lines.push(`  ${c.path}: ${c.leftovers.join(', ')}`);
    lines.push('');
  }
  lines.push(...summary(plan));
  return lines.join('\n');
}

function publisherLines({ wrappers }: Plan): string[] {
  const rows = [[...PUBLISHER_HEAD], ...wrappers.map(publisherRow)];
  const widths = PUBLISHER_HEAD.map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd();
  return ['Publishers found:', ...rows.map((row) => `  ${line(row)}`), ...howToConfirm(wrappers)];
}

function kindLines({ kinds }: Plan): string[] {
  if (kinds === null) return [];
  const said =
    kinds.state === 'edited'
      ? 'edited by hand, so it is left alone'
      : kinds.state === 'same'
        ? 'up to date'
        : kinds.state;
  const width = Math.max(0, ...kinds.entries.map((e) => e.kind.length));
  return [
    `Kinds (${kinds.path}, ${said}):`,
    ...kinds.entries.map((e) => {
      const calls = `${e.calls} ${e.calls === 1 ? 'call' : 'calls'}`;
      return `  ${e.kind.padEnd(width)}  ${shortened(e.type)}  (${calls}${e.disagree ? ', which disagree' : ''})`;
    }),
    '',
  ];
}

function siteLines(site: PlanSite): string[] {
  const what = site.kind === null ? site.source : `${site.kind}`;
  const lines = [
    `${site.file}:${site.line}  ${site.level}${site.reason === null ? '' : ` (${site.reason})`}  ${what}`,
  ];
  const say = (label: string, text: string): void => {
    lines.push(`  ${label.padEnd(12)} ${text}`);
  };
  say('in', site.function);
  if (site.publish.path.length > 0) say('publish', site.publish.path.join(' -> '));
  if (site.level === 'refused') {
    if (site.message !== null) say('why', `${site.message}.`);
    if (site.next !== null) say('next', `${site.next}.`);
    for (const step of site.thread)
      say('handle', `through ${step.name} (${step.role}), ${step.file}:${step.line}`);
    if (site.also.length > 0) say('also', site.also.map((o) => `${o.code} (${o.what})`).join('; '));
    return lines;
  }
  const { transaction } = site;
  if (transaction !== null) {
    const place = transaction.commit === null ? '' : `, commit at line ${transaction.commit}`;
    say('transaction', `${transaction.idiom} on ${transaction.handle}${place}`);
  }
  if (site.payload !== null) say('payload', shortened(site.payload));
  const options = Object.entries(site.options).map(([k, v]) => `${k}: ${v}`);
  if (options.length > 0) say('options', shortened(options.join(', ')));
  for (const step of site.thread)
    say('handed on', `to ${step.name} (${step.role}), ${step.file}:${step.line}`);
  say('confidence', site.confidence);
  for (const line of site.delta?.before ?? []) say('before', `${line}.`);
  for (const line of site.delta?.after ?? []) say('now', `${line}.`);
  for (const line of site.delta?.notes ?? []) say('look at', `${line}.`);
  return lines;
}

function shortened(text: string): string {
  const flat = text.replace(/\s+/g, ' ');
  return flat.length > 100 ? `${flat.slice(0, 97)}...` : flat;
}

function summary(plan: Plan): string[] {
  const { files, parsed, safe, wrap, thread, refused } = plan.counts;
  const lines = [
    `${files} files, ${parsed} of them looked into; ${plan.sites.length} call sites: ${safe} safe, ${wrap} wrap, ${thread} thread, ${refused} refused.`,
  ];
  if (plan.degraded !== null) {
    const packages = plan.degraded.packages.length === 0 ? '' : `: ${plan.degraded.packages.join(', ')}`;
    lines.push(`Degraded run, ${plan.degraded.why}${packages}. Install the dependencies for surer answers.`);
  }
  return lines;
}
