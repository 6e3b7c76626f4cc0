/** The nouns of the application. Money is in cents. */

export interface NewOrder {
  readonly email: string;
  readonly locale: string;
  readonly items: readonly OrderItem[];
}

export interface OrderItem {
  readonly sku: string;
  readonly quantity: number;
  readonly priceCents: number;
}

export interface Order {
  readonly id: number;
  readonly email: string;
  readonly locale: string;
  readonly status: 'placed' | 'paid' | 'shipped' | 'cancelled' | 'refunded';
  readonly totalCents: number;
  readonly parcel: string | null;
}

/** Columns of an Order. */
export const ORDER = 'id, email, locale, status, total_cents as "totalCents", parcel';

export class OrderError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export const money = (cents: number): string => `${(cents / 100).toFixed(2)} EUR`;
