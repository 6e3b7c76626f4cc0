/**
 * The rules between a request and a contract, in their order: head, key, grants, body's head; then body, query, parse,
 * kinds, idempotency, the core; and what becomes of whatever is thrown. It knows node's request, not the framework.
 */
import { createHash } from 'node:crypto';
import { UnbrokerError } from '../errors.js';
import { within } from '../jobs/signal.js';
import { TemplateNotLoaded } from '../notify/template-table.js';
import {
  type ApiKey,
  mayEnqueue,
  mayUse,
  type Principal,
  presentedKey,
  principalOf,
  principalOfCertificate,
  principalOfJwt,
  signatureOf,
  signer,
  signs,
} from './auth.js';
import {
  type AnyRoute,
  type Contract,
  type ContractContext,
  isRefusal,
  type Parsed,
  problem,
  Refusal,
  type ShimRequest,
  type ShimResponse,
} from './contract.js';
import { type Core, parseWith } from './core.js';
import {
  hasBody,
  idempotencyKeyOf,
  isLoopbackHost,
  type RequestHead,
  readBody,
  readQuery,
  refuseBodyHead,
  refuseHead,
  tooLarge,
  traceparentOf,
} from './request-rules.js';
import type { RequestKey } from './requests.js';

/** A contract's route, with what follows from its declaration. */
export interface Mounted {
  readonly route: AnyRoute;
  readonly contract: Contract;
  readonly verb: 'read' | 'write';
  readonly body: 'json' | 'none' | 'any';
  /** What the path begins with, where its rest is taken as it was sent; null: the path is an ordinary one. */
  readonly rawPrefix: string | null;
}

export interface DoorOptions {
  readonly context: ContractContext;
  readonly core: Core;
  /** Empty: anybody on this machine is let in. */
  readonly keys: readonly ApiKey[];
  readonly bodyBytes: number;
  /** Reads a template that a contract's parse looks for; absent: there is no table of them. */
  readonly loadTemplate?: (key: string, version: number | null) => Promise<void>;
  readonly answerTimeoutMs: number;
}

/** A request whose body has been read. */
export interface Arrived {
  readonly head: RequestHead;
  readonly params: Readonly<Record<string, string>>;
  /** null: none came. */
  readonly bytes: Buffer | null;
  readonly principal: Principal;
}

/** A batch may name a hundred templates; while they are read, the first may have grown old. */
const MAX_LOADS = 400;

export function mountedRoute(contract: Contract, route: AnyRoute): Mounted {
  const usual = ['POST', 'PUT', 'PATCH'].includes(route.method) ? 'json' : 'none';
  const verb = route.verb ?? (route.method === 'GET' ? 'read' : 'write');
  const rawPrefix = route.path.endsWith('/*') ? route.path.slice(0, -1) : null;
  return { route, contract, verb, body: route.body ?? usual, rawPrefix };
}

export class Door {
  constructor(private readonly options: DoorOptions) {}

  /**
   * Before the body is read: who it is, or why not. `mounted` is undefined where no contract's route is, and null for a
   * request that still waits for leave to send its body, when no route has been looked for.
   */
  admit(
    head: RequestHead,
    mounted: Mounted | undefined | null,
    certificate: string | null = null,
  ): Principal | Refusal {
    // A request that waits for leave to send its body comes again, with its route.
    const refused = refuseHead(head, mounted === null || (mounted?.rawPrefix ?? null) !== null);
    if (refused !== null) return refused;
    const principal = this.#authenticate(head, mounted, certificate);
    if (isRefusal(principal) || mounted === undefined) return principal;
    if (mounted !== null && !mayUse(principal, mounted.contract.service, mounted.verb))
      return new Refusal(403, 'not-allowed', 'this key may not do that');
    const anyMedia = mounted === null || mounted.body === 'any';
    return refuseBodyHead(head, this.options.bodyBytes, anyMedia) ?? principal;
  }

