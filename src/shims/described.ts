/**
 * How a contract says what its routes take and answer, for the OpenAPI document: JSON Schemas with examples, which a test
 * sends to the real server. Pure data and the few words to write it with; what is checked at the door is `parse`.
 */

/** JSON Schema 2020-12, as OpenAPI 3.1 has it. */
export type Schema = Readonly<Record<string, unknown>>;

export interface DescribedAnswer {
  readonly description: string;
  /** Absent: the body is empty. */
  readonly schema?: Schema;
  /** The `Location` of what was made. */
  readonly location?: boolean;
}

export interface DescribedRoute {
  readonly summary: string;
  /** By name. */
  readonly query?: Readonly<Record<string, Schema>>;
  /** Of the request, beside those that every route takes. */
  readonly headers?: Readonly<Record<string, Schema>>;
  /** Of a JSON body; the first example is the simplest. */
  readonly request?: { readonly schema: Schema; readonly examples: Readonly<Record<string, unknown>> };
  /** By status; those that every route can give are added. */
  readonly answers: Readonly<Record<number, DescribedAnswer>>;
}

export interface DescribedContract {
  /** By name; `ref` points to them. */
  readonly schemas: Readonly<Record<string, Schema>>;
  /** How it says no. */
  readonly error: { readonly mediaType: string; readonly schema: Schema };
  /** By `METHOD /path` as the route has it. */
  readonly routes: Readonly<Record<string, DescribedRoute>>;
}

/** Of a schema of a contract. */
export const ref = (contract: string, name: string): Schema => ({
  $ref: `#/components/schemas/${schemaName(contract, name)}`,
});
export const schemaName = (contract: string, name: string): string => `${contract}.${name}`;

export const text = (maxLength: number, more: Schema = {}): Schema => ({
  type: 'string',
  minLength: 1,
  maxLength,
  ...more,
});
export const anyText: Schema = { type: 'string' };
export const integer = (minimum: number, maximum: number): Schema => ({ type: 'integer', minimum, maximum });
export const count: Schema = { type: 'integer', minimum: 0 };
export const truth: Schema = { type: 'boolean' };
export const anything: Schema = {};
export const words = (...values: readonly string[]): Schema => ({ type: 'string', enum: values });
/** As it is taken. */
export const timeGiven: Schema = { type: 'string', description: 'ISO 8601; without a zone it is UTC.' };
/** As it is answered. */
export const timeShown: Schema = { type: 'string', format: 'date-time' };
export const list = (items: Schema, minItems = 0, maxItems?: number): Schema => ({
  type: 'array',
  items,
  ...(minItems === 0 ? {} : { minItems }),
  ...(maxItems === undefined ? {} : { maxItems }),
});
export const orNull = (schema: Schema): Schema => ({ anyOf: [schema, { type: 'null' }] });

type Members = Readonly<Record<string, Schema>>;

/** Of a request: no other members; an optional one may be null, which counts as not given. */
export function given(required: Members, optional: Members = {}): Schema {
  const rest = Object.entries(optional).map(([name, schema]) => [name, orNull(schema)]);
  return {
    type: 'object',
    properties: { ...required, ...Object.fromEntries(rest) },
    required: Object.keys(required),
    additionalProperties: false,
  };
}

/** Of an answer: these are always there; `optional` where there is something to say. */
export function shown(required: Members, optional: Members = {}): Schema {
  return {
    type: 'object',
    properties: { ...required, ...optional },
    required: Object.keys(required),
    additionalProperties: false,
  };
}
