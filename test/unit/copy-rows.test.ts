/** Rows for COPY: whatever goes in comes out of the bytes again, also where a row does not fit what is left of a buffer. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  COPY_HEADER,
  COPY_TRAILER,
  CopyRows,
  copyData,
  fieldsOf,
  putEight,
  type WrittenRow,
} from '../../src/jobs/copy-rows.js';
import type { Json } from '../../src/jobs/job.js';

const row = fc.record({
  text: fc.option(fc.string({ unit: 'binary', maxLength: 200 })),
  json: fc.option(fc.json()),
  bytes: fc.option(fc.uint8Array({ maxLength: 300 })),
  int: fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
  small: fc.integer({ min: -(2 ** 15), max: 2 ** 15 - 1 }),
  flag: fc.boolean(),
});

test('every value of every row is read back, in buffers of any size', () => {
  fc.assert(
    fc.property(fc.array(row, { maxLength: 20 }), fc.integer({ min: 1, max: 500 }), (wanted, size) => {
      const writer = new CopyRows(size);
      const rows = wanted.map(({ text, json, bytes, int, small, flag }) => {
        writer.begin(7);
        writer.later();
        writer.text(text);
        writer.json(json);
        writer.bytes(bytes === null ? null : Buffer.from(bytes));
        writer.int4(int);
        writer.int2(small);
        writer.boolean(flag);
        return writer.end();
      });
      const id = Buffer.from('0102030405060708', 'hex');
      for (const { bytes, start } of rows) putEight(bytes, start + 6, id, 0);
      rows.forEach((written, index) => {
        const { text, json, bytes, int, small, flag } = wanted[index] as (typeof wanted)[number];
        const [later, first, second, third, fourth, fifth, sixth] = fieldsOf(written);
        expect(later).toEqual(id);
        expect(first?.toString() ?? null).toBe(text === null ? null : Buffer.from(text).toString());
        expect(second?.toString() ?? null).toBe(json === null ? null : `\u0001${json}`);
        expect(third).toEqual(bytes === null ? null : Buffer.from(bytes));
        expect(fourth?.readInt32BE()).toBe(int);
        expect(fifth?.readInt16BE()).toBe(small);
        expect(sixth?.[0]).toBe(flag ? 1 : 0);
      });
      const lengths = rows.reduce((sum, { start, end }) => sum + end - start, 0);
      const sent = copyData(rows);
      expect(Buffer.concat(sent).length).toBe(COPY_HEADER.length + lengths + COPY_TRAILER.length);
      // Any of the rows, in the order given: a batch is some of those that wait.
      const some = rows.filter((_, index) => index % 3 !== 1);
      expect(Buffer.concat(copyData(some))).toEqual(
        Buffer.concat([
          COPY_HEADER,
          ...some.map(({ bytes, start, end }) => bytes.subarray(start, end)),
          COPY_TRAILER,
        ]),
      );
    }),
  );
});

test('a buffer is written again when all its rows were handed back, and no row before', () => {
  const steps = fc.array(fc.record({ length: fc.nat(2_000), back: fc.nat(3) }), { maxLength: 60 });
  fc.assert(
    fc.property(steps, fc.integer({ min: 1, max: 10_000 }), (wanted, size) => {
      const writer = new CopyRows(size);
      const waiting: { readonly value: Buffer; readonly row: WrittenRow }[] = [];
      for (const [index, { length, back }] of wanted.entries()) {
        const value = Buffer.alloc(length, index + 1);
        writer.begin(1);
        writer.bytes(value);
        waiting.push({ value, row: writer.end() });
        writer.reuse(waiting.splice(0, back).map(({ row }) => row));
        for (const one of waiting) expect(fieldsOf(one.row)[0]?.equals(one.value)).toBe(true);
      }
    }),
  );
  const writer = new CopyRows(10_000);
  const buffers = new Set<Buffer>();
  for (let batch = 0; batch < 100; batch += 1) {
    const rows = Array.from({ length: 10 }, () => {
      writer.begin(1);
      writer.bytes(Buffer.alloc(2_000));
      return writer.end();
    });
    for (const { bytes } of rows) buffers.add(bytes);
    writer.reuse(rows);
  }
  expect(buffers.size).toBeLessThan(6);
});

test('a time is microseconds since 2000', () => {
  const writer = new CopyRows();
  for (const ms of [946_684_800_000, 0, 253_402_300_799_000]) {
    writer.begin(1);
    writer.time(ms);
    expect(fieldsOf(writer.end())[0]?.readBigInt64BE()).toBe(BigInt(ms - 946_684_800_000) * 1_000n);
  }
});

/** Text with everything that JSON escapes, half of it plain. */
const anyText = fc.oneof(
  fc.string(),
  fc.string({ unit: 'binary' }),
  fc.constantFrom('"', '\\', '\u007f', '\u0000', '\ud800', 'é'),
);
const anyJson = fc.letrec<{ value: Json }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    anyText,
    fc.oneof(
      fc.constant(null),
      fc.boolean(),
      fc.integer(),
      fc.double({ noNaN: true, noDefaultInfinity: true }),
    ),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(anyText, tie('value'), { maxKeys: 4 }),
  ),
})).value;

test('a JSON value is written as JSON.stringify writes it, in buffers of any size', () => {
  fc.assert(
    fc.property(fc.array(anyJson, { maxLength: 5 }), fc.integer({ min: 1, max: 200 }), (values, size) => {
      const writer = new CopyRows(size);
      const rows = values.map((value) => {
        writer.begin(2);
        writer.text('before');
        writer.jsonValue(value);
        return writer.end();
      });
      rows.forEach((written, index) => {
        expect(fieldsOf(written).map(String)).toEqual(['before', `\u0001${JSON.stringify(values[index])}`]);
      });
    }),
  );
});
