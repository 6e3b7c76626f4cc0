/**
 * The plan as SARIF 2.1.0, for code scanning: a rule for each level and each reason, a result for each publish, a
 * notification for each file that was not looked at. Paths are relative to the repository.
 */

import type { Plan } from '../plan.js';
import type { PlanSite } from '../plan-site.js';
import { NO_SEAM, REASONS } from '../reasons.js';

interface Rule {
  readonly id: string;
  readonly shortDescription: { readonly text: string };
  readonly help: { readonly text: string };
  readonly defaultConfiguration: { readonly level: 'note' | 'warning' };
}

const LEVEL_RULES = {
  safe: 'publish-after-commit',
  wrap: 'publish-after-autocommit',
  thread: 'publish-in-a-called-function',
  refused: 'publish-after-commit',
} as const;

const FIXABLE: readonly Rule[] = [
  rule(
    'publish-after-commit',
    'A publish beside a commit can be lost; a transaction is there to enqueue in',
    'Run: unbroker codemod apply',
    'warning',
  ),
  rule(
    'publish-after-autocommit',
    'A publish behind a write that committed by itself can be lost',
    'Run: unbroker codemod apply --level wrap',
    'warning',
  ),
  rule(
    'publish-in-a-called-function',
    'A publish in a function that a transaction calls can be lost; the transaction can be handed on to it',
    'Run: unbroker codemod apply --level thread',
    'warning',
  ),
];

const RULES: readonly Rule[] = [
  ...FIXABLE,
  ...REASONS.map((reason) =>
    rule(
      reason.code,
      reason.message.replace('{what}', 'the code'),
      reason.next,
      NO_SEAM.has(reason.code) ? 'note' : 'warning',
    ),
  ),
];

function rule(id: string, text: string, help: string, level: 'note' | 'warning'): Rule {
  return {
    id,
    shortDescription: { text: `${text}.` },
    help: { text: `${help}.` },
    defaultConfiguration: { level },
  };
}

export function renderSarif(plan: Plan): object {
  return {
    $schema: 'https://json.schemastore.org/sarif-2.1.0.json',
    version: '2.1.0',
    runs: [
      {
        tool: { driver: { name: 'unbroker codemod', rules: RULES } },
        columnKind: 'utf16CodeUnits',
        invocations: [
          {
            executionSuccessful: true,
            toolExecutionNotifications: [
              ...plan.skipped.map((s) => ({
                level: 'warning',
                message: { text: `Not looked at: ${s.reason} (${s.detail}).` },
                locations: [place(s.path)],
              })),
              ...(plan.degraded === null
                ? []
                : [{ level: 'warning', message: { text: `Degraded: ${plan.degraded.why}.` } }]),
            ],
          },
        ],
        results: plan.sites.map(result),
      },
    ],
  };
}

function result(site: PlanSite): object {
  const id = site.reason ?? LEVEL_RULES[site.level];
  const index = RULES.findIndex((r) => r.id === id);
  return {
    ruleId: id,
    ruleIndex: index,
    level: RULES[index]?.defaultConfiguration.level ?? 'warning',
    message: { text: text(site) },
    locations: [place(site.file, site.line, site.endLine)],
    ...(site.thread.length === 0
      ? {}
      : {
          relatedLocations: site.thread.map((t, id) => ({
            id,
            message: { text: `${t.name} (${t.role})` },
            ...place(t.file, t.line, t.line),
          })),
        }),
    partialFingerprints: { 'unbroker/v1': site.fingerprint },
    properties: {
      verdict: site.level,
      kind: site.kind,
      function: site.function,
      confidence: site.confidence,
    },
  };
}

function text(site: PlanSite): string {
  const said = site.reason === null ? site.delta?.before.join('. ') : `${site.message}. ${site.next}`;
  return `${said ?? site.source}.`;
}

function place(path: string, startLine?: number, endLine?: number): object {
  return {
    physicalLocation: {
      artifactLocation: {
        uri: path.split('/').map(encodeURIComponent).join('/'),
        uriBaseId: '%SRCROOT%',
      },
      ...(startLine === undefined ? {} : { region: { startLine, endLine } }),
    },
  };
}
