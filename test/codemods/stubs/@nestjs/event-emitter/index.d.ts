export declare const OnEvent: (event: string | string[]) => MethodDecorator;
export declare class EventEmitter2 {
  on(event: string, listener: (...values: unknown[]) => void): this;
  emit(event: string, ...values: unknown[]): boolean;
}
