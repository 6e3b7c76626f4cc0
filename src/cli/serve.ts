/** `unbroker serve`: the old services' HTTP interfaces, answered from the jobs table. */
import { Command } from 'commander';
import { EXIT, UnbrokerError } from '../errors.js';
import { type Context, run } from './context.js';
import { loadContracts } from './contracts.js';
import { print, printJson } from './output.js';

interface ServeOptions {
  readonly port?: string;
  readonly host?: string;
}

/** Two inserts under way, a few transactions with Idempotency-Keys, reads. */
const CONNECTIONS = 10;

export function serveCommand(): Command {
  return new Command('serve')
    .description('answer the old services’ HTTP interfaces from the jobs table')
    .option('--port <n>', 'port to listen on; 0 takes any free one (default 8080)')
    .option('--host <address>', 'address to listen on (default 127.0.0.1; any other needs serve.keys)')
    .action(run(serve));
}

async function serve(context: Context, options: ServeOptions): Promise<number> {
  const { createShims } = await import('../shims/index.js');
  const { config } = context;
  const serveConfig = config.serve ?? {};
  const host = options.host ?? serveConfig.host ?? '127.0.0.1';
  const port = options.port === undefined ? (serveConfig.port ?? 8_080) : portOf(options.port);
  const pool = await context.migratedPool(CONNECTIONS);
  const server = createShims(
    {
      pool,
      store: context.store,
      serve: serveConfig,
      notify: config.notify,
      directory: context.directory,
      contracts: await loadContracts(serveConfig.contracts ?? [], context.directory),
      log: context.log,
    },
    host,
  );
  const url = await server.listen({ host, port }).catch((error: unknown) => {
    throw cannotListen(error);
  });
  if (context.json) printJson({ url });
  else print(`unbroker listening on ${url}`);
  const status = await new Promise<number>((resolve) => {
    let ending = false;
    const end = (answer: number) => () => {
      // A second signal does not wait for requests under way; what is committed stays committed.
      if (ending) process.exit(EXIT.interrupted);
      ending = true;
      resolve(answer);
    };
    process.on('SIGINT', end(EXIT.interrupted)).on('SIGTERM', end(EXIT.ok));
  });
  await server.close();
  return status;
}

/** `name` is the option's. */
export function portOf(text: string, name = '--port'): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (port <= 65_535) return port;
  throw new UnbrokerError('config-invalid', `${name} is not valid`, {
    hint: 'It must be a whole number from 0 to 65535.',
    exitStatus: EXIT.badInput,
  });
}

export function cannotListen(error: unknown): unknown {
  const code = (error as { code?: unknown }).code;
  if (typeof code !== 'string' || !['EADDRINUSE', 'EACCES', 'EADDRNOTAVAIL', 'ENOTFOUND'].includes(code))
    return error;
  return new UnbrokerError('listen-failed', `The address cannot be listened on (${code})`, {
    hint: 'Give another --port or --host, or stop who uses it.',
    exitStatus: EXIT.badInput,
    cause: error,
  });
}
