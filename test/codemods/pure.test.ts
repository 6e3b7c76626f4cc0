/** The pure parts of the codemods: SQL's first words, routing key patterns, edits by offset, paths in patches. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { matchesKey, parseConfig } from '../../codemods/config.js';
import { dialectNamed, openingsIn } from '../../codemods/dialects.js';
import { applyEdits, reindent, removeLines } from '../../codemods/edits.js';
import { bracketDepth, decode } from '../../codemods/files.js';
import { parse } from '../../codemods/program.js';
import { byPrecedence, explain, REASONS } from '../../codemods/reasons.js';
import { renderDiff } from '../../codemods/render/diff.js';
import { IDIOMS } from '../../codemods/transactions/idioms.js';
import { name as pgCallback } from '../../codemods/transactions/pg-callback.js';
import { name as pgClient } from '../../codemods/transactions/pg-client.js';
import { name as pgPool } from '../../codemods/transactions/pg-pool.js';
import { classifySql, insertTarget } from '../../codemods/transactions/sql.js';
import { name as transactional } from '../../codemods/transactions/typeorm-transactional.js';
import { decide } from '../../codemods/verdict.js';

describe('SQL', () => {
  test.each([
    ['BEGIN', 'begin'],
    ['  begin;', 'begin'],
    ['START TRANSACTION ISOLATION LEVEL SERIALIZABLE', 'begin'],
    ['COMMIT', 'commit'],
    ['end', 'commit'],
    ['ROLLBACK', 'rollback'],
    ['rollback to savepoint a', 'savepoint'],
    ['SAVEPOINT a', 'savepoint'],
    ["COMMIT PREPARED 'x'", 'unknown'],
    ['COMMIT AND CHAIN', 'unknown'],
    ['commit and no chain', 'commit'],
    ['-- why\n/* what */ INSERT INTO a VALUES (1)', 'write'],
    ['with x as (insert into a values (1) returning *) select * from x', 'write'],
    ['with x as (select 1) select * from x', 'read'],
    ['select * from a', 'read'],
    ['select count(*) from a', 'read'],
    ['select create_order($1)', 'unknown'],
    ['select * from create_order($1)', 'unknown'],
    ['select * from  $ ($1)', 'unknown'],
    ['select  $ ( $ )', 'unknown'],
    ['select  $  from  $  where id = $1', 'read'],
    ['select lower(name) from users', 'read'],
    ['select exists(select 1 from a)', 'read'],
    ['select a from unnest($1::int[]) a', 'read'],
    ['call proc()', 'write'],
    ['', 'unknown'],
    ['vacuum', 'unknown'],
  ])('%s is %s', (text, kind) => {
    expect(classifySql(text)).toBe(kind);
  });

  test('the table of an insert', () => {
    expect(insertTarget('insert into "app"."Event_Outbox" (a) values (1)')).toBe('event_outbox');
    expect(insertTarget('update a set b = 1')).toBeUndefined();
  });
});

describe('routing keys', () => {
  test.each([
    ['notification.*.email', 'notification.receipt.email', true],
    ['notification.*.email', 'notification.a.b.email', false],
    ['notification.#', 'notification', true],
    ['#.email', 'a.b.email', true],
    ['#', '', true],
    ['a.b', 'a.b', true],
    ['a.b', 'a.bc', false],
    ['*', '', true],
    ['#.#.#.#.#.x', `${'a.'.repeat(100)}y`, false],
  ])('%s and %s: %s', (pattern, key, matches) => {
    expect(matchesKey(pattern, key)).toBe(matches);
  });

  test('the configuration keeps its order', () => {
    expect([...parseConfig('{"kinds":{"b.*":"x","a.*":"y"}}').kinds]).toEqual([
      ['b.*', 'x'],
      ['a.*', 'y'],
    ]);
  });
});

