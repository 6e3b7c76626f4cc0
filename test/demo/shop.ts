/**
 * Customers of the orders application: they order over HTTP and note what must then arrive. An answer that never comes
 * is noted as null; whether the order exists the database knows.
 */
import type { Expected } from './books.js';

export class Shop {
  constructor(
    private readonly url: string,
    private readonly expected: Expected[],
  ) {}

  /** The order's id; null when the application died before it answered. `path`: how the receipt travels. */
  async place(email: string, path: string): Promise<number | null> {
    const body = { email, items: [{ sku: 'book', quantity: 1, priceCents: 1_900 }] };
    let id: number;
    try {
      ({ id } = (await this.post('/orders', body)) as { id: number });
    } catch (error) {
      if (error instanceof ShopError) throw error;
      return null;
    }
    this.expected.push({ to: email, subject: `Receipt for order ${id}`, path });
    return id;
  }

  async post(path: string, body: object = {}): Promise<unknown> {
    const response = await fetch(this.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new ShopError(`POST ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }
}

/** The application answered, but not what the story needs. */
class ShopError extends Error {}
