/** The plan for a pull request or an issue: what changes, what is left, and why. */

import type { Plan } from '../plan.js';
import type { PlanSite } from '../plan-site.js';
import { REASONS } from '../reasons.js';
import { howToConfirm, PUBLISHER_HEAD, publisherRow } from './publishers.js';

export function renderMarkdown(plan: Plan): string {
  const { safe, wrap, thread, refused } = plan.counts;
  const lines = [
    '# Publishes after a commit',
    '',
    `${plan.sites.length} call sites: ${safe} safe, ${wrap} need a transaction (\`--level wrap\`), ${thread} need it handed on (\`--level thread\`), ${refused} left alone.`,
    '',
  ];
  if (plan.degraded !== null)
    lines.push(
      `> Degraded: ${plan.degraded.why}${plan.degraded.packages.length > 0 ? ` (${plan.degraded.packages.join(', ')})` : ''}.`,
      '',
    );
  section(
    lines,
    'Safe',
    plan.sites.filter((s) => s.level === 'safe'),
  );
  section(
    lines,
    'With a new transaction',
    plan.sites.filter((s) => s.level === 'wrap'),
  );
  section(
    lines,
    'With a transaction that is handed on',
    plan.sites.filter((s) => s.level === 'thread'),
  );
  refusals(
    lines,
    plan.sites.filter((s) => s.level === 'refused'),
  );
  if (plan.wrappers.length > 0) {
    lines.push('## Publishers', '', row(PUBLISHER_HEAD), row(PUBLISHER_HEAD.map(() => '---')));
    for (const w of plan.wrappers) {
      const [id = '', ...rest] = publisherRow(w).map(cell);
      lines.push(row([`\`${id}\``, ...rest]));
    }
    const [intro, example = '', note] = howToConfirm(plan.wrappers);
    lines.push('', ...(intro === undefined ? [] : [intro, '', `    ${example.trim()}`, '', `${note}`, '']));
  }
  if (plan.kinds !== null) {
    lines.push('## Kinds', '', '| kind | payload | calls |', '|---|---|---|');
    for (const k of plan.kinds.entries)
      lines.push(
        `| \`${cell(k.kind)}\` | \`${cell(k.type)}\`${k.disagree ? ' (the calls disagree)' : ''} | ${k.calls} |`,
      );
    lines.push('');
  }
  if (plan.skipped.length > 0) {
    lines.push('## Files not looked at', '');
    for (const s of plan.skipped) lines.push(`- \`${cell(s.path)}\`: ${s.reason}, ${cell(s.detail)}`);
    lines.push('');
  }
  return lines.join('\n');
}

function section(lines: string[], title: string, sites: readonly PlanSite[]): void {
  if (sites.length === 0) return;
  lines.push(`## ${title}`, '');
  for (const site of sites) {
    lines.push(
      `### \`${cell(site.file)}:${site.line}\` ${cell(site.function)} → \`${cell(site.kind ?? '')}\``,
      '',
    );
    for (const line of site.delta?.before ?? []) lines.push(`- before: ${cell(line)}.`);
    for (const line of site.delta?.after ?? []) lines.push(`- now: ${cell(line)}.`);
    for (const line of site.delta?.notes ?? []) lines.push(`- look at: ${cell(line)}.`);
    for (const t of site.thread)
      lines.push(`- through \`${cell(t.name)}\` (${t.role}), \`${cell(t.file)}:${t.line}\``);
    lines.push('');
  }
}

/** Grouped by reason, in the order of precedence. */
function refusals(lines: string[], sites: readonly PlanSite[]): void {
  if (sites.length === 0) return;
  lines.push('## Left alone', '');
  for (const { code, next } of REASONS) {
    const mine = sites.filter((s) => s.reason === code);
    if (mine.length === 0) continue;
    lines.push(`### ${code}`, '', `${next}.`, '');
    for (const s of mine)
      lines.push(
        `- \`${cell(s.file)}:${s.line}\` ${cell(s.function)}: ${cell(s.message ?? '')}`,
        ...s.thread.map((t) => `  - through \`${cell(t.name)}\` (${t.role}), \`${cell(t.file)}:${t.line}\``),
      );
    lines.push('');
  }
}

function row(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`;
}

/** Source text in a table or heading: no line breaks, no bars, no backticks of its own. */
function cell(text: string): string {
  return text.replace(/\s+/g, ' ').replaceAll('|', '\\|').replaceAll('`', "'");
}
