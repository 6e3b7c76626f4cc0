/** What a file binds in a dependency container, and what a person chooses when the containers do not settle it. */
import { cpSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { bindingsIn } from '../../codemods/bindings.js';
import { makePlan } from '../../codemods/index.js';
import { parse } from '../../codemods/program.js';
import { linkPackages } from './fixture.js';

// A compiler starts: on a loaded machine that takes its time.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

test.each([
  ['({ provide: T, useClass: A })', 'T = A'],
  ['({ provide: "t", useClass: dev ? A : B })', "'t' = A, 't' = B"],
  ['({ provide: T, useExisting: U })', 'T -> U'],
  ['({ provide: forwardRef(() => T), useExisting: "u" })', "T -> 'u'"],
  [
    '({ provide: TYPES.T, useFactory: () => { if (x) return new A(); return new B(1); } })',
    'TYPES.T = A, TYPES.T = B',
  ],
  ['({ provide: T, useFactory(a: A, n: number) { return a; } })', 'T -> A'],
  ['({ provide: T, useFactory: async () => await make() })', 'T ? make()'],
  ['({ provide: T, useFactory: make })', 'T ? make'],
  ['({ provide: T, useValue: { on: true } })', 'T ? {on:true}'],
  ['({ provide: T })', ''],
  ['container.bind<I>(T).to(A).inSingletonScope()', 'T = A'],
  ['container.rebind(T).toConstantValue(new A())', 'T = A'],
  ['container.bind(A).toSelf()', 'A = A'],
  ['container.bind(T).toDynamicValue((c) => c.get(A))', 'T ? c.get(A)'],
  ['bind(Symbol.for("t")).to(A); c.bind(Symbol.for("t")).toService(U)', 'Symbol.for("t") -> U'],
  ['container.register("T", { useToken: U })', "'T' -> U"],
  [
    'container.registerSingleton(T, A); container.registerInstance(U, new B()); container.registerType(V, C)',
    'T = A, U = B, V -> C',
  ],
  ['const r = registry([{ token: T, useClass: A }])', 'T = A'],
  ['Container.set(T, new A()); Container.set({ id: U, type: B }); map.set(T, new C())', 'T = A, U = B'],
  ['@Service({ id: T }) class A {} @Service() class B {} @Service("t") class C {}', "T = A, 't' = C"],
  [
    'c.register({ a: asClass(A).scoped(), b: asFunction(() => new B()), v: asValue(v), d: aliasTo("a") })',
    "a = A, b = B, v ? v, d -> 'a'",
  ],
  ['fn.bind(this).to; [].register({}); c.register(T)', ''],
])('%s', (text, said) => {
  const file = parse('a.ts', text);
  const found = file === undefined ? [] : bindingsIn(file);
  const shown = found.map(({ token, bound }) => {
    if (bound.kind === 'other') return `${token} ? ${bound.text}`;
    return `${token} ${bound.kind === 'class' ? '=' : '->'} ${bound.name}`;
  });
  expect(shown.join(', ')).toBe(said);
});

describe('several implementations', () => {
  let root: string;

  beforeAll(() => {
    root = realpathSync(mkdtempSync(join(tmpdir(), 'codemod-bindings-')));
    cpSync(join(import.meta.dirname, 'fixtures', 'dependency-injection', 'input'), root, { recursive: true });
    linkPackages(root, ['@nestjs/common']);
  });

  afterAll(() => rmSync(root, { recursive: true, force: true }));

  function chosen(wrappers: object): (string | null)[] {
    writeFileSync(join(root, 'unbroker.codemod.json'), JSON.stringify({ wrappers }));
    const options = { root, paths: [], level: 'wrap', inlineSql: false, todo: false, types: true } as const;
    const sites = makePlan(options).sites.filter((s) =>
      ['Chosen', 'Free'].some((c) => s.function.startsWith(c)),
    );
    return sites.map((s) => s.reason ?? s.kind);
  }

  test('one that is confirmed is the one that runs; so is the one that is left', () => {
    expect(chosen({ 'src/events.ts#RabbitEvents.placed': { kind: 'order.placed', payload: 0 } })).toEqual([
      'order.placed',
      'order.placed',
    ]);
    expect(chosen({ 'src/events.ts#LogEvents.placed': false })).toEqual(['order.placed', 'order.placed']);
  });

  test('the report lists every candidate and where it is bound', () => {
    writeFileSync(join(root, 'unbroker.codemod.json'), '{}');
    const options = { root, paths: [], level: 'wrap', inlineSql: false, todo: false, types: true } as const;
    const site = makePlan(options).sites.find((s) => s.function.startsWith('Twice'));
    expect(site?.message).toBe(
      'The method has several implementations (src/events.ts#RabbitEvents.placed (line 10), src/events.ts#LogEvents.placed (line 19, does not publish); bound: RabbitEvents at src/app.module.ts:18, LogEvents at src/quiet.module.ts:5)',
    );
  });
});
