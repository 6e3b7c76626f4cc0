/**
 * What SARIF 2.1.0 requires of the parts that we emit, in the form of a JSON schema: names, types and allowed values,
 * and nothing beside them. Written from the standard, sections 3.13 to 3.49; the whole schema has ten times as much.
 */

const text = { type: 'string', minLength: 1 } as const;
const object = (properties: object, required: readonly string[]): object => ({
  type: 'object',
  properties,
  required,
  additionalProperties: false,
});
const message = object({ text }, ['text']);
const level = { enum: ['none', 'note', 'warning', 'error'] };

const location = object(
  {
    id: { type: 'integer', minimum: -1 },
    message,
    physicalLocation: object(
      {
        artifactLocation: object(
          // A relative reference: no scheme, no leading slash, no raw space or bar.
          {
            uri: {
              type: 'string',
              pattern: '^(?![A-Za-z][A-Za-z0-9+.-]*:)[^/\\s|\\\\"<>^`{}][^\\s|\\\\"<>^`{}]*$',
            },
            uriBaseId: text,
          },
          ['uri'],
        ),
        region: object(
          { startLine: { type: 'integer', minimum: 1 }, endLine: { type: 'integer', minimum: 1 } },
          ['startLine'],
        ),
      },
      ['artifactLocation'],
    ),
  },
  [],
);

const rule = object(
  {
    id: text,
    shortDescription: message,
    help: message,
    defaultConfiguration: object({ level }, []),
  },
  ['id'],
);

const result = object(
  {
    ruleId: text,
    ruleIndex: { type: 'integer', minimum: 0 },
    level,
    message,
    locations: { type: 'array', items: location },
    relatedLocations: { type: 'array', items: location },
    partialFingerprints: { type: 'object', additionalProperties: { type: 'string' } },
    properties: { type: 'object' },
  },
  ['message'],
);

const invocation = object(
  {
    executionSuccessful: { type: 'boolean' },
    toolExecutionNotifications: {
      type: 'array',
      items: object({ level, message, locations: { type: 'array', items: location } }, ['message']),
    },
  },
  ['executionSuccessful'],
);

const run = object(
  {
    tool: object(
      { driver: object({ name: text, rules: { type: 'array', items: rule, uniqueItems: true } }, ['name']) },
      ['driver'],
    ),
    columnKind: { enum: ['utf16CodeUnits', 'unicodeCodePoints'] },
    invocations: { type: 'array', items: invocation },
    results: { type: 'array', items: result },
  },
  ['tool'],
);

export const SARIF = object(
  { $schema: text, version: { const: '2.1.0' }, runs: { type: 'array', items: run } },
  ['version', 'runs'],
);
