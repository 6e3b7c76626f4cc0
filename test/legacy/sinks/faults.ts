/**
 * Failing on purpose: the next n deliveries, or every delivery to a recipient that matches, get an error; all may be
 * slow. Set by environment at the start (FAIL_NEXT, FAIL_CODE, FAIL_MATCH, DELAY_MS) or by POST /_control.
 */
export interface Faults {
  /** How many of the next deliveries fail. */
  failNext: number;
  /** The answer of a failed one; SMTP 451 or HTTP 503 by default. */
  failCode: number;
  /** Part of a recipient or path that always fails; '' for none. */
  failMatch: string;
  delayMs: number;
  /** True: journal it and fail all the same, as a provider does that times out after sending. */
  failAfterTaking: boolean;
}

export function faultsFromEnv(defaultCode: number): Faults {
  const number = (name: string, fallback: number) => Number(process.env[name] ?? fallback);
  return {
    failNext: number('FAIL_NEXT', 0),
    failCode: number('FAIL_CODE', defaultCode),
    failMatch: process.env['FAIL_MATCH'] ?? '',
    delayMs: number('DELAY_MS', 0),
    failAfterTaking: process.env['FAIL_AFTER_TAKING'] === '1',
  };
}

/** The code to answer with, or null to take it. Counts `failNext` down. */
export function failureFor(faults: Faults, to: readonly string[]): number | null {
  if (faults.failNext > 0) {
    faults.failNext -= 1;
    return faults.failCode;
  }
  const matches = faults.failMatch !== '' && to.some((address) => address.includes(faults.failMatch));
  return matches ? faults.failCode : null;
}

/** Takes over the known fields of a control request. */
export function adjust(faults: Faults, change: unknown): void {
  const known = Object.keys(faults);
  for (const [name, value] of Object.entries(change as object)) {
    if (!known.includes(name)) throw new Error(`no such fault: ${name}`);
    Object.assign(faults, { [name]: value });
  }
}
