/** What the driver makes of a URL before and after its `sslmode` is named: the same, but for the warning. */
import pg from 'pg';
import { afterEach, expect, test, vi } from 'vitest';
import { environmentPool } from '../../adapters/amqplib/pool.js';
import { withTlsModeNamed } from '../../src/tls-mode.js';

const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
afterEach(() => vi.unstubAllEnvs());

const PARTS = ['host', 'port', 'database', 'user', 'password', 'ssl', 'options', 'application_name'] as const;
function readBy(url: string): unknown {
  const { connectionParameters } = new pg.Client(url) as unknown as {
    connectionParameters: Record<string, unknown>;
  };
  return PARTS.map((part) => connectionParameters[part]);
}

const CHANGED = [
  'postgres://u:p%26sslmode=require@db.example.org:6432/d?sslmode=require',
  'postgresql://u@h/d?sslmode=prefer&options=-c%20search_path%3Da%2Bb&application_name=a+b',
  'postgres://u@%2Ftmp/d?application_name=x&sslmode=verify-ca',
  'postgres://h/d?sslmode=verify-ca&sslmode=require&uselibpqcompat=false',
];
const KEPT = [
  'postgres://h/d',
  'postgres://u:&sslmode=require&@h/d',
  ...['disable', 'no-verify', 'verify-full', 'requires', 'Require', ''].map(
    (mode) => `postgres://h/d?sslmode=${mode}`,
  ),
  // Weaker, but asked for by name; and it warns of nothing.
  ...['prefer', 'require'].map((mode) => `postgres://h/d?uselibpqcompat=true&sslmode=${mode}`),
  'postgres://h/d?xsslmode=require',
];

test('the driver reads the same and says nothing', () => {
  const named = CHANGED.map(withTlsModeNamed);
  expect(named.filter((url) => CHANGED.includes(url))).toEqual([]);
  const read = named.map(readBy);
  expect(warned).not.toHaveBeenCalled();
  expect(read).toEqual(CHANGED.map(readBy));
  // It warns once a process: had it done so before, nobody would have heard.
  expect(warned).toHaveBeenCalledOnce();
});

test.each(KEPT)('%s stays as it is', (url) => {
  expect(withTlsModeNamed(url)).toBe(url);
});

test('the pool of the amqplib interface says nothing, either', async () => {
  vi.stubEnv('DATABASE_URL', 'postgres://h/d?sslmode=require');
  const { connectionString } = (await environmentPool()).options;
  expect(connectionString).toBe('postgres://h/d?sslmode=verify-full');
});
