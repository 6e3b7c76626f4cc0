/**
 * Handlebars as the old services used it, with the doors shut: strict (a missing variable is an error), data without
 * prototypes, a short list of helpers, no partials or decorators, and limits on source, nesting, loops and output.
 * Pure: where templates come from is the source's business.
 */
import Handlebars from 'handlebars';
import { PRINTED_OBJECT, plainObject, readJson } from '../json-text.js';
import {
  type Channel,
  DEFAULT_LOCALE,
  isHeaderText,
  isTemplateKey,
  MessageError,
  PARTS,
  type Part,
} from './message.js';

export interface TemplateVariant {
  readonly locale: string;
  readonly channel: Channel;
  readonly parts: Readonly<Partial<Record<Part, string>>>;
  /** The key's version in the table; absent for a file. */
  readonly version?: number;
  /** Of a file whose content the table keeps: under what. */
  readonly digest?: string;
}

/** All variants of a template, now or at a version of the table; empty when there is none of that name. */
export interface TemplateSource {
  variants(key: string, version?: number | null): readonly TemplateVariant[];
  /** All that is in a folder, by key; absent: there is none. */
  files?(): readonly KeyedTemplate[];
}

export interface KeyedTemplate {
  readonly key: string;
  readonly variants: readonly TemplateVariant[];
}

/** `version` null or absent: as it is now. */
export interface Renderer {
  variants(key: string, version?: number | null): readonly TemplateVariant[];
  /** All that is in a folder, by key. */
  files(): readonly KeyedTemplate[];
  /** The variant of the nearest locale: fr-CA, fr, the default locale, `default`. null when there is none. */
  find(key: string, channel: Channel, locale: string, version?: number | null): TemplateVariant | null;
  /** Throws MessageError: template-unknown, template-invalid, render-failed, header-injection. */
  render(
    key: string,
    channel: Channel,
    locale: string,
    data: unknown,
    version?: number | null,
  ): TemplateVariant;
  /** The same of a variant that was found already. */
  renderVariant(variant: TemplateVariant, data: unknown): TemplateVariant['parts'];
  /** Compiles and renders nothing. Throws MessageError template-invalid. */
  check(parts: TemplateVariant['parts']): void;
  /** Only the part that becomes a header, for the door; null when there is none or it cannot be rendered. */
  renderSubject(variant: TemplateVariant, data: unknown): string | null;
}

export const TEMPLATE_LIMITS = {
  sourceLength: 262_144,
  nodes: 10_000,
  depth: 32,
  /** Turns of all loops of one part. */
  loops: 100_000,
  outputLength: 1_048_576,
  compiledKept: 1_000,
} as const;

const HELPERS = ['if', 'unless', 'each', 'with', 'lookup'] as const;

export function createRenderer(
  source: TemplateSource,
  options: { readonly defaultLocale?: string } = {},
): Renderer {
  const compiler = new Compiler();
  const defaultLocale = options.defaultLocale ?? DEFAULT_LOCALE;

  const find = (
    key: string,
    channel: Channel,
    locale: string,
    version: number | null = null,
  ): TemplateVariant | null => {
    if (!isTemplateKey(key)) return null;
    const variants = source.variants(key, version).filter((variant) => variant.channel === channel);
    for (const name of localeChain(locale, defaultLocale)) {
      const variant = variants.find((candidate) => candidate.locale === name);
      if (variant !== undefined) return variant;
    }
    return null;
  };

  const renderVariant = ({ channel, parts }: TemplateVariant, data: unknown): TemplateVariant['parts'] => {
    const rendered: Partial<Record<Part, string>> = {};
    for (const part of PARTS[channel]) {
      const text = parts[part];
      if (text !== undefined) rendered[part] = checkPart(part, compiler.fill(part, text, data));
    }
    return rendered;
  };

  return {
    renderVariant,
    variants: (key, version) => (isTemplateKey(key) ? source.variants(key, version) : []),
    files: () => source.files?.() ?? [],
    find,
    render(key, channel, locale, data, version) {
      const variant = find(key, channel, locale, version);
      if (variant === null)
        throw new MessageError('template-unknown', `there is no such template for ${channel} in this locale`);
      const parts = renderVariant(variant, data);
      const { version: rendered } = variant;
      return {
        locale: variant.locale,
        channel,
        parts,
        ...(rendered === undefined ? {} : { version: rendered }),
      };
    },
    check(parts) {
      for (const [part, text] of Object.entries(parts)) compiler.check(part as Part, text);
    },
    renderSubject(variant, data) {
      const text = variant.parts.subject;
      try {
        return text === undefined ? null : compiler.fill('subject', text, data);
      } catch {
        return null;
      }
    },
  };
}

/** `fr-CA` → fr-CA, fr, the default locale, default. */
export function localeChain(locale: string, defaultLocale: string): string[] {
  const parts = locale.split('-');
  const narrowing = parts.map((_, index) => parts.slice(0, parts.length - index).join('-'));
  return [...new Set([...narrowing, defaultLocale, 'default'])];
}

function checkPart(part: Part, text: string): string {
  if (part === 'subject' && !isHeaderText(text))
    throw new MessageError('header-injection', 'the rendered subject holds a line break or is too long');
  if (part === 'body') {
    try {
      readJson(text);
    } catch {
      throw new MessageError('render-failed', 'the rendered body is not JSON');
    }
  }
  return text;
}

/** Compiles once per text; the oldest go when too many are kept. */
class Compiler {
  readonly #handlebars = Handlebars.create();
  readonly #compiled = new Map<string, HandlebarsTemplateDelegate>();
  #loopsLeft = 0;
  #outputLeft = 0;

