/**
 * How a wrapper's arguments become kind, payload and options, as a person confirms or corrects it in
 * unbroker.codemod.json. It shows what the scan reads and decides nothing.
 */

import { ts } from 'ts-morph';
import type { SiteReader } from './site.js';
import type { Wrapper } from './wrappers.js';

/** An argument by its number from 0, a text that is always the same, or what else the wrapper makes. */
export type Mapped = { readonly argument: number } | { readonly text: string } | { readonly source: string };

export interface Mapping {
  readonly kind: Mapped | null;
  readonly payload: Mapped | null;
  readonly options: Mapped | null;
}

export function mappingOf(wrapper: Wrapper, reader: SiteReader): Mapping {
  const given = wrapper.override;
  if (given !== undefined) {
    return {
      kind: typeof given.kind === 'string' ? { text: given.kind } : { argument: given.kind },
      payload: { argument: given.payload },
      options: given.options === undefined ? null : { argument: given.options },
    };
  }
  if (wrapper.inner === undefined) return { kind: null, payload: null, options: null };
  const facts = reader.factsOf(wrapper.inner);
  const mapped = (source: string): Mapped => argumentOf(wrapper, source) ?? { source: flat(source) };
  const constant = facts.kind === null ? undefined : { text: facts.kind };
  return {
    kind: constant ?? (facts.key === null ? null : mapped(reader.textOf(facts.key))),
    payload: facts.payload === null ? null : mapped(facts.payload),
    options: facts.settings === null ? null : mapped(reader.textOf(facts.settings)),
  };
}

function argumentOf(wrapper: Wrapper, source: string): Mapped | undefined {
  const index = wrapper.fn.parameters.findIndex((p) => ts.isIdentifier(p.name) && p.name.text === source);
  return index < 0 ? undefined : { argument: index };
}

function flat(source: string): string {
  return source.replace(/\s+/g, ' ');
}
