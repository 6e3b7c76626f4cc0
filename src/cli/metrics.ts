/** `--metrics-port` and `--metrics-host`, for the verbs that run until they are stopped. */
import type { Command } from 'commander';
import { EXIT, UnbrokerError } from '../errors.js';
import type { Metrics } from '../jobs/worker-metrics.js';
import { type MetricsServer, serveMetrics } from '../metrics-server.js';
import type { Context } from './context.js';
import { wholeOption } from './whole-option.js';

export interface MetricsFlags {
  readonly metricsPort?: string;
  readonly metricsHost: string;
}

export function withMetricsFlags(command: Command): Command {
  return command
    .option('--metrics-port <n>', 'serve /metrics, /livez and /readyz there; 0 takes any free one')
    .option('--metrics-host <address>', 'address for these; they have no keys', '127.0.0.1');
}

/** Undefined without --metrics-port. The port is in the log, for those who asked for 0. */
export async function openMetrics(
  context: Context,
  { metricsPort, metricsHost }: MetricsFlags,
  metrics: Pick<Metrics, 'text'> | undefined,
  ready: () => boolean | Promise<boolean>,
): Promise<MetricsServer | undefined> {
  if (metricsPort === undefined || metrics === undefined) return undefined;
  const port = portOf(metricsPort, '--metrics-port');
  const text = () => metrics.text();
  const server = await serveMetrics({ host: metricsHost, port, text, ready }).catch((error: unknown) => {
    throw cannotListen(error);
  });
  context.log.info({ listening: `${server.url}/metrics` }, 'metrics are served');
  return server;
}

/** `name` is the option's. */
export function portOf(text: string, name: string): number {
  return wholeOption(text, name, 0, 65_535);
}

export function cannotListen(error: unknown): unknown {
  const code = (error as { code?: unknown }).code;
  if (typeof code !== 'string' || !['EADDRINUSE', 'EACCES', 'EADDRNOTAVAIL', 'ENOTFOUND'].includes(code))
    return error;
  return new UnbrokerError('listen-failed', `The address cannot be listened on (${code})`, {
    hint: 'Give another port or address, or stop who uses it.',
    exitStatus: EXIT.badInput,
    cause: error,
  });
}
