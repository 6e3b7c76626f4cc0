/**
 * Why an encrypted connection was not made, in words, from the error of Node's TLS: whoever reads a log at night should not
 * have to look up OpenSSL's constants. Pure; it knows no server, and says nothing of what is not TLS.
 */

export interface TlsFailure {
  /** `untrusted`: nobody known here has signed it. `plain`: what listens there speaks no TLS. */
  readonly kind: 'untrusted' | 'name' | 'time' | 'plain' | 'handshake';
  /** `its certificate has expired (CERT_HAS_EXPIRED)`. */
  readonly what: string;
  /** The next step, as a sentence. */
  readonly hint: string;
}

type Words = Omit<TlsFailure, 'what'> & { readonly says: string };

const TRUST = 'Name the certificate of who has signed it, as a PEM file, in NODE_EXTRA_CA_CERTS.';
const unknownSigner: Words = {
  kind: 'untrusted',
  says: 'nobody known here has signed its certificate',
  hint: TRUST,
};
const noTls: Words = {
  kind: 'plain',
  says: 'what listens there speaks no TLS',
  hint: 'Name its TLS port, or a URL without TLS.',
};

const WORDS: Readonly<Record<string, Words>> = {
  DEPTH_ZERO_SELF_SIGNED_CERT: {
    kind: 'untrusted',
    says: 'its certificate is signed by itself',
    hint: 'Name that certificate, as a PEM file, in NODE_EXTRA_CA_CERTS.',
  },
  SELF_SIGNED_CERT_IN_CHAIN: unknownSigner,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: unknownSigner,
  UNABLE_TO_GET_ISSUER_CERT: unknownSigner,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: unknownSigner,
  CERT_UNTRUSTED: unknownSigner,
  ERR_TLS_CERT_ALTNAME_INVALID: {
    kind: 'name',
    says: 'its certificate is for another host name',
    hint: 'Connect by a name that the certificate holds (openssl x509 -noout -ext subjectAltName shows them).',
  },
  CERT_HAS_EXPIRED: {
    kind: 'time',
    says: 'its certificate has expired',
    hint: 'Renew it on the server; if it is not over, look at the clock of this machine.',
  },
  CERT_NOT_YET_VALID: {
    kind: 'time',
    says: 'its certificate is not valid yet',
    hint: 'Look at the clocks of both machines.',
  },
  ERR_SSL_WRONG_VERSION_NUMBER: noTls,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: noTls,
};

/** Null: the error is not about TLS. */
export function tlsFailure(error: unknown): TlsFailure | null {
  const { code, message, cause } = (error ?? {}) as { code?: unknown; message?: unknown; cause?: unknown };
  if (typeof code !== 'string') return cause === undefined ? null : tlsFailure(cause);
  const words = Object.hasOwn(WORDS, code) ? WORDS[code] : otherWords(code, String(message));
  if (words === undefined) return cause === undefined ? null : tlsFailure(cause);
  const { kind, says, hint } = words;
  return { kind, what: `${says} (${code})`, hint };
}

/** Node's HTTP client calls by one code what its TLS has several for. */
function otherWords(code: string, message: string): Words | undefined {
  const isHandshake = /^ERR_SSL_/.test(code) || (code === 'EPROTO' && /\bSSL\b|ssl3?_/.test(message));
  if (!isHandshake) return undefined;
  if (/wrong version number|packet length too long/.test(message)) return noTls;
  return {
    kind: 'handshake',
    says: 'the two could not agree',
    hint: 'Compare the TLS versions and ciphers of both, and whether a client certificate is asked for.',
  };
}
