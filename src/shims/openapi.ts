/**
 * What is mounted, as an OpenAPI 3.1 document: paths, methods, parameters, keys from the routes themselves; bodies and
 * answers as each contract describes them (described.ts). Pure.
 */
import type { AnyRoute, Contract } from './contract.js';
import { type DescribedRoute, type Schema, schemaName } from './described.js';

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
      schemas: schemasOf(contracts),
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        key: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
      },
    },
  };
}

function schemasOf(contracts: readonly Contract[]): Described {
  const entries = contracts.flatMap(({ name, described }) =>
    Object.entries(described?.schemas ?? {}).map(([of, schema]) => [schemaName(name, of), schema]),
  );
  return Object.fromEntries(entries) as Described;
}

const REST = 'rest';

function pathOf(path: string): string {
  return path.replace(/:([A-Za-z]\w*)/g, '{$1}').replace(/\*$/, `{${REST}}`);
}

function operationOf(contract: Contract, route: AnyRoute): Described {
  const described = contract.described?.routes[`${route.method} ${route.path}`];
  const body = bodyOf(route, described);
  return {
    operationId: operationId(contract, route),
    tags: [`${contract.name} ${contract.service}`],
    ...(described === undefined ? {} : { summary: described.summary }),
    ...(contract.auth === 'jwt' ? { description: 'The bearer token is a JWT, HS256.' } : {}),
    parameters: parametersOf(route, described),
    ...(body === null ? {} : { requestBody: body }),
    responses: answersOf(contract, described),
  };
}

const STORED = 'Done, or stored.';

function answersOf({ described }: Contract, route: DescribedRoute | undefined): Described {
  const error =
    described === undefined
      ? {}
      : { content: { [described.error.mediaType]: { schema: described.error.schema } } };
  const answers = Object.entries(route?.answers ?? {}).map(([status, answer]) => {
    const { description, schema, location } = answer;
    const mediaType = Number(status) < 400 ? 'application/json' : (described?.error.mediaType ?? '');
    const header = { description: 'Where it can be read.', schema: { type: 'string' } };
    const shown = {
      description,
      ...(location === true ? { headers: { Location: header } } : {}),
      ...(schema === undefined ? {} : { content: { [mediaType]: { schema } } }),
    };
    return [status, shown] as const;
  });
  return {
    ...(answers.length === 0 ? { '2XX': { description: STORED } } : Object.fromEntries(answers)),
    '4XX': { description: 'Refused; nothing was stored.', ...error },
    '503': { description: 'The database does not answer; send it again.', ...error },
  };
}

function operationId({ name, service }: Contract, { method, path }: AnyRoute): string {
  const words = path.replace(/[:*]/g, '').split(/[^A-Za-z0-9]+/);
  return [name, service, method.toLowerCase(), ...words].filter((word) => word !== '').join('-');
}

function parametersOf({ path, method }: AnyRoute, described: DescribedRoute | undefined): Described[] {
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
  const more = (where: 'query' | 'header', schemas: Readonly<Record<string, Schema>> = {}): Described[] =>
    Object.entries(schemas).map(([name, schema]) => ({ name, in: where, required: false, schema }));
  parameters.push(...more('query', described?.query), ...more('header', described?.headers));
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

function bodyOf({ method, body }: AnyRoute, described: DescribedRoute | undefined): Described | null {
  const usual = ['POST', 'PUT', 'PATCH'].includes(method) ? 'json' : 'none';
  switch (body ?? usual) {
    case 'none':
      return null;
    case 'any':
      return { required: false, content: { '*/*': { schema: {} } } };
    default: {
      const { schema = {}, examples = {} } = described?.request ?? {};
      const named = Object.entries(examples).map(([name, value]) => [name, { value }]);
      const content = named.length === 0 ? { schema } : { schema, examples: Object.fromEntries(named) };
      return { required: true, content: { 'application/json': content } };
    }
  }
}
