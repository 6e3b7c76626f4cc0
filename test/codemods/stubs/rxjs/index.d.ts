// Only what the fixtures call, in the shapes of the library's own declarations.
export declare class Observable<T> {
  subscribe(next?: (value: T) => void): void;
  toPromise(): Promise<T | undefined>;
}
export declare function lastValueFrom<T>(source: Observable<T>): Promise<T>;
export declare function firstValueFrom<T>(source: Observable<T>): Promise<T>;
