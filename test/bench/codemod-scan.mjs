// One scan of a repository by the built codemods, or the count of its program's files; prints one JSON object.
import { readdirSync } from 'node:fs';
import { join } from 'node:path';

const [what, root, types] = process.argv.slice(2);
const started = performance.now();
if (what === 'scan') {
  const { makePlan } = await import('../../dist/codemods/index.js');
  const options = { root, paths: [], level: 'safe', inlineSql: false, todo: false };
  const plan = makePlan({ ...options, types: types === 'typed' });
  const { user, system } = process.cpuUsage();
  print({
    seconds: (performance.now() - started) / 1_000,
    cpuSeconds: (user + system) / 1e6,
    // KiB.
    rssMb: process.resourceUsage().maxRSS / 1_024,
    files: plan.counts.files,
    applied: plan.sites.filter((s) => s.applied).length,
  });
} else {
  const { default: ts } = await import('typescript');
  const sources = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' });
  const roots = sources.filter((f) => f.endsWith('.ts')).map((f) => join(root, 'src', f));
  const options = { module: ts.ModuleKind.NodeNext, skipLibCheck: true, noEmit: true, types: ['node'] };
  print({ files: ts.createProgram(roots, options).getSourceFiles().length });
}

function print(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}
