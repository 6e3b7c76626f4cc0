/**
 * What a contract is: a file that describes one old interface. `parse` turns a request into what the core can do,
 * `render` turns the core's result into the old answer; both are pure. It knows neither the HTTP framework nor SQL.
 */

import { EXIT, UnbrokerError } from '../errors.js';
import type { Job } from '../jobs/job.js';
import type { JsonNode } from '../json-text.js';
import type { Renderer } from '../notify/templates.js';
import type { Service } from './config.js';
import type { DescribedContract } from './described.js';
import {
  type Answer,
  kindFits,
  type Parsed,
  type Refusal,
  type ResultOf,
  type Scope,
  type ShimResponse,
} from './operations.js';

export * from './operations.js';

/** A request after the server's own checks: body scanned, path decoded, each query name given once. */
export interface ShimRequest {
  readonly params: Readonly<Record<string, string>>;
  readonly query: ReadonlyMap<string, string>;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** null on a route that takes no JSON body. */
  readonly body: JsonNode | null;
  /** The body of a route that takes any; else empty. */
  readonly bytes: Buffer;
  /** On a raw path: the request target behind the route's prefix, exactly as it was sent; else empty. */
  readonly rest: string;
}

/** What parse may ask about this installation. All of it is in memory: no I/O. */
export interface ContractContext {
  /** Kinds that some handler is known to serve. */
  knowsKind(kind: string): boolean;
  /** `exchange:<name>` or `queue:<name>` to the kind that took its place; from the config. */
  readonly targets: Readonly<Record<string, string>>;
  /** Channels with a provider; null when this installation does not say. */
  readonly channels: readonly string[] | null;
  /** null when no templates folder is configured. */
  readonly renderer: Renderer | null;
  /** Why an outgoing URL is refused, or null. Names are vetted again when they are resolved. */
  refuseUrl(url: string): string | null;
}

export interface Route<P extends Parsed = Parsed> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** `:name` marks a parameter; a `*` at the end takes the rest as it was sent (`ShimRequest.rest`), query and all. */
  readonly path: string;
  /** `read` needs only that grant; default `write` except for GET. */
  readonly verb?: 'read' | 'write';
  /**
   * `json`: a JSON body is needed. Default for POST, PUT and PATCH; else a body is refused. `any`: bytes of any media
   * type, or none.
   */
  readonly body?: 'json' | 'none' | 'any';
  /** Query names that may come more than once; their values arrive joined by commas. Default: none may. */
  readonly repeats?: readonly string[];
  parse(request: ShimRequest, context: ContractContext): P | Answer | Refusal;
  render(result: ResultOf<P>, parsed: P): ShimResponse | Refusal;
  /** How this route says no; default the contract's. */
  readonly errors?: (refusal: Refusal) => ShimResponse;
}

/** A route with its types put away, as the server mounts it. */
export interface AnyRoute extends Omit<Route, 'render'> {
  render(result: unknown, parsed: Parsed): ShimResponse | Refusal;
}

/** How a message on the old broker becomes a job. Nothing mounts these yet: the bridge does. */
export interface DeliveryRule {
  readonly exchange: string;
  readonly routingKey: string;
}

export interface Contract {
  readonly name: string;
  readonly service: Service;
  readonly routes: readonly AnyRoute[];
  readonly deliveries: readonly DeliveryRule[];
  /** `jwt`: the bearer token is a JWT, HS256, signed with the client's key. Default: it is the key. */
  readonly auth?: 'jwt';
  /** What its routes take and answer, for the OpenAPI document; what is not described is shown without bodies. */
  readonly described?: DescribedContract;
  /** How the old service says no. */
  errors(refusal: Refusal): ShimResponse;
}

/** Types a route: what parse returns decides what render gets. */
export function route<P extends Parsed>(given: Route<P>): AnyRoute {
  return given as unknown as AnyRoute;
}

/** A route that needs nothing of the database: parse says all. */
export function answerRoute(
  given: Omit<AnyRoute, 'parse' | 'render'> & {
    parse(request: ShimRequest, context: ContractContext): Answer | Refusal;
  },
): AnyRoute {
  return {
    ...given,
    render() {
      throw new TypeError('this route has answered already');
    },
  };
}

/** Checks that routes do not collide. Throws TypeError: it is a mistake in code, not in a request. */
export function defineContract(contract: Contract): Contract {
  const seen = new Set<string>();
  for (const { method, path } of contract.routes) {
    if (!/^(\/(:?[a-z][a-zA-Z0-9-]*))+(\/\*)?$/.test(path))
      throw new TypeError(`contract ${contract.name}: ${method} ${path} is not a path`);
    const key = routeKey(method, path);
    if (seen.has(key)) throw new TypeError(`contract ${contract.name}: ${method} ${path} comes twice`);
    seen.add(key);
  }
  const names = new Set(contract.routes.map(({ method, path }) => `${method} ${path}`));
  for (const name of Object.keys(contract.described?.routes ?? {}))
    if (!names.has(name))
      throw new TypeError(`contract ${contract.name}: ${name} is described and not there`);
  return contract;
}

/** Two with the same cannot be told apart by a request. */
const routeKey = (method: string, path: string): string => `${method} ${path.replace(/:[^/]+/g, ':')}`;

const OWN_ROUTES = ['/livez', '/readyz', '/openapi.json'];

/** Throws `contract-invalid` (exit 2): of a route that two have, only one could be asked. */
export function refuseSharedRoutes(contracts: readonly Contract[]): void {
  const owners = new Map(OWN_ROUTES.map((path) => [routeKey('GET', path), 'the server']));
  for (const { name, routes } of contracts) {
    for (const { method, path } of routes) {
      const key = routeKey(method, path);
      const owner = owners.get(key);
      if (owner !== undefined)
        throw new UnbrokerError(
          'contract-invalid',
          `${method} ${path} is a route of ${name} and of ${owner}`,
          {
            hint: 'Name one of them in serve.contracts, once, or give the route of yours another path.',
            exitStatus: EXIT.badInput,
          },
        );
      owners.set(key, name);
    }
  }
}

export function inScope(job: Job, scope: Scope): boolean {
  return (
    job.kind.startsWith(scope.kindPrefix ?? '') &&
    (job.source ?? '').startsWith(scope.sourcePrefix ?? '') &&
    kindFits(scope.kinds, job.kind)
  );
}

export function jsonResponse(
  status: number,
  bodyText: string,
  headers: Readonly<Record<string, string>> = {},
): ShimResponse {
  return { status, headers, body: bodyText };
}

export const EMPTY: ShimResponse = { status: 204, body: null };

const TITLES: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'Not Found',
  408: 'Request Timeout',
  409: 'Conflict',
  413: 'Content Too Large',
  414: 'URI Too Long',
  415: 'Unsupported Media Type',
  417: 'Expectation Failed',
  422: 'Unprocessable Content',
  431: 'Request Header Fields Too Large',
  500: 'Internal Server Error',
  503: 'Service Unavailable',
};

/** RFC 9457, with `extra` members that an old client looks for. */
export function problem(refusal: Refusal, extra: Readonly<Record<string, unknown>> = {}): ShimResponse {
  const { status, code, detail } = refusal;
  const body = { type: 'about:blank', title: TITLES[status] ?? 'Error', status, code, detail, ...extra };
  return {
    status,
    headers: { 'content-type': 'application/problem+json' },
    body: JSON.stringify(body),
  };
}
