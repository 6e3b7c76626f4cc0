// Only what the fixtures call, in the shapes of the library's own declarations.
export declare function Inject(token?: unknown): PropertyDecorator & ParameterDecorator;
export declare function Injectable(): ClassDecorator;
export declare function Module(metadata: { imports?: unknown[]; providers?: unknown[] }): ClassDecorator;
