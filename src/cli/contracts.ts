/** A team's own contracts: loads the modules that `serve.contracts` names and checks what they export. */
import { resolve } from 'node:path';
import { EXIT, UnbrokerError } from '../errors.js';
import type { Contract } from '../shims/contract.js';
import { loadModule, reason } from './load-module.js';

/** Built-in names are passed over. Throws `contract-unreadable`, `contract-invalid`. */
export async function loadContracts(names: readonly string[], directory: string): Promise<Contract[]> {
  const contracts: Contract[] = [];
  for (const name of names)
    if (name.startsWith('.')) contracts.push(...(await load(resolve(directory, name))));
  return contracts;
}

async function load(path: string): Promise<Contract[]> {
  let loaded: unknown;
  try {
    loaded = await loadModule(path);
  } catch (error) {
    throw new UnbrokerError('contract-unreadable', `A contract module cannot be loaded (${reason(error)})`, {
      hint: 'Check serve.contracts in the config and that the module runs by itself.',
      exitStatus: EXIT.badInput,
      cause: error,
    });
  }
  const list = Array.isArray(loaded) ? loaded : [loaded];
  if (list.length > 0 && list.every(isContract)) return list;
  throw new UnbrokerError('contract-invalid', 'A contract module does not export a contract', {
    hint: 'Write: export default defineContract({ name, service, routes, deliveries: [], errors })',
    exitStatus: EXIT.badInput,
  });
}

function isContract(value: unknown): value is Contract {
  if (typeof value !== 'object' || value === null) return false;
  const { name, service, routes, errors } = value as Record<string, unknown>;
  const whole = typeof name === 'string' && typeof errors === 'function' && Array.isArray(routes);
  return (
    whole && ['notification', 'scheduling', 'retry'].includes(service as string) && routes.every(isRoute)
  );
}

function isRoute(value: unknown): boolean {
  const { method, path, parse, render } = (value ?? {}) as Record<string, unknown>;
  return (
    [method, path].every((part) => typeof part === 'string') &&
    [parse, render].every((part) => typeof part === 'function')
  );
}
