/** What drivers' errors become: a code, a status, a line without secrets. */
import { afterEach, describe, expect, test, vi } from 'vitest';
import { databasePlace } from '../../src/cli/database-place.js';
import { asksForJson, report, translate } from '../../src/cli/failure.js';
import { UnbrokerError } from '../../src/errors.js';

const withCode = (code: string, message = 'm'): Error => Object.assign(new Error(message), { code });

test('a server that does not answer is named by its address, without a URL', () => {
  const at = (fields: object): string =>
    translate(Object.assign(withCode('ECONNREFUSED', 'connect ECONNREFUSED'), fields)).message;
  expect(at({ address: '10.0.0.7', port: 5432 })).toBe(
    'The server 10.0.0.7:5432 does not answer (ECONNREFUSED)',
  );
  expect(at({ address: '::1', port: 5432 })).toBe('The server [::1]:5432 does not answer (ECONNREFUSED)');
  expect(at({ hostname: 'db.internal' })).toBe('The server db.internal does not answer (ECONNREFUSED)');
  expect(at({})).toBe('The server does not answer (ECONNREFUSED)');
  const both = ['::1', '127.0.0.1'].map((address) =>
    Object.assign(withCode('ECONNREFUSED'), { address, port: 1 }),
  );
  expect(translate(new AggregateError(both)).message).toBe(
    'The server [::1]:1 or 127.0.0.1:1 does not answer (ECONNREFUSED)',
  );
});

test.each([
  ['postgres://u:secret@db.internal:6432/app?sslmode=disable', 'db.internal:6432/app'],
  ['postgres://localhost', 'localhost:5432'],
  ['postgres:///app', 'localhost:5432/app'],
  ['postgres://u:secret@[::1]/my%20app', '[::1]:5432/my app'],
  ['postgres://%2Fvar%2Frun/app', '/var/run:5432/app'],
  ['postgres:///app?host=/var/run', '/var/run:5432/app'],
])('%s leads to %s, without user and password', (url, place) => {
  expect(databasePlace(url)).toBe(place);
});

test.each<[string, Error, string]>([
  ['a login', withCode('28P01'), 'The database h:5432/d refused the login'],
  ['a name', withCode('3D000'), 'The database h:5432/d does not exist'],
  ['too many', withCode('53300'), 'The database h:5432/d has no connection left'],
  [
    'silence',
    new Error('timeout exceeded when trying to connect'),
    'The server of the database h:5432/d does not answer (timeout)',
  ],
  ['a start', withCode('57P03'), 'The server of the database h:5432/d does not answer (57P03)'],
])('which database it was: %s', (_what, error, message) => {
  expect(translate(error, 'h:5432/d').message).toBe(message);
});

describe('foreign errors', () => {
  test.each<[Error, string, number]>([
    [withCode('ECONNREFUSED'), 'server-unreachable', 1],
    [new AggregateError([withCode('ECONNREFUSED'), withCode('EHOSTUNREACH')]), 'server-unreachable', 1],
    [new Error('timeout exceeded when trying to connect'), 'server-unreachable', 1],
    [new Error('Connection terminated unexpectedly'), 'server-unreachable', 1],
    [withCode('57P01'), 'server-unreachable', 1],
    [withCode('57P03'), 'server-unreachable', 1],
    [withCode('28P01'), 'database-login-refused', 2],
    [
      new Error('SASL: SCRAM-SERVER-FIRST-MESSAGE: client password must be a string'),
      'database-login-refused',
      2,
    ],
    [withCode('ENOENT', 'ENOENT: no such file or directory, uv_cwd'), 'directory-missing', 2],
    [Object.assign(withCode('ENOENT'), { syscall: 'connect' }), 'server-unreachable', 1],
    [Object.assign(withCode('ENOENT'), { syscall: 'open' }), 'unexpected', 1],
    [withCode('3D000'), 'database-missing', 2],
    [withCode('42501'), 'permission-denied', 1],
    [withCode('25006'), 'database-read-only', 1],
    [withCode('53300'), 'database-full', 1],
    [withCode('53100'), 'database-exhausted', 1],
    [withCode('57014'), 'statement-cut-short', 1],
    [withCode('DEPTH_ZERO_SELF_SIGNED_CERT'), 'tls-refused', 2],
    [new Error('The server does not support SSL connections'), 'tls-refused', 2],
    [new Error('SECURITY WARNING: Using sslmode=verify-ca requires specifying a CA'), 'tls-refused', 2],
    [withCode('23505', 'Key (email)=(ann@example.org) already exists'), 'unexpected', 1],
    [new TypeError('x of undefined'), 'unexpected', 1],
  ])('%s', (error, code, exitStatus) => {
    const known = translate(error);
    expect(known).toMatchObject({ code, exitStatus, cause: error });
    expect(known.line).not.toContain('ann@example.org');
  });

  test.each([
    ['no pg_hba.conf entry for host "::1", user "u", database "d", no encryption', 'sslmode=verify-full'],
    ['no pg_hba.conf entry for host "::1", user "u", database "d", SSL off', 'sslmode=verify-full'],
    ['no pg_hba.conf entry for host "::1", user "u", database "d", SSL encryption', 'pg_hba.conf'],
    ['role "u" is not permitted to log in', 'Check user and password'],
  ])('%s', (message, hint) => {
    const known = translate(withCode('28000', message));
    expect(known).toMatchObject({ code: 'database-login-refused', exitStatus: 2 });
    expect(known.hint).toContain(hint);
    expect(known.hint.includes('sslmode')).toBe(hint.includes('sslmode'));
  });

  test.each([undefined, null, 'text', 7, {}, { code: 7 }])('%j, which is no error', (thrown) => {
    expect(translate(thrown)).toMatchObject({ code: 'unexpected', exitStatus: 1 });
  });

  test('one of ours stays as it is', () => {
    const own = new UnbrokerError('x-y', 'm', { hint: 'h' });
    expect(translate(own)).toBe(own);
  });
});

describe('the line', () => {
  const written: string[] = [];
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    written.push(String(text));
    return true;
  });
  afterEach(() => {
    written.length = 0;
    vi.unstubAllEnvs();
  });

  test('names what, the next step and the code; hides credentials and control characters', () => {
    const error = new UnbrokerError('x-y', 'postgres://u:secret@h said\n\u001b[31mno', {
      hint: 'Try again.',
      exitStatus: 2,
    });
    vi.stubEnv('UNBROKER_LOG_LEVEL', 'info');
    expect(report(error)).toBe(2);
    expect(written).toEqual(['unbroker: postgres://…@h said\\u000a\\u001b[31mno. Try again. [x-y]\n']);
  });

  test('debug adds the stack, without credentials', () => {
    vi.stubEnv('UNBROKER_LOG_LEVEL', 'debug');
    expect(report(new Error('connect to postgres://u:secret@h failed'))).toBe(1);
    expect(written.join('')).toMatch(/at .*failure\.test\.ts/);
    expect(written.join('')).not.toContain('secret');
  });
});

test.each([
  [['node', 'unbroker', 'jobs', 'list', '--json'], true],
  [['node', 'unbroker', '--json', 'nosuch'], true],
  [['node', 'unbroker', 'jobs', 'list'], false],
  [['node', 'unbroker', 'jobs', 'show', '--', '--json'], false],
])('%j asks for JSON: %s', (argv, asked) => expect(asksForJson(argv)).toBe(asked));
