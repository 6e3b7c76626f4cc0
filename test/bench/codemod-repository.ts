/**
 * A repository of a large service, generated: 3,000 files of its own that use real ORMs, a package of 5,000 generated
 * declarations beside them, and a publish behind a commit in every tenth file. Packages are linked from this one.
 */
import { mkdirSync, mkdtempSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const PACKAGES = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'node_modules');
const LINKED = [
  ...['amqplib', 'pg', '@types/pg', '@types/node', 'typeorm', 'drizzle-orm', 'kysely', 'knex'],
  ...['sequelize', '@mikro-orm/core', '@mikro-orm/postgresql', 'pg-promise', 'postgres'],
];

export const OWN_FILES = 3_000;
const DECLARATIONS = 5_000;
/** One file in so many publishes. */
const PUBLISHING = 10;
/** Files in a folder. */
const FOLDER = 50;

/** The real path of its root; the caller removes it. */
export function generateRepository(): string {
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'codemod-bench-')));
  const write = (path: string, text: string): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  for (const name of LINKED) {
    mkdirSync(dirname(join(root, 'node_modules', name)), { recursive: true });
    symlinkSync(join(PACKAGES, name), join(root, 'node_modules', name));
  }
  declarations(write);
  write('package.json', '{ "name": "large", "private": true, "type": "module" }\n');
  write(
    'tsconfig.json',
    '{ "compilerOptions": { "module": "nodenext", "strict": true, "skipLibCheck": true, "noEmit": true }, "include": ["src"] }\n',
  );
  write('src/db.ts', "import { Pool } from 'pg';\n\nexport const pool = new Pool();\n");
  write('src/bus.ts', BUS);
  write('src/orms.ts', ORMS);
  for (let n = 3; n < OWN_FILES; n++) write(pathOf(n), n % PUBLISHING === 0 ? publishing(n) : service(n));
  return root;
}

const BUS = `import { type Channel, connect } from 'amqplib';

export class Bus {
  private channel: Channel | undefined;

  async open(): Promise<void> {
    this.channel = await (await connect('amqp://localhost')).createChannel();
  }

  async tell(key: string, body: object): Promise<void> {
    this.channel?.publish('shop', key, Buffer.from(JSON.stringify(body)));
  }
}

export const bus = new Bus();
`;

/** Every publishing file imports this one, so the program holds all of their declarations. */
const ORMS = `import type { MikroORM } from '@mikro-orm/postgresql';
import type { NodePgDatabase } from 'drizzle-orm/node-postgres';
import type { Knex } from 'knex';
import type { Kysely } from 'kysely';
import type { IDatabase } from 'pg-promise';
import type { Sql } from 'postgres';
import type { Sequelize } from 'sequelize';
import type { DataSource } from 'typeorm';
import type { Api } from 'api-types';

export interface Clients {
  readonly mikro: MikroORM;
  readonly drizzle: NodePgDatabase;
  readonly knex: Knex;
  readonly kysely: Kysely<Record<string, never>>;
  readonly promise: IDatabase<object>;
  readonly sql: Sql;
  readonly sequelize: Sequelize;
  readonly typeorm: DataSource;
  readonly api: Api;
}
`;

function declarations(write: (path: string, text: string) => void): void {
  const names = Array.from({ length: DECLARATIONS }, (_, n) => `Model${n}`);
  write('node_modules/api-types/package.json', '{ "name": "api-types", "types": "index.d.ts" }\n');
  for (const [n, name] of names.entries()) {
    write(
      `node_modules/api-types/model${n}.d.ts`,
      `export interface ${name} {\n${Array.from({ length: 20 }, (_, f) => `  field${f}: string | number | null;\n`).join('')}}\n`,
    );
  }
  const imports = names.map((name, n) => `import type { ${name} } from './model${n}.js';\n`).join('');
  const fields = names.map((name) => `  ${name}: ${name};\n`).join('');
  write('node_modules/api-types/index.d.ts', `${imports}export interface Api {\n${fields}}\n`);
}

function pathOf(n: number): string {
  return `src/area${Math.floor(n / FOLDER)}/service${n}.ts`;
}

function service(n: number): string {
  const before = n - 1 - ((n - 1) % PUBLISHING === 0 ? 1 : 0);
  const other =
    before >= 3
      ? `import { total${before} } from '../area${Math.floor(before / FOLDER)}/service${before}.js';\n`
      : '';
  return `import { pool } from '../db.js';
${other}
export interface Line${n} {
  readonly id: number;
  readonly price: number;
  readonly count: number;
}

export function total${n}(lines: readonly Line${n}[]): number {
  return lines.map((line) => line.price * line.count).reduce((a, b) => a + b, ${other === '' ? '0' : `total${before}([])`});
}

export class Service${n} {
  async lines(id: number): Promise<Line${n}[]> {
    const { rows } = await pool.query<Line${n}>('select * from lines where basket = $1', [id]);
    return rows;
  }

  async total(id: number): Promise<number> {
    return total${n}(await this.lines(id));
  }
}
`;
}

function publishing(n: number): string {
  return `import { bus } from '../bus.js';
import { pool } from '../db.js';
import type { Clients } from '../orms.js';

export class Orders${n} {
  constructor(private readonly clients: Clients) {}

  async place(id: number, price: number): Promise<void> {
    const client = await pool.connect();
    try {
      await client.query('BEGIN');
      await client.query('insert into orders (id, price) values ($1, $2)', [id, price]);
      await client.query('COMMIT');
      await bus.tell('order${n}.placed', { id, price });
    } finally {
      client.release();
    }
  }

  async ship(id: number): Promise<void> {
    await this.clients.typeorm.transaction(async (manager) => {
      await manager.query('update orders set shipped = true where id = $1', [id]);
    });
    await bus.tell('order${n}.shipped', { id });
  }
}
`;
}