  #authenticate(
    head: RequestHead,
    mounted: Mounted | undefined | null,
    certificate: string | null,
  ): Principal | Refusal {
    const { keys } = this.options;
    if (keys.length === 0 && !isLoopbackHost(head))
      return new Refusal(403, 'host-refused', 'without API keys only localhost is served');
    const unknown = () =>
      new Refusal(401, 'key-missing', 'a valid API key is needed, as Authorization: Bearer');
    const known = principalOfCertificate(certificate, keys);
    if (known !== null) return known;
    const signature = signatureOf(head.headers);
    if (signature !== null) {
      const claimed = signer(signature, keys, Date.now());
      // Without a body all is there to check; with one, serve checks it. Where nothing serves, nobody would.
      const whole = !hasBody(head) && claimed !== null && this.#signed(head, claimed, Buffer.alloc(0));
      return claimed !== null && (whole || (mounted !== undefined && hasBody(head))) ? claimed : unknown();
    }
    const presented = presentedKey(head.headers);
    if (mounted === null || mounted?.contract.auth === 'jwt') {
      const signed = presented === null ? null : principalOfJwt(presented, keys, Date.now());
      if (signed !== null || mounted !== null) return signed ?? unknown();
    }
    return principalOf(presented, keys) ?? unknown();
  }

  #signed(head: RequestHead, key: Principal, bytes: Buffer): boolean {
    const signature = signatureOf(head.headers);
    const found = this.options.keys.find(({ name, scheme }) => name === key.name && scheme === 'hmac');
    if (signature === null || found === undefined) return false;
    return signs(signature, found, head.method ?? '', head.url ?? '', bytes);
  }

  async serve(mounted: Mounted, { head, params, bytes, principal }: Arrived): Promise<ShimResponse> {
    const { core, context, answerTimeoutMs, keys } = this.options;
    const mustSign = keys.some(({ name, scheme }) => name === principal.name && scheme === 'hmac');
    if (mustSign && !this.#signed(head, principal, bytes ?? Buffer.alloc(0)))
      throw new Refusal(401, 'signature-wrong', 'the signature does not fit the request');
    if (mounted.body === 'none' && bytes !== null && bytes.length > 0)
      throw new Refusal(400, 'unexpected-body', 'this route takes no body');
    const request = {
      params,
      query: mounted.rawPrefix === null ? readQuery(head.url ?? '', mounted.route.repeats) : new Map(),
      headers: head.headers as Record<string, string | undefined>,
      body: mounted.body === 'json' ? readBody(bytes ?? Buffer.alloc(0)) : null,
      bytes: mounted.body === 'any' ? (bytes ?? Buffer.alloc(0)) : Buffer.alloc(0),
      rest: mounted.rawPrefix === null ? '' : (head.url ?? '').slice(mounted.rawPrefix.length),
    };
    const parsed = checkKinds(await this.#parse(mounted.route, request, context), principal);
    const key = requestKey(head, bytes, principal);
    const asked = { parsed: traced(parsed, head), key, by: principal.name };
    const run = this.#withTemplates(() => core.run(mounted.route, asked));
    return within(run, answerTimeoutMs);
  }

  #parse(route: AnyRoute, request: ShimRequest, context: ContractContext): Promise<Parsed> {
    return this.#withTemplates(() => parseWith(route, request, context));
  }

  /**
   * Who looks for a template does no I/O: one that is not in memory is read, and the work starts again. What an edit had
   * done in its transaction until then was rolled back.
   */
  async #withTemplates<T>(work: () => T | Promise<T>): Promise<T> {
    for (let loads = 0; ; loads += 1) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof TemplateNotLoaded) || loads >= MAX_LOADS) throw error;
        await this.options.loadTemplate?.(error.key, error.version);
      }
    }
  }

  /** Whatever was thrown, as a refusal. */
  refusalOf(error: unknown): Refusal {
    if (isRefusal(error)) return error;
    const told = error instanceof UnbrokerError ? SAID[error.code] : undefined;
    if (told !== undefined) return new Refusal(422, (error as UnbrokerError).code, told);
    const { code, statusCode } = error as { code?: unknown; statusCode?: unknown };
    if (statusCode === 413) return tooLarge(this.options.bodyBytes);
    if (typeof statusCode === 'number' && statusCode < 500)
      return new Refusal(statusCode, 'malformed', 'the request is malformed');
    // Read and found good by us, refused by the server: a limit of jsonb that we do not know.
    if (typeof code === 'string' && /^(22|54)...$/.test(code))
      return new Refusal(422, 'unstorable', 'the database cannot hold this');
    if (isUnavailable(error, code))
      return new Refusal(
        503,
        'unavailable',
        'the database does not answer; send it again with the same Idempotency-Key',
      );
    return new Refusal(500, 'internal', 'something failed here; the log says what');
  }
}

