/** `unbroker serve`: the old services' HTTP interfaces, answered from the jobs table. */
import { Command } from 'commander';
import { EXIT } from '../errors.js';
import { createMetrics, type Metrics } from '../jobs/worker-metrics.js';
import type { ShimServerOptions } from '../shims/server.js';
import { type Context, run } from './context.js';
import { loadContracts } from './contracts.js';
import { hearEnd } from './end-signals.js';
import { cannotListen, type MetricsFlags, openMetrics, portOf, withMetricsFlags } from './metrics.js';
import { print, printJson } from './output.js';
import { warnOfReadOnly } from './read-only.js';

interface ServeOptions extends MetricsFlags {
  readonly port?: string;
  readonly host?: string;
}

/** Two inserts under way, a few transactions with Idempotency-Keys, reads. */
const CONNECTIONS = 10;

export function serveCommand(): Command {
  const command = new Command('serve')
    .description('answer the old services’ HTTP interfaces from the jobs table')
    .option('--port <n>', 'port to listen on; 0 takes any free one (default 8080)')
    .option('--host <address>', 'address to listen on (default 127.0.0.1; any other needs serve.keys)');
  return withMetricsFlags(command).action(run(serve));
}

async function serve(context: Context, options: ServeOptions): Promise<number> {
  const { createShims } = await import('../shims/index.js');
  const { config } = context;
  const serveConfig = config.serve ?? {};
  const host = options.host ?? serveConfig.host ?? '127.0.0.1';
  const port = options.port === undefined ? (serveConfig.port ?? 8_080) : portOf(options.port, '--port');
  const pool = await context.migratedPool(CONNECTIONS);
  const metrics =
    options.metricsPort === undefined ? undefined : createMetrics({ db: pool, schema: context.schema });
  const server = createShims(
    {
      pool,
      store: context.store,
      serve: serveConfig,
      notify: config.notify,
      directory: context.directory,
      contracts: await loadContracts(serveConfig.contracts ?? [], context.directory),
      log: context.log,
      onAnswered: metrics && countAnswers(metrics),
    },
    host,
  );
  await warnOfReadOnly(context.log, pool, 'nothing is accepted');
  const metricsServer = await openMetrics(context, options, metrics, () => server.ready());
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
    hearEnd(end(EXIT.interrupted), end(EXIT.ok));
  });
  await server.close();
  await metricsServer?.close();
  return status;
}

/** By route, not by path: there are as many series as routes. */
function countAnswers({ registry }: Metrics): ShimServerOptions['onAnswered'] {
  const answers = registry.counter('unbroker_http_requests_total', 'Requests answered, by route and status.');
  const seconds = registry.histogram(
    'unbroker_http_request_seconds',
    'From the head of a request to its answer.',
  );
  return ({ method, route = '(none)', status, ms }) => {
    // A method that no route has is the client's word.
    const known = route === '(none)' ? '(any)' : method;
    answers.with({ method: known, route, status: String(status) }).value += 1;
    seconds.with({ method: known, route }).observe(ms / 1_000);
  };
}
