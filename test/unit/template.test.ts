/** Templates: data stays data, what is missing is an error, and no template can run away. */
import { describe, expect, it } from 'vitest';
import { plainObject, readJson, toPlain } from '../../src/json-text.js';
import { MessageError, type Part } from '../../src/notify/message.js';
import {
  createRenderer,
  localeChain,
  TEMPLATE_LIMITS,
  type TemplateVariant,
} from '../../src/notify/templates.js';

const rendererOf = (parts: Partial<Record<Part, string>>, channel: TemplateVariant['channel'] = 'email') =>
  createRenderer({ variants: (key) => (key === 'known' ? [{ locale: 'en', channel, parts }] : []) });

const data = (json: string): unknown => toPlain(readJson(json));

function render(part: Part, source: string, json = '{}'): string | undefined {
  const channel = part === 'body' ? 'webhook' : 'email';
  return rendererOf({ [part]: source }, channel).render('known', channel, 'en', data(json)).parts[part];
}

function failure(part: Part, source: string, json = '{}'): { code: string; message: string } {
  try {
    render(part, source, json);
  } catch (error) {
    if (error instanceof MessageError) return { code: error.code, message: error.message };
    throw error;
  }
  return { code: 'none', message: '' };
}

describe('data is data', () => {
  it.each([
    '{{7*7}}',
    '{{constructor.constructor "return process"}}',
    '{{{{raw}}}}',
    '{{#with this}}x{{/with}}',
    '<script>alert(1)</script>',
    '#{7*7}',
    '{{> partial}}',
  ])('%s comes out as it went in', (text) => {
    expect(render('text', 'Hi {{x}}', JSON.stringify({ x: text }))).toBe(`Hi ${text}`);
  });

  it('html is escaped, text is not', () => {
    const json = '{"x":"<b>&\\"\'`="}';
    expect(render('html', '{{x}}', json)).toBe('&lt;b&gt;&amp;&quot;&#x27;&#x60;&#x3D;');
    expect(render('text', '{{x}}', json)).toBe('<b>&"\'`=');
  });

  it('a webhook body stays JSON, whatever a value holds', () => {
    const text = render(
      'body',
      '{"a":"{{x}}","n":{{n}} }',
      '{"x":"\\",\\"admin\\":true,\\"y\\":\\"\\\\\\n","n":9007199254740993}',
    );
    expect(readJson(text ?? '').type).toBe('object');
    expect(JSON.parse(text ?? '')).toMatchObject({ a: '","admin":true,"y":"\\\n' });
    expect(text).toContain('"n":9007199254740993');
    expect(failure('body', '{"n":{{n}} }', '{"n":"1,\\"x\\":2"}').code).toBe('render-failed');
  });

  it('a long number is printed as it came', () => {
    expect(render('text', 'No. {{n}}', '{"n":9007199254740993}')).toBe('No. 9007199254740993');
  });

  it('a line break cannot get into a subject', () => {
    expect(failure('subject', 'Hi {{x}}', '{"x":"a\\r\\nBcc: eve@example.org"}')).toMatchObject({
      code: 'header-injection',
    });
    expect(failure('subject', 'Hi {{x}}', '{"x":"a\\u2028b"}')).toMatchObject({ code: 'header-injection' });
    expect(render('subject', 'Hi {{x}}\n', '{"x":"a"}')).toBe('Hi a');
  });
});

describe('prototypes', () => {
  it.each(['constructor', '__proto__', 'toString', 'hasOwnProperty', 'valueOf', '__defineGetter__'])(
    '{{%s}} is a missing variable',
    (name) => {
      for (const source of [
        `{{${name}}}`,
        `{{this.${name}}}`,
        `{{o.${name}}}`,
        `{{#with o}}{{${name}}}{{/with}}`,
      ])
        expect(failure('text', source, '{"o":{"a":1}}').code).toMatch(/render-failed|template-invalid/);
    },
  );

  it.each([
    '{{lookup this "constructor"}}',
    '{{lookup o "__proto__"}}',
    '{{lookup s "constructor"}}',
    '{{lookup (lookup this "constructor") "constructor"}}',
  ])('%s finds nothing', (source) => {
    expect(render('text', source, '{"o":{},"s":"x"}')).toBe('');
  });

  it.each(['{{s.constructor}}', '{{n.constructor}}', '{{l.constructor}}', '{{s.constructor.constructor}}'])(
    '%s of a plain value shows nothing of it',
    (source) => {
      const result = failure('text', source, '{"s":"x","n":1,"l":[]}');
      if (result.code === 'none') expect(render('text', source, '{"s":"x","n":1,"l":[]}')).toBe('');
    },
  );

  it('data named like them is shown', () => {
    expect(render('text', '{{toString}} {{constructor}}', '{"toString":"a","constructor":"b"}')).toBe('a b');
  });
});

