// Only what the fixtures call, in the shapes of the library's own declarations.
import type { Observable } from 'rxjs';
export declare enum Transport {
  TCP = 0,
  REDIS = 1,
  NATS = 2,
  MQTT = 3,
  GRPC = 4,
  RMQ = 5,
  KAFKA = 6,
}
export declare abstract class ClientProxy {
  send<Result = unknown, Input = unknown>(pattern: unknown, data: Input): Observable<Result>;
  emit<Result = unknown, Input = unknown>(pattern: unknown, data: Input): Observable<Result>;
}
export declare class RmqRecordBuilder<Data> {
  constructor(data?: Data);
  setOptions(options: { priority?: number; messageId?: string; headers?: Record<string, string> }): this;
  build(): { readonly data: Data };
}
export declare const ClientsModule: {
  register(clients: { name: string | symbol; transport: Transport; options?: object }[]): object;
};
