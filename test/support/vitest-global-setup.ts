/**
 * Vitest's global setup: opens the door to the run's shared services and closes them after the last test. A run of
 * everything starts both servers at once; a run of chosen files starts what those files ask for.
 */
import type { TestProject } from 'vitest/node';
import { serveSharedServices } from './shared-services.js';

declare module 'vitest' {
  export interface ProvidedContext {
    servicesSocket: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const services = await serveSharedServices();
  project.provide('servicesSocket', services.socketPath);
  // Not in vitest's public types; if it ever goes away every run warms up, which costs seconds and breaks nothing.
  const { filenamePattern } = project.vitest as { filenamePattern?: readonly string[] };
  if (filenamePattern === undefined) services.warmUp();
  return () => services.close();
}
