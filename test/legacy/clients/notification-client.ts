/** How callers speak to the notification service. */
import { call, queryString } from './http.js';

export interface SendRequest {
  readonly to: string;
  readonly template: string;
  readonly channel?: 'email' | 'sms' | 'push' | 'webhook';
  readonly locale?: string;
  readonly data?: Record<string, unknown>;
  readonly reference?: string;
}

export interface Notification {
  readonly id: string;
  readonly status: 'accepted' | 'sending' | 'sent' | 'retrying' | 'failed';
  readonly to: string;
  readonly channel: string;
  readonly template: string;
  readonly locale: string;
  readonly reference: string | null;
  readonly attempts: number;
  readonly error: string | null;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly sentAt: string | null;
}

export type BatchResult =
  | { readonly index: number; readonly id: string; readonly status: 'accepted' }
  | { readonly index: number; readonly status: 'rejected'; readonly error: string };

export interface TemplateVariant {
  readonly locale: string;
  readonly channel: string;
  readonly parts: Record<string, string>;
}

export class NotificationClient {
  constructor(private readonly baseUrl: string) {}

  send(request: SendRequest): Promise<{ id: string; status: 'accepted' }> {
    return call(this.baseUrl, 'POST', '/notifications', request);
  }

  async sendBatch(notifications: readonly SendRequest[]): Promise<BatchResult[]> {
    const answer = await call<{ results: BatchResult[] }>(this.baseUrl, 'POST', '/notifications/batch', {
      notifications,
    });
    return answer.results;
  }

  get(id: string): Promise<Notification> {
    return call(this.baseUrl, 'GET', `/notifications/${encodeURIComponent(id)}`);
  }

  async list(
    filter: { status?: string; reference?: string; before?: string; limit?: number } = {},
  ): Promise<Notification[]> {
    const answer = await call<{ items: Notification[] }>(
      this.baseUrl,
      'GET',
      `/notifications${queryString(filter)}`,
    );
    return answer.items;
  }

  getTemplate(key: string): Promise<{ key: string; variants: TemplateVariant[] }> {
    return call(this.baseUrl, 'GET', `/templates/${encodeURIComponent(key)}`);
  }

  putTemplate(key: string, variant: TemplateVariant): Promise<{ key: string } & TemplateVariant> {
    return call(this.baseUrl, 'PUT', `/templates/${encodeURIComponent(key)}`, variant);
  }

  async deleteTemplate(key: string): Promise<void> {
    await call(this.baseUrl, 'DELETE', `/templates/${encodeURIComponent(key)}`);
  }

  preview(
    key: string,
    request: { locale?: string; channel?: string; data: Record<string, unknown> },
  ): Promise<{ key: string } & TemplateVariant> {
    return call(this.baseUrl, 'POST', `/templates/${encodeURIComponent(key)}/preview`, request);
  }
}
