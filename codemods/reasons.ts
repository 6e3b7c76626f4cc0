/**
 * Why a publish is left alone: every reason code, what it means, and what a person can do. This file is data. It
 * refuses to know how a reason is found (that is the work of facts and idioms) or how it is shown (render/).
 *
 * The order is the order of precedence: when several reasons hold, the first one listed here is the verdict's
 * reason and the rest are `also`. Reasons that make the place no seam at all come before reasons that only make it
 * hard to rewrite, so a Mongo service with computed routing keys is told about Mongo.
 */

export interface Reason {
  readonly code: string;
  /** One sentence. `{what}` is the obstacle as it stands in the source. */
  readonly message: string;
  /** The next step, in the imperative. */
  readonly next: string;
}

export const REASONS = [
  {
    code: 'generated-file',
    message: 'This file says that it is generated ({what})',
    next: 'Change the generator, or remove the header and scan again',
  },
  {
    code: 'publisher-unresolved',
    message: 'What {what} calls could not be traced to a broker library',
    next: 'Install the dependencies, add a type, or name the function under "wrappers" in unbroker.codemod.json',
  },
  {
    code: 'handle-unresolved',
    message: 'The write runs on {what}, which could not be traced to a database library',
    next: 'Install the dependencies or add a type, then scan again',
  },
  {
    code: 'not-postgres',
    message: 'The write goes to {what}, and the jobs table is in Postgres: no transaction covers both',
    next: 'Leave it; enqueue over HTTP with a dedupe key if the publish has to leave the broker',
  },
  {
    code: 'outbox-relay',
    message: 'This publish already relays an outbox ({what})',
    next: 'Point the producers at the jobs table and retire the relay last',
  },
  {
    code: 'rpc',
    message: 'Somebody waits for an answer ({what}), and a job cannot answer',
    next: 'Leave it on the broker, or make it an HTTP call',
  },
  {
    code: 'indirect-dispatch',
    message:
      'The message goes out when an in-process event does ({what}), and the write is where that event is emitted',
    next: 'Enqueue where the row is written, on that transaction, and remove the listener',
  },
  {
    code: 'after-commit-hook',
    message: 'The publish runs in a hook of commits ({what}), for whatever was put off until then',
    next: 'Enqueue where the row is written, on that transaction, and remove the hook last',
  },
  {
    code: 'no-write',
    message: 'No database write was seen in {what}: there is no row to keep in step with',
    next: 'Nothing is lost here by a failed commit; enqueue by hand when the consumer has moved',
  },
  {
    code: 'multi-transport',
    message: 'The publisher also sends elsewhere ({what})',
    next: 'Move the broker part inside that function first, then scan again',
  },
  {
    code: 'several-implementations',
    message: 'The method has several implementations ({what})',
    next: 'Name the one that runs under "wrappers" in unbroker.codemod.json',
  },
  {
    code: 'wrapper-unclear',
    message: 'The wrapper cannot be read as one message per call: {what}',
    next: 'Describe it under "wrappers" in unbroker.codemod.json (kind, payload and options by argument number)',
  },
  {
    code: 'wrapper-does-more',
    message: 'The wrapper does more than publish: {what}',
    next: 'Split it, or confirm it under "wrappers" in unbroker.codemod.json',
  },
  {
    code: 'unsupported-broker-library',
    message: 'The message goes out through {what}, which is not rewritten yet',
    next: 'Describe the function that publishes under "wrappers" in unbroker.codemod.json',
  },
  {
    code: 'transport-unproven',
    message: 'The transport of {what} could not be shown to be RabbitMQ',
    next: 'Write "transport: Transport.RMQ" where the client is registered, then scan again',
  },
  {
    code: 'address-unknown',
    message: 'Exchange and routing key of {what} are not in the call, so a relay could not repeat it',
    next: 'Leave it on the broker until its consumers have moved, then rewrite it to its kind',
  },
  {
    code: 'publication-events',
    message: 'The outcome of the publish is handled by events ({what})',
    next: 'Remove the handlers first: the enqueue is confirmed by the commit',
  },
  {
    code: 'result-used',
    message: 'The result of the publish decides what follows ({what})',
    next: 'Remove that branch first: with a job the row and the message are one commit',
  },
  {
    code: 'then-chain',
    message: 'The publish continues in a {what} chain',
    next: 'Write it with await, then scan again',
  },
  {
    code: 'callback-used',
    message: 'The publish takes a callback ({what})',
    next: 'Remove the callback: the enqueue is confirmed by the commit',
  },
  {
    code: 'dynamic-kind',
    message: 'The routing key is computed ({what}), so the kind is not known',
    next: 'Write one call per kind with a literal key, then scan again',
  },
  {
    code: 'empty-kind',
    message: 'The routing key is empty (exchange {what}), so there is no kind',
    next: 'Map "exchange/" to a kind under "kinds" in unbroker.codemod.json',
  },
  {
    code: 'payload-not-json',
    message: 'The content is not Buffer.from(JSON.stringify(value)): {what}',
    next: 'Publish JSON first, or enqueue by hand',
  },
  {
    code: 'wrapper-builds-payload',
    message: 'The wrapper builds the message out of more than its arguments: {what}',
    next: 'Build the message at the call, or describe the wrapper in unbroker.codemod.json',
  },
  {
    code: 'unmappable-option',
    message: 'The publish option {what} has no counterpart on a job',
    next: 'Remove the option, or enqueue by hand',
  },
  {
    code: 'arguments-not-plain',
    message: 'The arguments cannot be matched to the wrapper: {what}',
    next: 'Write the arguments out, then scan again',
  },
  {
    code: 'unsupported-library',
    message: 'The write goes through {what}, whose transactions are not rewritten yet',
    next: "Enqueue by hand on that library's transaction",
  },
  {
    code: 'already-transactional',
    message: 'The same transaction already stores the message ({what})',
    next: 'Replace that store by the enqueue by hand and delete the publish',
  },
  {
    code: 'two-databases',
    message: 'Two databases are written here: {what}',
    next: 'Decide which one owns the job, and enqueue there by hand',
  },
  {
    code: 'dialect-unknown',
    message: 'Nothing says that {what} speaks to Postgres',
    next: 'Write the dialect as a literal where the connection is opened, or depend on one driver only, then scan again',
  },
  {
    code: 'which-database',
    message:
      'This package opens more than one pool ({what}), and nothing says which one holds the jobs table',
    next: 'Name it as "pool" in unbroker.codemod.json, as in "src/db.ts#pool"',
  },
  {
    code: 'two-commits',
    message: 'More than one commit precedes the publish ({what})',
    next: 'Decide which commit owns the job, and enqueue there by hand',
  },
  {
    code: 'write-outside-transaction',
    message: 'A transaction is open, and the write does not run in it ({what})',
    next: "Write through the transaction's handle, then scan again",
  },
  {
    code: 'transaction-unclear',
    message: 'The transaction cannot be followed: {what}',
    next: "Write BEGIN and COMMIT as awaited statements on one client, or use the library's callback, then scan again",
  },
  {
    code: 'shared-client',
    message: 'The write runs on one shared connection ({what}): a BEGIN there would swallow other requests',
    next: 'Use a pool, then scan again',
  },
  {
    code: 'promise-all-on-one-client',
    message: 'The publish runs beside others in {what}, and one client runs one statement at a time',
    next: 'Await them one after the other, then scan again',
  },
  {
    code: 'in-callback',
    message: 'The publish runs later, in {what}',
    next: 'Publish in the function that commits, then scan again',
  },
  {
    code: 'publishes-on-failure',
    message: 'The publish reports a failure, in {what}',
    next: 'Keep it outside the transaction that rolls back: enqueue it by hand on the pool',
  },
  {
    code: 'finally-block',
    message: 'The publish sits in a finally block ({what}): it runs after a rollback too',
    next: 'Move it into the try, then scan again',
  },
  {
    code: 'publish-before-write',
    message: 'The message goes out before the write ({what})',
    next: 'Check whether that is a bug; move the publish behind the write, then scan again',
  },
  {
    code: 'path-without-write',
    message: 'The publish is also reached on a path that committed nothing: {what}',
    next: 'Publish only where the row was written, then scan again',
  },
  {
    code: 'loop',
    message: 'The publish runs in a loop behind the commit ({what})',
    next: 'Enqueue the whole list inside the transaction by hand (enqueueMany)',
  },
  {
    code: 'conditional-path',
    message: 'Some committed paths do not reach the publish: {what}',
    next: 'Move the branch into the transaction by hand',
  },
  {
    code: 'catch-swallows',
    message:
      'The error of the publish is handled apart ({what}); inside a transaction that would hide an abort',
    next: 'Remove that handler, then scan again',
  },
  {
    code: 'catch-covers-both',
    message: 'One catch makes up for a failed write and for a failed publish alike ({what})',
    next: 'Decide what it should do when neither happened, then introduce the transaction by hand',
  },
  {
    code: 'write-after-commit',
    message: 'Another write stands between the commit and the publish ({what})',
    next: 'Move that write into the transaction first',
  },
  {
    code: 'payload-made-after-commit',
    message: 'The arguments need a value that is made after the commit: {what}',
    next: 'Make it before the COMMIT, then scan again',
  },
  {
    code: 'between-not-movable',
    message:
      'Something that must not run inside a transaction stands between the write and the publish: {what}',
    next: 'Move it behind the publish, or in front of the write, then scan again',
  },
  {
    code: 'early-exit',
    message: 'Something between the write and the publish may leave the function ({what})',
    next: 'Make the write the last thing that can fail, or introduce the transaction by hand',
  },
  {
    code: 'names-needed-later',
    message: 'A variable of the write is used later in a way that cannot be kept typed: {what}',
    next: 'Give the variable a type annotation, then scan again',
  },
  {
    code: 'type-forgotten',
    message: 'The compiler knows more of {what} than its declaration says, and forgets it in a callback',
    next: 'Put it into a constant in front of the write, then scan again',
  },
  {
    code: 'pool-not-in-scope',
    message: 'The pool behind {what} cannot be named here',
    next: 'Export the pool from its module, then scan again',
  },
  {
    code: 'not-async',
    message: 'The function is not async ({what})',
    next: 'Make it async, then scan again',
  },
  {
    code: 'framework-signature',
    message: "The signature is not this repository's to change ({what})",
    next: 'Move what publishes into a function of its own, then scan again',
  },
  {
    code: 'public-export',
    message: 'The package gives this function to others ({what}), and their calls cannot be seen',
    next: 'Add a function with the handle beside it by hand, and keep the old one until nobody calls it',
  },
  {
    code: 'function-as-value',
    message: 'The function is handed on as a value ({what}), so not everybody who calls it can be seen',
    next: 'Call it there with its arguments written out, then scan again',
  },
  {
    code: 'dynamic-dispatch',
    message: 'A call that may be meant for this function cannot be followed ({what})',
    next: 'Call it by its name on something with a type, then scan again',
  },
  {
    code: 'handle-types-differ',
    message: 'The callers do not share one kind of transaction: {what}',
    next: 'Give each kind its own function, then scan again',
  },
  {
    code: 'handle-in-parts',
    message: 'An enqueue in this transaction needs more than one name ({what})',
    next: 'Pass what the adapter takes by hand, and enqueue on it',
  },
  {
    code: 'handle-may-be-missing',
    message: 'The handle may be missing ({what}): then the write commits by itself',
    next: 'Make the parameter required and pass the pool where there is no transaction, then scan again',
  },
  {
    code: 'process-boundary',
    message: 'It is called from another process or thread ({what}), and a handle cannot go there',
    next: 'Publish in the process that commits, then scan again',
  },
  {
    code: 'caller-without-transaction',
    message: 'The function is also called where no transaction can be handed over: {what}',
    next: 'Open a transaction there, or give those callers a function of their own, then scan again',
  },
  {
    code: 'no-transaction-here',
    message: 'The transaction is elsewhere: {what}',
    next: 'Pass the client through and enqueue on it',
  },
] as const satisfies readonly Reason[];