describe('what is missing', () => {
  it.each([
    ['{{gone}}', 'gone'],
    ['{{a.gone}}', 'gone'],
    ['{{#each list}}{{gone}}{{/each}}', 'gone'],
    ['{{{gone}}}', 'gone'],
  ])('%s fails and is named', (source, name) => {
    const { code, message } = failure('text', source, '{"a":{},"list":[{"secret":1}]}');
    expect(code).toBe('render-failed');
    expect(message).toContain(name);
    expect(message).not.toContain('secret');
  });

  it('may be asked for', () => {
    expect(render('text', '{{#if gone}}x{{else}}y{{/if}}{{#unless gone}}z{{/unless}}')).toBe('yz');
  });
});

describe('templates that are refused', () => {
  it.each([
    '{{> other}}',
    '{{#> other}}x{{/other}}',
    '{{* decorator}}',
    '{{#* inline "x"}}y{{/inline}}',
    '{{log "x"}}',
    '{{helper 1}}',
    '{{#helper 1}}x{{/helper}}',
    '{{#if}}',
    '{{unclosed',
    '{{#each list}}',
  ])('%s', (source) => {
    expect(failure('text', source, '{"list":[1]}').code).toMatch(/template-invalid|render-failed/);
  });

  it('too long, too deep, too many parts', () => {
    expect(failure('text', 'x'.repeat(TEMPLATE_LIMITS.sourceLength + 1)).code).toBe('template-invalid');
    expect(failure('text', `${'{{#if a}}'.repeat(2_000)}${'{{/if}}'.repeat(2_000)}`, '{"a":1}').code).toBe(
      'template-invalid',
    );
    expect(failure('text', '{{a}}'.repeat(TEMPLATE_LIMITS.nodes), '{"a":1}').code).toBe('template-invalid');
  });

  it('loops in loops end', () => {
    const list = JSON.stringify({ l: Array.from({ length: 1_000 }, () => 1) });
    expect(
      failure('text', '{{#each l}}{{#each ../l}}{{#each ../../l}}x{{/each}}{{/each}}{{/each}}', list).code,
    ).toBe('render-failed');
    expect(failure('text', '{{#l}}{{#../l}}{{#../../l}}x{{/../../l}}{{/../l}}{{/l}}', list).code).toBe(
      'render-failed',
    );
    const long = JSON.stringify({ l: Array.from({ length: 5_000 }, () => 1), s: 'x'.repeat(10_000) });
    expect(failure('text', '{{#each l}}{{@root.s}}{{/each}}', long).code).toBe('render-failed');
    expect(render('text', '{{#each l}}{{@index}},{{/each}}', '{"l":[1,2]}')).toBe('0,1,');
  });
});

describe('which template', () => {
  const variant = (locale: string): TemplateVariant => ({
    locale,
    channel: 'email',
    parts: { text: locale },
  });
  const renderer = createRenderer({
    variants: (key) => (key === 'known' ? ['fr', 'en', 'fr-CA', 'de-CH-1996', 'default'].map(variant) : []),
  });
  it.each([
    ['fr-CA', 'fr-CA'],
    ['fr-FR', 'fr'],
    ['fr', 'fr'],
    ['de-CH-1996', 'de-CH-1996'],
    ['de-CH', 'en'],
    ['pt', 'en'],
  ])('%s takes %s', (asked, found) => {
    expect(renderer.find('known', 'email', asked)?.locale).toBe(found);
  });

  it('narrows, then falls back', () => {
    expect(localeChain('fr-CA', 'en')).toEqual(['fr-CA', 'fr', 'en', 'default']);
    expect(localeChain('en', 'en')).toEqual(['en', 'default']);
  });

  it.each(['unknown', '../known', 'known/', 'KNOWN', '', '__proto__'])('%s is none', (key) => {
    expect(renderer.find(key, 'email', 'en')).toBeNull();
    expect(() => renderer.render(key, 'email', 'en', plainObject())).toThrow(MessageError);
  });
});
