/**
 * The `serve` section of the config and its check. Pure. Keys are named by environment variable or given as digests:
 * the config file itself never holds one.
 */
import { arrayOf, boolean, type Checker, integer, invalid, object, oneOf, record, string } from '../check.js';
import { LIMITS } from '../jobs/job.js';

export interface ServeConfig {
  /** Default 127.0.0.1. Any other address needs keys. */
  readonly host?: string;
  /** Default 8080; 0 = any free one. */
  readonly port?: number;
  /**
   * What to mount: a built-in contract's name, or the path of a module (`./legacy.contract.ts`, relative to the config
   * file) whose default export is a contract or a list of them. Default: `trio`.
   */
  readonly contracts?: readonly string[];
  /** Without keys only this machine is served. */
  readonly keys?: readonly KeyConfig[];
  /** Kinds that your own handlers serve, so that clients may ask for them. */
  readonly kinds?: readonly string[];
  /** What took the place of an exchange or queue: `exchange:<name>` or `queue:<name>` to a kind. */
  readonly targets?: Readonly<Record<string, string>>;
  /** Connections at once. Default 1000. */
  readonly maxConnections?: number;
  /** HTTPS, TLS 1.2 or newer. Files relative to the config's. */
  readonly tls?: TlsConfig;
}

export interface TlsConfig {
  readonly certFile: string;
  readonly keyFile: string;
  /** Who signs clients' certificates: with it they are asked for one. */
  readonly caFile?: string;
}

/** What a contract stands in for; keys can be limited to some. */
export type Service = 'notification' | 'scheduling' | 'retry';

/** Exactly one of `env`, `sha256` and `certificate`. What is absent of services, verbs and kinds is not limited. */
export interface KeyConfig {
  /** In logs and in the requests table. */
  readonly name: string;
  /** The environment variable that holds the key. */
  readonly env?: string;
  /** Hex SHA-256 of the key. */
  readonly sha256?: string;
  /** Hex SHA-256 of the client's certificate (its fingerprint, colons or none), with `serve.tls`. */
  readonly certificate?: string;
  /** True: the key signs each request and is never sent; only with `env`. */
  readonly hmac?: boolean;
  readonly services?: readonly Service[];
  readonly verbs?: readonly ('read' | 'write')[];
  /** `notify.*` means all kinds that start so. */
  readonly kinds?: readonly string[];
}

const contractName = string({
  pattern: /^(?:trio|qstash|govuk-notify|\.{1,2}\/.+)$/,
  expected: 'trio, qstash, govuk-notify, or the path of a module that starts with ./',
});

const kind = string({ maxLength: LIMITS.kindLength });

/** Also as openssl prints it, with colons and in capitals. */
const fingerprint: Checker<string> = (value, path) =>
  string({ pattern: /^[0-9a-f]{64}$/, expected: 'a SHA-256: 64 hexadecimal digits' })(
    typeof value === 'string' ? value.replaceAll(':', '').toLowerCase() : value,
    path,
  );

const target = string({
  pattern: /^(exchange|queue):.{1,255}$/,
  expected: 'exchange:<name> or queue:<name>',
});

const checkKey = object(
  {
    name: string({
      maxLength: 100,
      pattern: /^[A-Za-z0-9._-]+$/,
      expected: 'letters, digits, dots, dashes, underscores',
    }),
    env: string({
      pattern: /^[A-Z_][A-Z0-9_]*$/,
      expected: 'the name of an environment variable, in capitals',
    }),
    sha256: fingerprint,
    certificate: fingerprint,
    hmac: boolean,
    services: arrayOf(oneOf('notification', 'scheduling', 'retry'), 3),
    verbs: arrayOf(oneOf('read', 'write'), 2),
    kinds: arrayOf(kind, 100),
  },
  ['name'],
);

const shape = object({
  host: string({ maxLength: 255, pattern: /^[A-Za-z0-9.:-]+$/, expected: 'a host name or address' }),
  port: integer(0, 65_535),
  contracts: arrayOf(contractName, 20, 1),
  keys: arrayOf(checkKey, 1_000),
  kinds: arrayOf(kind),
  targets: record(kind, undefined, target),
  maxConnections: integer(1, 100_000),
  tls: object({ certFile: string(), keyFile: string(), caFile: string() }, ['certFile', 'keyFile']),
});

/** Throws `config-invalid` (exit 2), naming the key and what it must be. */
export function checkServeConfig(value: unknown, path = 'config.serve'): ServeConfig {
  const config = shape(value, path);
  const names = new Set<string>();
  for (const [index, key] of (config.keys ?? []).entries()) {
    const { env, sha256, certificate, hmac = false } = key;
    if ([env, sha256, certificate].filter((one) => one !== undefined).length !== 1)
      throw invalid(`${path}.keys[${index}]`, 'given exactly one of env, sha256 and certificate');
    if (hmac && env === undefined)
      throw invalid(`${path}.keys[${index}].hmac`, 'with env: a digest signs nothing');
    if (certificate !== undefined && config.tls?.caFile === undefined)
      throw invalid(`${path}.tls.caFile`, 'given, where a key is a certificate');
    if (names.has(key.name)) throw invalid(`${path}.keys[${index}].name`, 'used once');
    names.add(key.name);
  }
  return config as ServeConfig;
}