export type ReasonCode = (typeof REASONS)[number]['code'];

/** Reasons that say that nothing is wrong at the place: no comment is left there. */
export const NO_SEAM: ReadonlySet<string> = new Set(['generated-file', 'rpc', 'no-write', 'outbox-relay']);

const BY_CODE = new Map<string, { readonly reason: Reason; readonly rank: number }>(
  REASONS.map((reason, rank) => [reason.code, { reason, rank }]),
);

/** One thing that stands in the way of a rewrite: a code and the piece of source it is about. */
export interface Obstacle {
  readonly code: ReasonCode;
  readonly what: string;
}

/** The sentence for people: message and next step. */
export function explain(obstacle: Obstacle): { readonly message: string; readonly next: string } {
  const entry = BY_CODE.get(obstacle.code);
  const message = entry?.reason.message ?? obstacle.code;
  return { message: message.replace('{what}', () => obstacle.what), next: entry?.reason.next ?? '' };
}

/** Obstacles by precedence, each (code, what) once. */
export function byPrecedence(obstacles: readonly Obstacle[]): Obstacle[] {
  const seen = new Set<string>();
  const unique = obstacles.filter((o) => {
    const key = `${o.code}\n${o.what}`;
    return seen.has(key) ? false : seen.add(key);
  });
  return unique.sort((a, b) => (BY_CODE.get(a.code)?.rank ?? 0) - (BY_CODE.get(b.code)?.rank ?? 0));
}
