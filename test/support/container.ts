/**
 * A server in a container, when a Docker engine answers. testcontainers is loaded only then: it is heavy, and its own
 * search for an engine is slow to say no. The host ports are chosen here and fixed, so that a killed container comes
 * back where it was. It knows nothing of the servers.
 */
import { existsSync } from 'node:fs';
import { request } from 'node:http';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './ports.js';

export interface ContainerSpec {
  readonly image: string;
  readonly containerPorts: readonly number[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly command?: readonly string[];
  /** Path in the container → content. */
  readonly files?: Readonly<Record<string, string>>;
}

export interface ServerContainer {
  readonly host: string;
  /** In the order of `containerPorts`. */
  readonly hostPorts: readonly number[];
  kill(): Promise<void>;
  /** Sends the signal that the image stops with, or `signal`; waits until the container has stopped. */
  stop(signal?: string): Promise<void>;
  start(): Promise<void>;
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** Rejects with the output when the command fails. */
  exec(command: readonly string[]): Promise<string>;
  close(): Promise<void>;
}

const PING_WITHIN_MS = 2_000;
const STARTED_WITHIN_MS = 300_000;

/** True when an engine answers a ping on DOCKER_HOST or one of the usual sockets. */
export async function engineAnswers(): Promise<boolean> {
  const named = process.env['DOCKER_HOST'];
  if (named?.startsWith('tcp://')) {
    const { hostname, port } = new URL(named);
    return ping({ host: hostname, port: Number(port || 2375) });
  }
  const sockets = named?.startsWith('unix://')
    ? [named.slice('unix://'.length)]
    : [
        '/var/run/docker.sock',
        join(process.env['XDG_RUNTIME_DIR'] ?? '/nonexistent', 'docker.sock'),
        join(homedir(), '.docker/run/docker.sock'),
      ];
  for (const socketPath of sockets) {
    if (existsSync(socketPath) && (await ping({ socketPath }))) return true;
  }
  return false;
}

function ping(where: { socketPath: string } | { host: string; port: number }): Promise<boolean> {
  return new Promise((resolve) => {
    const asking = request({ ...where, path: '/_ping', timeout: PING_WITHIN_MS }, (answer) => {
      answer.resume();
      resolve(answer.statusCode === 200);
    });
    asking.on('timeout', () => asking.destroy());
    asking.on('error', () => resolve(false));
    asking.end();
  });
}

export async function startContainer(spec: ContainerSpec): Promise<ServerContainer> {
  const { GenericContainer, getContainerRuntimeClient, Wait } = await import('testcontainers');
  const hostPorts: number[] = [];
  for (const _ of spec.containerPorts) hostPorts.push(await freePort());
  const bindings = spec.containerPorts.map((container, at) => ({ container, host: hostPorts[at] ?? 0 }));
  const files = Object.entries(spec.files ?? {}).map(([target, content]) => ({
    target,
    content,
    mode: 0o644,
  }));
  let generic = new GenericContainer(spec.image)
    .withExposedPorts(...bindings)
    .withEnvironment({ ...spec.environment })
    .withCopyContentToContainer(files)
    .withWaitStrategy(Wait.forListeningPorts())
    .withStartupTimeout(STARTED_WITHIN_MS);
  if (spec.command) generic = generic.withCommand([...spec.command]);
  const started = await generic.start();
  const client = await getContainerRuntimeClient();
  const container = client.container.getById(started.getId());
  const ended = () => container.wait();
  return {
    host: started.getHost(),
    hostPorts,
    async kill() {
      const end = ended();
      await container.kill();
      await end;
    },
    async stop(signal) {
      if (signal === undefined) return void (await container.stop({ t: 30 }));
      const end = ended();
      await container.kill({ signal });
      await end;
    },
    start: async () => void (await container.start()),
    pause: async () => void (await container.pause()),
    resume: async () => void (await container.unpause()),
    async exec(command) {
      const { exitCode, output } = await client.container.exec(container, [...command]);
      if (exitCode !== 0) throw new Error(`${command[0]} ended with ${exitCode}: ${output.slice(-500)}`);
      return output;
    },
    close: async () => void (await started.stop({ timeout: 0, remove: true, removeVolumes: true })),
  };
}
