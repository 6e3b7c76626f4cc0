/** As much of typeorm-transactional as the fixtures use. */
export declare enum Propagation {
  REQUIRED = 'REQUIRED',
  NOT_SUPPORTED = 'NOT_SUPPORTED',
}
export declare function runOnTransactionCommit(run: () => void): void;
export declare function Transactional(options?: { propagation?: Propagation }): MethodDecorator;