  constructor() {
    const { each } = this.#handlebars.helpers as Record<string, Handlebars.HelperDelegate>;
    for (const name of Object.keys(this.#handlebars.helpers)) {
      const hook = name === 'helperMissing' || name === 'blockHelperMissing';
      if (!hook && !(HELPERS as readonly string[]).includes(name)) this.#handlebars.unregisterHelper(name);
    }
    const spend = (output: string): string => {
      this.#loopsLeft -= 1;
      this.#outputLeft -= output.length;
      if (this.#loopsLeft < 0 || this.#outputLeft < 0)
        throw new MessageError('render-failed', 'the template loops or writes too much');
      return output;
    };
    // Loops inside loops multiply: a megabyte of data could keep the process busy for hours.
    this.#handlebars.registerHelper(
      'each',
      function (this: unknown, context: unknown, options: Handlebars.HelperOptions) {
        if (options?.fn === undefined) return each?.call(this, context, options);
        const fn: Handlebars.TemplateDelegate = (item, runtime) => spend(options.fn(item, runtime));
        return each?.call(this, context, { ...options, fn });
      },
    );
  }

  /** Throws MessageError `template-invalid` or `render-failed`; the messages name variables, never values. */
  fill(part: Part, source: string, data: unknown): string {
    const template = this.#compile(part, source);
    this.#loopsLeft = TEMPLATE_LIMITS.loops;
    this.#outputLeft = TEMPLATE_LIMITS.outputLength;
    let text: string;
    try {
      text = template(part === 'body' ? escapeForJson(data) : data, {
        allowProtoPropertiesByDefault: false,
        allowProtoMethodsByDefault: false,
      });
    } catch (error) {
      if (error instanceof MessageError) throw error;
      throw new MessageError('render-failed', `${part}: ${explain(error)}`);
    }
    // `{{address}}` where `{{address.city}}` was meant: nobody wants such a mail.
    if (text.includes(PRINTED_OBJECT))
      throw new MessageError('render-failed', `${part}: it prints an object where a text is wanted`);
    if (text.length > TEMPLATE_LIMITS.outputLength)
      throw new MessageError('render-failed', `${part}: the output is too long`);
    return text;
  }

  /** Throws MessageError `template-invalid`. */
  check(part: Part, source: string): void {
    this.#compile(part, source);
  }

  #compile(part: Part, source: string): HandlebarsTemplateDelegate {
    const key = `${part} ${source}`;
    const kept = this.#compiled.get(key);
    if (kept !== undefined) return kept;
    // A file ends with a line break; a subject must not.
    const compiled = this.#parse(part, part === 'subject' ? source.replace(/\r?\n$/, '') : source);
    if (this.#compiled.size >= TEMPLATE_LIMITS.compiledKept) {
      const oldest = this.#compiled.keys().next().value;
      if (oldest !== undefined) this.#compiled.delete(oldest);
    }
    this.#compiled.set(key, compiled);
    return compiled;
  }

  #parse(part: Part, source: string): HandlebarsTemplateDelegate {
    if (source.length > TEMPLATE_LIMITS.sourceLength) throw templateInvalid(part, 'it is too long');
    try {
      const program = this.#handlebars.parse(source);
      checkProgram(program);
      // Handlebars compiles on first use; a template that does not compile is to be known now.
      this.#handlebars.precompile(program, compileOptions(part));
      return this.#handlebars.compile(program, compileOptions(part));
    } catch (error) {
      if (error instanceof MessageError) throw error;
      throw templateInvalid(part, explain(error));
    }
  }
}

const compileOptions = (part: Part): CompileOptions => ({
  strict: true,
  knownHelpersOnly: true,
  // `log` is known to the compiler unless it is told otherwise: it would fail at the send instead of at the door.
  knownHelpers: { ...Object.fromEntries(HELPERS.map((name) => [name, true])), log: false } as KnownHelpers,
  noEscape: part !== 'html',
});

const templateInvalid = (part: Part, why: string): MessageError =>
  new MessageError('template-invalid', `${part}: ${why}`);

/** First line, and no more than names of what is missing. */
function explain(error: unknown): string {
  const line = (error instanceof Error ? error.message : '').split('\n')[0] ?? '';
  return line.replaceAll(PRINTED_OBJECT, 'the data').slice(0, 200);
}

const REFUSED_NODES = new Set(['PartialStatement', 'PartialBlockStatement', 'Decorator', 'DecoratorBlock']);

/** Counts nodes and nesting before anything recursive runs over them. */
function checkProgram(program: unknown): void {
  let nodes = 0;
  const visit = (value: unknown, depth: number): void => {
    if (typeof value !== 'object' || value === null) return;
    if (Array.isArray(value)) {
      for (const item of value) visit(item, depth);
      return;
    }
    const { type, loc: _loc, ...children } = value as { type?: unknown; loc?: unknown };
    if (typeof type === 'string') {
      nodes += 1;
      if (REFUSED_NODES.has(type)) throw new Error('partials and decorators are not allowed');
      if (nodes > TEMPLATE_LIMITS.nodes) throw new Error('it has too many parts');
      if (depth > TEMPLATE_LIMITS.depth * 3) throw new Error('it is nested too deeply');
    }
    for (const child of Object.values(children)) visit(child, depth + 1);
  };
  visit(program, 0);
}

/** In a webhook's body a value stands between the template's own quotes: it must not end them. */
function escapeForJson(data: unknown): unknown {
  if (typeof data === 'string') return JSON.stringify(data).slice(1, -1);
  if (Array.isArray(data)) return data.map(escapeForJson);
  if (typeof data !== 'object' || data === null) return data;
  const out = plainObject<unknown>();
  for (const [key, value] of Object.entries(data)) out[key] = escapeForJson(value);
  return out;
}
