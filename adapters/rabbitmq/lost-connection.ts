/**
 * Whether an error says that a connection was lost, to the broker or to the database, in the words of both clients. Time
 * may heal that; everything else would only repeat itself.
 */
export function isLostConnection(error: unknown): boolean {
  const { code } = error as { code?: unknown };
  if (typeof code === 'string' && /^(08|57P|25P03|40|53300)/.test(code)) return true;
  if (typeof code === 'string' && /^E[A-Z]+$/.test(code)) return true;
  return tellsOfLoss(error);
}

/** By its words alone: an error of a client's own has no code. */
export function tellsOfLoss(error: unknown): boolean {
  const message = error instanceof Error ? error.message : '';
  // 'Unexpected close' is all that amqplib says of a socket that ended.
  return /connect|channel|close|heartbeat|consumer|terminat|timeout|socket|not queryable/i.test(message);
}
