/**
 * The part of Standard Schema (standardschema.dev, version 1) that is used here, and what a validator's answer means.
 * Pure; it refuses to know which library made the schema, and never repeats a value: a payload has no business in an error.
 */

/** Any Standard Schema validator: zod, valibot and arktype make them. */
export interface PayloadSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1;
    validate(value: unknown): Answer<Output> | Promise<Answer<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

type Answer<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly PayloadIssue[] };

export interface PayloadIssue {
  /** The validator's words; they may repeat what the payload holds. */
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** The payload as the schema gives it, or where it does not fit. Throws what the validator throws. */
export async function validatePayload(
  schema: PayloadSchema,
  payload: unknown,
): Promise<{ readonly value: unknown } | { readonly issues: readonly PayloadIssue[] }> {
  const answer = await schema['~standard'].validate(payload);
  if (answer.issues === undefined) return { value: answer.value };
  return { issues: answer.issues };
}

const MAX_PLACES = 10;
const MAX_PLACE_LENGTH = 100;

/** `items.0.price, to`: the places of at most ten issues. */
export function placesOf(issues: readonly PayloadIssue[]): string {
  return issues
    .slice(0, MAX_PLACES)
    .map(({ path = [] }) => {
      const parts = path.map((part) => String(typeof part === 'object' ? part.key : part));
      return parts.join('.').slice(0, MAX_PLACE_LENGTH) || '(root)';
    })
    .join(', ');
}
