/** As much of a generated client as the fixtures use, in the shape that the generator gives it. */
export interface Order {
  id: number;
  total: number;
}

export interface PrismaPromise<T> extends Promise<T> {
  readonly [Symbol.toStringTag]: 'PrismaPromise';
}

type Unwrapped<P extends PrismaPromise<unknown>[]> = {
  [K in keyof P]: P[K] extends PrismaPromise<infer T> ? T : never;
};

interface OrderWhere {
  id?: number;
}

export interface OrderDelegate {
  create(args: { data: { total: number } }): PrismaPromise<Order>;
  createMany(args: { data: { total: number }[] }): PrismaPromise<{ count: number }>;
  update(args: { where: OrderWhere; data: { total?: number } }): PrismaPromise<Order>;
  updateMany(args: { where: OrderWhere; data: { total?: number } }): PrismaPromise<{ count: number }>;
  delete(args: { where: OrderWhere }): PrismaPromise<Order>;
  findUnique(args: { where: OrderWhere }): PrismaPromise<Order | null>;
  findMany(args?: { where?: OrderWhere }): PrismaPromise<Order[]>;
  count(args?: { where?: OrderWhere }): PrismaPromise<number>;
}

type Denied = '$connect' | '$disconnect' | '$on' | '$transaction' | '$extends';

export namespace Prisma {
  export type TransactionClient = Omit<PrismaClient, Denied>;
  export interface TransactionOptions {
    maxWait?: number;
    timeout?: number;
    isolationLevel?: 'ReadCommitted' | 'RepeatableRead' | 'Serializable';
  }
}

export class PrismaClient {
  constructor(options?: { datasourceUrl?: string });
  readonly order: OrderDelegate;
  $extends(extension: object): ExtendedClient;
  $connect(): Promise<void>;
  $disconnect(): Promise<void>;
  $transaction<P extends PrismaPromise<unknown>[]>(
    all: [...P],
    options?: Prisma.TransactionOptions,
  ): Promise<Unwrapped<P>>;
  $transaction<R>(
    fn: (tx: Omit<PrismaClient, Denied>) => Promise<R>,
    options?: Prisma.TransactionOptions,
  ): Promise<R>;
  $executeRaw(query: TemplateStringsArray, ...values: unknown[]): PrismaPromise<number>;
  $queryRaw<T = unknown>(query: TemplateStringsArray, ...values: unknown[]): PrismaPromise<T>;
  $executeRawUnsafe(query: string, ...values: unknown[]): PrismaPromise<number>;
  $queryRawUnsafe<T = unknown>(query: string, ...values: unknown[]): PrismaPromise<T>;
}

/** What the generator makes of an extension is no PrismaClient: neither is a part of one. */
export interface ExtendedClient {
  readonly order: OrderDelegate & { readonly extension: object };
  $transaction<R>(fn: (tx: Omit<ExtendedClient, '$transaction'>) => Promise<R>): Promise<R>;
  $queryRawUnsafe<T = unknown>(query: string, ...values: unknown[]): PrismaPromise<T>;
}