/** What the schedules API refuses, in words that quote nothing. */
const SAID: Readonly<Record<string, string>> = {
  'schedule-invalid':
    'the schedule cannot be read; cron takes 5 fields, 6 with seconds first, a nickname (@daily) or @every 90s',
  'schedule-never': 'the schedule would never fire',
  'time-zone-unknown': 'there is no such time zone; give an IANA name such as Europe/Paris',
};

/** As the route's contract says no; problem+json where there is no route. */
export function renderRefusal(refusal: Refusal, mounted: Mounted | undefined): ShimResponse {
  if (mounted === undefined) return problem(refusal);
  return (mounted.route.errors ?? mounted.contract.errors)(refusal);
}

const kindsOf = ({ grants: { kinds } }: Principal) => (kinds === undefined ? {} : { kinds });

/** Kinds that a request would put in, whatever it calls them. What an edit makes of a row is known only then. */
function checkKinds(parsed: Parsed, principal: Principal): Parsed {
  const refuse = (kind: string): void => {
    if (!mayEnqueue(principal, kind))
      throw new Refusal(403, 'not-allowed', 'this key may not enqueue that kind');
  };
  switch (parsed.type) {
    case 'enqueue':
      for (const { kind } of parsed.jobs) refuse(kind);
      return parsed;
    case 'replace-job':
      refuse(parsed.job.kind);
      return parsed;
    case 'change-suppressions':
      refuse(`notify.${parsed.channel}`);
      return parsed;
    case 'put-schedule':
      refuse(parsed.draft.kind);
      return parsed;
    case 'edit-job':
      return { ...parsed, edit: (job) => checked(parsed.edit(job), job.kind) };
    case 'edit-schedule':
      return {
        ...parsed,
        editJob: (job) => checked(parsed.editJob(job), job.kind),
        editSchedule: (schedule) => checked(parsed.editSchedule(schedule), schedule.kind),
      };
    case 'change':
    case 'change-many':
    case 'change-schedule':
      // A row of another kind is as good as none to who may not run it.
      return { ...parsed, scope: { ...parsed.scope, ...kindsOf(principal) } };
    default:
      return parsed;
  }

  /** Both what it was and what it becomes: an edit runs it. */
  function checked<T extends { readonly kind?: string }>(edit: T, kind: string): T {
    refuse(kind);
    refuse(edit.kind ?? kind);
    return edit;
  }
}

function requestKey(head: RequestHead, bytes: Buffer | null, principal: Principal): RequestKey | null {
  const key = idempotencyKeyOf(head);
  if (key === null) return null;
  const hash = createHash('sha256').update(`${head.method} ${head.url}\n`);
  if (bytes !== null) hash.update(bytes);
  return { principal: principal.name, key, bodyHash: hash.digest() };
}

/**
 * Connection trouble (08, 53, 57, whatever ends a connection as FATAL), a lock not got in time (55P03), a network error,
 * or no answer in time.
 */
function isUnavailable(error: unknown, code: unknown): boolean {
  if (error instanceof UnbrokerError)
    return error.code === 'database-slow' || error.code === 'dedupe-unsettled';
  if ((error as { severity?: unknown }).severity === 'FATAL') return true;
  if (typeof code === 'string' && /^(08...|53...|57...|55P03|40...|25006|E[A-Z]+)$/.test(code)) return true;
  const message = error instanceof Error ? error.message : '';
  return /timeout exceeded when trying to connect|Connection terminated|Client has encountered a connection error/.test(
    message,
  );
}

function traced(parsed: Parsed, head: RequestHead): Parsed {
  const traceparent = traceparentOf(head);
  if (traceparent === null || parsed.type !== 'enqueue') return parsed;
  return {
    ...parsed,
    jobs: parsed.jobs.map((job) => ({ ...job, headers: { ...job.headers, traceparent } })),
  };
}
