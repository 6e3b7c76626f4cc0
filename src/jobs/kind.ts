/**
 * A kind with the schema of its payload: what types an enqueue at one end and a handler at the other, so that the two
 * cannot drift apart. It loads no validator: the caller brings one, in any Standard Schema library.
 */
import type { HandlerContext, HandlerFunction, HandlerJob, KindOptions } from './handler.js';
import type { EnqueueOptions } from './job.js';
import { type PayloadIssue, type PayloadSchema, placesOf, validatePayload } from './payload-schema.js';

/** A kind as an enqueue needs it: its name, and what its payloads must be. */
export interface CheckedKind {
  readonly name: string;
  readonly schema: PayloadSchema;
}

/** `Input` is what callers pass and the row keeps; `Output` is what the schema makes of it for the handler. */
export interface Kind<Input = unknown, Output = Input> extends CheckedKind {
  /** One of a list for enqueueMany. */
  job(payload: Input, options?: EnqueueOptions): KindJob;
  /** An entry of a worker's `handlers`: `handlers: { ...receipt.handle(async (job) => …) }`. */
  handle(
    handler: (job: HandlerJob<Output>, context: HandlerContext) => unknown,
    options?: Omit<KindOptions, 'handle' | 'schema'>,
  ): Record<string, KindOptions>;
}

/** A job whose payload is checked by its kind's schema when it is enqueued. */
export interface KindJob extends EnqueueOptions {
  readonly kind: CheckedKind;
  readonly payload: unknown;
}

type InputOf<S extends PayloadSchema> = NonNullable<S['~standard']['types']>['input'];
type OutputOf<S extends PayloadSchema> = NonNullable<S['~standard']['types']>['output'];

/** Throws TypeError for what is no Standard Schema. The name is checked when a job is enqueued, as everywhere. */
export function defineKind<S extends PayloadSchema>(
  name: string,
  schema: S,
  ...more: readonly never[]
): Kind<InputOf<S>, OutputOf<S>> {
  // From JavaScript options may come here, and would be passed over.
  if (more.length > 0)
    throw new TypeError(
      `defineKind takes a name and a schema: options of kind ${name} go to .handle(handler, options), those of a job to .job(payload, options)`,
    );
  const standard = (schema as Partial<PayloadSchema> | undefined)?.['~standard'];
  if (typeof standard?.validate !== 'function')
    throw new TypeError(`the schema of kind ${name} is not a Standard Schema: it has no ~standard.validate`);
  return {
    name,
    schema,
    job: (payload, options = {}) => ({ ...options, kind: { name, schema }, payload }),
    handle: (handler, options = {}) => ({
      // What the worker hands over is what this very schema gave.
      [name]: { ...options, schema, handle: handler as HandlerFunction },
    }),
  };
}

/** A payload that its kind's schema refuses. The message names the places; `issues` has the validator's own words. */
export class PayloadInvalid extends TypeError {
  readonly #issues: readonly PayloadIssue[];

  constructor(kind: string, issues: readonly PayloadIssue[]) {
    super(`the payload does not fit the schema of ${kind} at: ${placesOf(issues)}`);
    this.name = 'PayloadInvalid';
    this.#issues = issues;
  }

  /** A getter, so that a logger which prints an error's properties prints nothing of the payload. */
  get issues(): readonly PayloadIssue[] {
    return this.#issues;
  }
}

/** Throws PayloadInvalid. */
export async function checkPayload(kind: CheckedKind, payload: unknown): Promise<void> {
  const answer = await validatePayload(kind.schema, payload);
  if ('issues' in answer) throw new PayloadInvalid(kind.name, answer.issues);
}