describe('edits', () => {
  test('insertions at one place keep their order and go in front of a replacement', () => {
    const edits = [
      { start: 3, end: 4, text: 'X' },
      { start: 3, end: 3, text: '1' },
      { start: 3, end: 3, text: '2' },
      { start: 0, end: 1, text: '' },
    ];
    expect(applyEdits('abcdef', edits)).toBe('bc12Xef');
  });

  test('edits that overlap are refused', () => {
    const overlap = [
      { start: 0, end: 3, text: '' },
      { start: 2, end: 4, text: '' },
    ];
    expect(() => applyEdits('abcdef', overlap)).toThrow(RangeError);
    expect(() => applyEdits('ab', [{ start: 1, end: 9, text: '' }])).toThrow(RangeError);
  });

  test('removed lines take one blank line with them, and no more', () => {
    const text = 'a\n\nb\n}\n';
    expect(applyEdits(text, removeLines(text, [{ start: 3, end: 5 }]))).toBe('a\n}\n');
    const between = 'a\n\nb\n\nc\n';
    expect(applyEdits(between, removeLines(between, [{ start: 3, end: 5 }]))).toBe('a\n\nc\n');
    const tight = 'a\nb\nc\n';
    expect(applyEdits(tight, removeLines(tight, [{ start: 2, end: 4 }]))).toBe('a\nc\n');
  });

  test('template literals keep their text when code moves', () => {
    expect(reindent('{\n    a: `x\n    y`,\n  }', '  ', '\t\t')).toBe('{\n\t\t  a: `x\n    y`,\n\t\t}');
  });
});

describe('files', () => {
  test('only plain UTF-8 is text', () => {
    expect(decode(Buffer.from('\uFEFFa'))).toEqual({ text: 'a', bom: true });
    expect(decode(Buffer.from([0xff, 0xfe, 0x61, 0x00]))).toBeUndefined();
    expect(decode(Buffer.from('a\0b'))).toBeUndefined();
    expect(decode(Buffer.from([0x63, 0xe9]))).toBeUndefined();
  });

  test('brackets are counted at their deepest', () => {
    expect(bracketDepth('((a)[{')).toBe(3);
    expect(bracketDepth(')))')).toBe(0);
  });
});

describe('reasons and verdicts', () => {
  test('every reason names its obstacle and a next step, once', () => {
    expect(new Set(REASONS.map((r) => r.code)).size).toBe(REASONS.length);
    for (const { code, next } of REASONS) {
      expect(code).toMatch(/^[a-z]+(?:-[a-z]+)*$/);
      expect(next).toMatch(/^[A-Z].*[^.]$/);
      expect(explain({ code, what: '$& <what>' }).message).toContain('$& <what>');
    }
  });

  test('every reason is documented, and nothing else is', () => {
    const page = readFileSync(new URL('../../docs/lookup/codemods.md', import.meta.url), 'utf8');
    const table = page.slice(page.indexOf('## Why a publish'), page.indexOf('## Files that are not'));
    expect([...table.matchAll(/^\| `([\w-]+)` \|/gm)].map((m) => m[1])).toEqual(REASONS.map((r) => r.code));
  });

  test('every reason has its section with a before and an after, in the order of precedence', () => {
    const sections = sectionsOf('codemod-reasons.md');
    expect(sections.map((s) => s.name)).toEqual(REASONS.map((r) => r.code));
    expect(sections.filter((s) => s.blocks !== 2).map((s) => s.name)).toEqual([]);
  });

  test('every idiom has its section with a before and an after', () => {
    const sections = sectionsOf('codemod-idioms.md');
    const names = [pgClient, pgCallback, pgPool, ...IDIOMS.map((i) => i.name), transactional];
    expect(sections.map((s) => s.name).sort()).toEqual(names.sort());
    expect(sections.filter((s) => s.blocks < 2 || s.blocks % 2 !== 0).map((s) => s.name)).toEqual([]);
  });

  test('the first reason decides, the others are told', () => {
    const obstacles = [
      { code: 'loop', what: 'a' },
      { code: 'not-postgres', what: 'b' },
      { code: 'loop', what: 'a' },
    ] as const;
    expect(byPrecedence(obstacles).map((o) => o.code)).toEqual(['not-postgres', 'loop']);
    const facts = { reach: 'safe', obstacles, degraded: false, caveats: 0, noWriteSeen: false } as const;
    expect(decide(facts)).toMatchObject({
      level: 'refused',
      reason: 'not-postgres',
      also: [{ code: 'loop' }],
    });
    expect(decide({ ...facts, obstacles: [] })).toMatchObject({ level: 'safe', confidence: 'high' });
    expect(decide({ ...facts, obstacles: [], degraded: true })).toMatchObject({ confidence: 'medium' });
    expect(decide({ ...facts, obstacles: [], reach: null }).level).toBe('refused');
  });
});

