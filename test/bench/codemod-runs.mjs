// The table of docs/lookup/codemods-runs.md: scans copies of public repositories, each in a process of its own, by the
// built codemods. `node test/bench/codemod-runs.mjs --write owner/name@commit=folder …`; without --write it prints the
// table. A folder `--keep <folder>` holds one result a repository: what is there already is not measured again.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const PAGE = new URL('../../docs/lookup/codemods-runs.md', import.meta.url);
const MAX_SECONDS = 1_800;
const HEAD =
  '| repository | commit | files (with types) | publishers | publishes | safe | wrap | thread | left alone, by reason | CPU | memory |';

const args = process.argv.slice(2);
if (args[0] === 'scan') scan(args[1]);
else table(args);

async function scan(root) {
  const { makePlan } = await import('../../dist/codemods/index.js');
  const plan = makePlan({ root, paths: [], level: 'thread', inlineSql: false, todo: false, types: true });
  const { user, system } = process.cpuUsage();
  const reasons = {};
  for (const site of plan.sites.filter((s) => s.reason !== null))
    reasons[site.reason] = (reasons[site.reason] ?? 0) + 1;
  const result = {
    counts: plan.counts,
    publishers: plan.wrappers.length,
    publishes: plan.sites.length,
    reasons,
    degraded: plan.degraded !== null,
    skipped: plan.skipped.length,
    cpuSeconds: (user + system) / 1e6,
    // KiB.
    rssMb: process.resourceUsage().maxRSS / 1_024,
  };
  process.stdout.write(`${JSON.stringify(result)}\n`);
}

function table(given) {
  const keep = given.includes('--keep') ? given[given.indexOf('--keep') + 1] : undefined;
  const rows = given.filter((a) => a.includes('=')).map((a) => row(a, keep));
  const lines = [HEAD, HEAD.replaceAll(/[^|]+/g, '---'), ...rows];
  if (!given.includes('--write')) {
    process.stdout.write(`${lines.join('\n')}\n`);
    return;
  }
  const page = readFileSync(PAGE, 'utf8').split('\n');
  const start = page.findIndex((line) => line.startsWith('| repository |'));
  const end = page.findIndex((line, at) => at > start && !line.startsWith('|'));
  writeFileSync(PAGE, [...page.slice(0, start), ...lines, ...page.slice(end)].join('\n'));
}

function row(given, keep) {
  const [, name, commit, folder] = /^([^@=]+)@([^=]+)=(.+)$/.exec(given) ?? [];
  if (folder === undefined) throw new Error(`${given} is not owner/name@commit=folder`);
  const found = measured(name, folder, keep);
  const { counts, reasons } = found;
  const left = Object.entries(reasons)
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
    .map(([reason, count]) => `\`${reason}\` ${count}`)
    .join(', ');
  const cells = [
    name,
    commit.slice(0, 8),
    `${counts.files} (${counts.parsed})`,
    found.publishers,
    found.publishes,
    counts.safe,
    counts.wrap,
    counts.thread,
    left || '-',
    `${found.cpuSeconds.toFixed(1)} s`,
    `${Math.round(found.rssMb)} MB`,
  ];
  return `| ${cells.join(' | ')} |`;
}

function measured(name, folder, keep) {
  const path = keep === undefined ? undefined : join(keep, `${name.replaceAll('/', '+')}.json`);
  if (path !== undefined && existsSync(path)) return JSON.parse(readFileSync(path, 'utf8'));
  const script = fileURLToPath(import.meta.url);
  const out = execFileSync(process.execPath, [script, 'scan', folder], {
    encoding: 'utf8',
    timeout: MAX_SECONDS * 1_000,
  });
  if (path !== undefined) {
    mkdirSync(keep, { recursive: true });
    writeFileSync(path, out);
  }
  process.stderr.write(`${name} ${out}`);
  return JSON.parse(out);
}
