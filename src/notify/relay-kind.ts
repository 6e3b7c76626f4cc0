/** The name of the kind that calls a URL; apart from its handler so that a contract need not load an HTTP client. */

/** Payload: `{url, key?, data}`: an envelope is posted; or `{url, body}`: just that. */
export const RELAY_HTTP = 'relay.http';
