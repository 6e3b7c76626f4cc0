/**
 * What is mounted, as an OpenAPI 3.1 document. Pure. Bodies are what a contract's own code reads, which no schema says;
 * so paths, methods, parameters, media types, keys and the answers that every route can give are described.
 */
import type { AnyRoute, Contract } from './contract.js';

type Described = Readonly<Record<string, unknown>>;

export function openApi(contracts: readonly Contract[], hasKeys: boolean): Described {
  const paths: Record<string, Record<string, Described>> = {};
  for (const contract of contracts)
    for (const route of contract.routes) {
      const path = pathOf(route.path);
      paths[path] = { ...paths[path], [route.method.toLowerCase()]: operationOf(contract, route) };
    }
  return {
    openapi: '3.1.0',
    info: {
      title: 'unbroker shims',
      version: '1',
      description: 'Interfaces of old services, answered from the jobs table.',
    },
    ...(hasKeys ? { security: [{ bearer: [] }, { key: [] }] } : {}),
    paths,
    components: {
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        key: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
      },
    },
  };
}

const REST = 'rest';

function pathOf(path: string): string {
  return path.replace(/:([A-Za-z]\w*)/g, '{$1}').replace(/\*$/, `{${REST}}`);
}

function operationOf(contract: Contract, route: AnyRoute): Described {
  const body = bodyOf(route);
  return {
    operationId: operationId(contract, route),
    tags: [`${contract.name} ${contract.service}`],
    ...(contract.auth === 'jwt' ? { description: 'The bearer token is a JWT, HS256.' } : {}),
    parameters: parametersOf(route),
    ...(body === null ? {} : { requestBody: body }),
    responses: {
      '2XX': { description: 'Done, or stored.' },
      '4XX': { description: 'Refused; nothing was stored.' },
      '503': { description: 'The database does not answer; send it again.' },
    },
  };
}

function operationId({ name, service }: Contract, { method, path }: AnyRoute): string {
  const words = path.replace(/[:*]/g, '').split(/[^A-Za-z0-9]+/);
  return [name, service, method.toLowerCase(), ...words].filter((word) => word !== '').join('-');
}

function parametersOf({ path, method }: AnyRoute): Described[] {
  const names = [...path.matchAll(/:([A-Za-z]\w*)/g)].map(([, name = '']) => name);
  const inPath = (name: string, description?: string): Described => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
    ...(description === undefined ? {} : { description }),
  });
  const parameters = names.map((name) => inPath(name));
  if (path.endsWith('*')) parameters.push(inPath(REST, 'Taken as it is sent, slashes and query included.'));
  if (method === 'GET') return parameters;
  const idempotencyKey = {
    name: 'Idempotency-Key',
    in: 'header',
    required: false,
    schema: { type: 'string', minLength: 1, maxLength: 255 },
    description: 'The first answer again, for a day.',
  };
  return [...parameters, idempotencyKey];
}

function bodyOf({ method, body }: AnyRoute): Described | null {
  const usual = ['POST', 'PUT', 'PATCH'].includes(method) ? 'json' : 'none';
  switch (body ?? usual) {
    case 'none':
      return null;
    case 'any':
      return { required: false, content: { '*/*': { schema: {} } } };
    default:
      return { required: true, content: { 'application/json': { schema: {} } } };
  }
}
