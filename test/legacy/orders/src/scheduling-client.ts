/** The little of the scheduling service's HTTP interface that this application uses. */

export interface ScheduleRequest {
  readonly name: string;
  readonly delayMs: number;
  readonly target: { readonly exchange: string; readonly routingKey: string };
  readonly payload: unknown;
}

export class SchedulingClient {
  constructor(private readonly baseUrl: string) {}

  async create(request: ScheduleRequest): Promise<{ id: string }> {
    const response = await fetch(`${this.baseUrl}/schedules`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(request),
      signal: AbortSignal.timeout(10_000),
    });
    if (response.status !== 201) throw new Error(`scheduling answered ${response.status}`);
    return (await response.json()) as { id: string };
  }
}