test('a patch quotes odd paths as git does', () => {
  const change = {
    path: 'a "b"\n\\.ts',
    absolute: '',
    hash: '',
    bom: false,
    before: 'a\n',
    after: 'b\n',
    edits: [],
    leftovers: [],
  };
  expect(renderDiff([change])).toContain('--- "a/a \\"b\\"\\012\\\\.ts"\n');
});

/** The sections of a page whose titles are code, and how many blocks of code each has. */
function sectionsOf(page: string): { name: string; blocks: number }[] {
  const text = readFileSync(new URL(`../../docs/lookup/${page}`, import.meta.url), 'utf8');
  return text
    .split(/^## /m)
    .slice(1)
    .flatMap((section) => {
      const name = /^`([\w-]+)`/.exec(section)?.[1];
      return name === undefined ? [] : [{ name, blocks: section.split(/^```/m).length >> 1 }];
    });
}

describe('dialects', () => {
  const opened = (text: string): (string | undefined)[] => {
    const file = parse('db.ts', text);
    return file === undefined ? [] : openingsIn(file).map((o) => o.dialect);
  };

  test.each([
    ["import createKnex from 'knex'; createKnex({ client: 'pg' });", 'postgres'],
    ["import { knex } from 'knex'; knex({ client: 'mysql2' });", 'mysql2'],
    ["const config = { client: 'sqlite3' }; require('knex')(config);", 'sqlite3'],
    ["import { Sequelize } from 'sequelize'; new Sequelize('mariadb://localhost/shop');", 'mariadb'],
    ["import { Sequelize } from 'sequelize'; new Sequelize(url, { dialect: 'postgres' });", 'postgres'],
    ["import { DataSource } from 'typeorm'; new DataSource({ type: 'cockroachdb' });", 'cockroachdb'],
    [
      "import { TypeOrmModule } from '@nestjs/typeorm'; TypeOrmModule.forRootAsync({ useFactory: () => ({ type: 'mysql' }) });",
      'mysql',
    ],
    [
      "import { Kysely, MysqlDialect } from 'kysely'; new Kysely({ dialect: new MysqlDialect({}) });",
      'mysql',
    ],
    ["import { drizzle } from 'drizzle-orm/better-sqlite3'; drizzle(file);", 'sqlite'],
    ["import { drizzle } from 'drizzle-orm/postgres-js'; drizzle(sql);", 'postgres'],
    ["import { MikroORM } from '@mikro-orm/core'; MikroORM.init({ driver: MySqlDriver });", 'mysql'],
    ["import createKnex from 'knex'; createKnex({ client: process.env.CLIENT });", undefined],
  ])('%s', (text, dialect) => {
    expect(opened(text)).toEqual([dialect]);
  });

  test('a name alone opens nothing', () => {
    expect(opened("import { knex } from './knex.js'; knex({ client: 'pg' });")).toEqual([]);
    expect(dialectNamed('postgresql://localhost')).toBe('postgres');
    expect(dialectNamed('pgbouncer')).toBeUndefined();
  });
});
