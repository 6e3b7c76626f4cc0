/** What of a client's act is written down: nothing where nothing changed, however a contract answers it. */
import { expect, test } from 'vitest';
import { noteOf } from '../../src/shims/audit.js';
import type { Parsed } from '../../src/shims/operations.js';

const job = { id: '7' };
const schedule = { name: 'nightly' };
const parsed = (of: object): Parsed => of as Parsed;

test.each<[string, object, object, object | null]>([
  [
    'a change',
    { type: 'change', act: 'replay' },
    { changed: true, job },
    { act: 'retry', touched: { ids: ['7'] }, changed: 1 },
  ],
  ['a change that was none', { type: 'change', act: 'cancel' }, { changed: false, job }, null],
  ['a change of nobody', { type: 'change', act: 'cancel' }, { changed: false, job: null }, null],
  [
    'many',
    { type: 'change-many', act: 'dismiss' },
    { changed: ['1', '2'], missed: ['3'], more: false },
    { act: 'dismiss', touched: { ids: ['1', '2'] }, changed: 2 },
  ],
  [
    'many that were none',
    { type: 'change-many', act: 'dismiss' },
    { changed: [], missed: ['3'], more: false },
    null,
  ],
  ['an edit that was none', { type: 'edit-job' }, { changed: false, job }, null],
  [
    'a one-off schedule put anew',
    { type: 'replace-job' },
    { enqueued: [], jobs: [], replaced: ['7'] },
    { act: 'cancel', touched: { ids: ['7'] }, changed: 1 },
  ],
  ['a one-off schedule put first', { type: 'replace-job' }, { enqueued: [], jobs: [], replaced: [] }, null],
  ['a new schedule', { type: 'put-schedule' }, { schedule, created: true }, null],
  [
    'a schedule put again',
    { type: 'put-schedule' },
    { schedule, created: false },
    { act: 'edit', touched: { schedule: 'nightly' }, changed: 1 },
  ],
  [
    'a trigger',
    { type: 'change-schedule', act: 'trigger' },
    { schedule, job: null, changed: true, fired: '9' },
    { act: 'trigger', touched: { schedule: 'nightly', ids: ['9'] }, changed: 1 },
  ],
  [
    'a trigger that was none',
    { type: 'change-schedule', act: 'trigger' },
    { schedule, job: null, changed: false, fired: null },
    null,
  ],
  [
    'a one-off schedule deleted',
    { type: 'change-schedule', act: 'delete' },
    { schedule: null, job, changed: true, fired: null },
    { act: 'cancel', touched: { ids: ['7'] }, changed: 1 },
  ],
  [
    'an edit of a one-off schedule',
    { type: 'edit-schedule' },
    { schedule: null, job, changed: true, fired: null },
    { act: 'edit', touched: { ids: ['7'] }, changed: 1 },
  ],
  [
    'an edit of a schedule that was none',
    { type: 'edit-schedule' },
    { schedule, job: null, changed: false, fired: null },
    null,
  ],
  ['a new job', { type: 'enqueue' }, { enqueued: [{ id: '1', inserted: true }], jobs: [] }, null],
  ['a look', { type: 'find' }, job, null],
])('%s', (_name, asked, result, note) => {
  expect(noteOf(parsed(asked), result)).toEqual(note);
});
