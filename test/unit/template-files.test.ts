/** Templates on disk: which names count, and that an edit is seen a second later. Time is a parameter. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { templateFiles } from '../../src/notify/template-files.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'unbroker-templates-'));
  write('hello', {
    'en.email.subject': 'Hi',
    'en.email.text': 'Hello',
    'fr-CA.sms.text': 'Allo',
    'default.webhook.body': '{}',
  });
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function write(key: string, files: Record<string, string>): void {
  mkdirSync(join(folder, key), { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, key, name), text);
}

it('reads variants by locale, channel and part; leaves other files alone', () => {
  write('hello', {
    'README.md': 'x',
    'en.email.json': 'x',
    'en.fax.text': 'x',
    'xx!.email.text': 'x',
    'en.email.text.bak': 'x',
    '.en.email.text.swp': 'x',
  });
  mkdirSync(join(folder, 'hello', 'de.email.text'));
  writeFileSync(join(folder, 'hello', 'it.email.text'), 'x'.repeat(300_000));
  expect(templateFiles(folder).variants('hello')).toEqual([
    { locale: 'default', channel: 'webhook', parts: { body: '{}' } },
    { locale: 'en', channel: 'email', parts: { subject: 'Hi', text: 'Hello' } },
    { locale: 'fr-CA', channel: 'sms', parts: { text: 'Allo' } },
  ]);
});

it.each(['Hello', '../hello', 'hello/', '.', '', 'unknown', 'hello\0'])('%j is no template', (key) => {
  expect(templateFiles(folder).variants(key)).toEqual([]);
});

it('sees edits, new and removed templates within a second, and not before', () => {
  let now = 0;
  const source = templateFiles(folder, () => now);
  const text = (): string | undefined =>
    source.variants('hello').find(({ channel }) => channel === 'email')?.parts.text;
  expect(text()).toBe('Hello');
  write('hello', { 'en.email.text': 'Hello again' });
  write('new', { 'en.sms.text': 'New' });
  now = 999;
  expect([text(), source.variants('new').length]).toEqual(['Hello', 0]);
  now = 1_000;
  expect([text(), source.variants('new').length]).toEqual(['Hello again', 1]);
  rmSync(join(folder, 'hello'), { recursive: true });
  now = 2_000;
  expect(text()).toBeUndefined();
});

it('a folder that is not there is said at once', () => {
  expect(() => templateFiles(join(folder, 'none'))).toThrow(
    expect.objectContaining({ code: 'templates-missing', exitStatus: 2 }),
  );
});
