/**
 * Every folder under fixtures/ is a test: the verdicts are those of expect.json, the output is equal, the second run
 * changes nothing, no new type error appears, and no byte outside the edits moves. UPDATE_FIXTURES=1 writes output/
 * anew, to be read before it is committed.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { applyPlan, type Plan } from '../../codemods/index.js';
import {
  filesOf,
  fixtureNames,
  inputOf,
  openFixture,
  outputFolder,
  outputOf,
  verdicts,
  type Workspace,
} from './fixture.js';
import { added, diagnosticsTogether } from './type-errors.js';

// A compiler starts in each: on a loaded machine that takes its time.
vi.setConfig({ testTimeout: 120_000 });

const only = process.env['FIXTURE'];

const names = fixtureNames().filter((name) => only === undefined || name.includes(only));

interface Applied {
  readonly workspace: Workspace;
  readonly plan: Plan;
}

const applied = new Map<string, Applied>();

/** A copy of the fixture, rewritten: once for all of its tests. */
function apply(name: string): Applied {
  const known = applied.get(name);
  if (known !== undefined) return known;
  const workspace = openFixture(name);
  const plan = workspace.plan();
  applyPlan(plan, { allowDirty: true });
  if (process.env['UPDATE_FIXTURES']) writeOutput(name, plan);
  const made = { workspace, plan };
  applied.set(name, made);
  return made;
}

afterAll(() => {
  for (const { workspace } of applied.values()) workspace.remove();
});

describe.each(names)('%s', (name) => {
  let workspace: Workspace;
  let plan: Plan;

  beforeAll(() => {
    ({ workspace, plan } = apply(name));
  });

  test('the verdicts are as expected', () => {
    expect(verdicts(plan)).toEqual(workspace.expected.sites);
    const whys = Object.entries(workspace.expected.whys ?? {});
    const said = whys.map(([at]) => [at, plan.sites.find((s) => `${s.file}:${s.line}` === at)?.message]);
    expect(Object.fromEntries(said)).toEqual(
      Object.fromEntries(whys.map(([at, why]) => [at, expect.stringContaining(why)])),
    );
    expect(plan.skipped.map((s) => `${s.path} ${s.reason}`)).toEqual(workspace.expected.skipped ?? []);
    expect(plan.degraded !== null).toBe(workspace.expected.degraded === true);
  });

  test('the output is equal', () => {
    const expected = new Map([...inputOf(name), ...outputOf(name)]);
    expect(Object.fromEntries(filesOf(workspace.folder))).toEqual(Object.fromEntries(expected));
  });

  test('the second run changes nothing', () => {
    const again = workspace.plan();
    expect(again.changes.map((c) => c.path)).toEqual([]);
    expect(again.sites.filter((s) => s.applied)).toEqual([]);
  });

  test('no byte outside the edits moves', () => {
    const input = inputOf(name);
    for (const change of plan.changes) {
      const mark = change.bom ? '\uFEFF' : '';
      expect(mark + change.before).toBe(input.get(change.path) ?? '');
      const onDisk = readFileSync(join(workspace.folder, change.path), 'utf8').slice(mark.length);
      let rest = onDisk;
      let at = 0;
      const edits = [...change.edits].sort((a, b) => a.start - b.start || a.end - b.end);
      for (const edit of [...edits, { start: change.before.length, end: change.before.length, text: '' }]) {
        const kept = change.before.slice(at, edit.start);
        expect(rest.startsWith(kept)).toBe(true);
        rest = rest.slice(kept.length);
        expect(rest.startsWith(edit.text)).toBe(true);
        rest = rest.slice(edit.text.length);
        at = edit.end;
      }
      expect(rest).toBe('');
    }
  });
});

/** Together, after all are rewritten: a compiler for each took half of this file's time. */
describe('types', () => {
  let untouched: ReadonlyMap<string, Workspace> = new Map();
  let diagnosticsIn: (folder: string) => string[];

  beforeAll(() => {
    untouched = new Map(names.map((name) => [name, openFixture(name)]));
    const workspaces = [...names.map((name) => apply(name).workspace), ...untouched.values()];
    diagnosticsIn = diagnosticsTogether(workspaces.map(({ folder }) => folder));
  });

  afterAll(() => {
    for (const workspace of untouched.values()) workspace.remove();
  });

  test.each(names)('%s: no new type error', (name) => {
    const { workspace, plan } = apply(name);
    // A parameter or connection that is no longer read is named in the report and stays.
    const leftovers = plan.changes.flatMap((c) =>
      c.leftovers.map((l) => `'${l.replace(/ .*/, '')}' is declared but`),
    );
    // Without packages the parameter of a library's callback is any.
    const untyped = workspace.expected.installed === false ? ['TS7006'] : [];
    const after = diagnosticsIn(workspace.folder);
    // What was wrong before is only asked when something is wrong.
    const before = after.length === 0 ? [] : diagnosticsIn(untouched.get(name)?.folder ?? '');
    const found = added(before, after);
    expect(found.filter((d) => ![...leftovers, ...untyped].some((l) => d.includes(l)))).toEqual([]);
  });
});

function writeOutput(name: string, plan: Plan): void {
  rmSync(outputFolder(name), { recursive: true, force: true });
  for (const change of plan.changes) {
    const path = join(outputFolder(name), change.path);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, (change.bom ? '\uFEFF' : '') + change.after);
  }
}
