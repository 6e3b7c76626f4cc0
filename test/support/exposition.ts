/**
 * Reads Prometheus' text format (0.0.4) back, strictly: what its own parser would refuse is refused here. For tests
 * only.
 */
export interface ParsedSample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface ParsedFamily {
  readonly type: string;
  readonly help: string;
  readonly samples: ParsedSample[];
}

const NAME = '[a-zA-Z_:][a-zA-Z0-9_:]*';
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)/y;

/** Throws on the first line that is not one. */
export function parseExposition(text: string): Map<string, ParsedFamily> {
  if (!text.endsWith('\n')) throw new Error('the last line has no end');
  const families = new Map<string, ParsedFamily>();
  const seen = new Set<string>();
  let help: string | undefined;
  let current: [name: string, family: ParsedFamily] | undefined;
  for (const line of text.split('\n').filter((each) => each !== '')) {
    const comment = new RegExp(`^# (HELP|TYPE) (${NAME}) (.+)$`).exec(line);
    if (comment?.[1] === 'HELP') {
      help = comment[3];
      continue;
    }
    if (comment) {
      const [, , name = '', type = ''] = comment;
      if (!['counter', 'gauge', 'histogram'].includes(type)) throw new Error(`type in ${line}`);
      if (families.has(name)) throw new Error(`${name} comes twice`);
      current = [name, { type, help: help ?? '', samples: [] }];
      families.set(...current);
      continue;
    }
    const sample = new RegExp(`^(${NAME})(?:\\{(.*)\\})? (\\S+)$`).exec(line);
    if (!sample) throw new Error(`not a sample: ${line}`);
    const [, name = '', labels = '', value = ''] = sample;
    const number = value === '+Inf' ? Number.POSITIVE_INFINITY : Number(value);
    if (value === '' || Number.isNaN(number)) throw new Error(`value in ${line}`);
    const suffixes = current?.[1].type === 'histogram' ? ['_bucket', '_sum', '_count'] : [''];
    if (!current || !suffixes.some((suffix) => name === `${current?.[0]}${suffix}`))
      throw new Error(`${name} is outside its family`);
    if (seen.has(`${name}{${labels}}`)) throw new Error(`${line} comes twice`);
    seen.add(`${name}{${labels}}`);
    current[1].samples.push({ name, labels: parseLabels(labels), value: number });
  }
  return families;
}

function parseLabels(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  LABEL.lastIndex = 0;
  let at = 0;
  while (at < text.length) {
    LABEL.lastIndex = at;
    const match = LABEL.exec(text);
    if (!match) throw new Error(`labels at ${at} of ${text}`);
    labels[match[1] as string] = (match[2] as string).replace(/\\(.)/g, (_, c: string) =>
      c === 'n' ? '\n' : c,
    );
    at = LABEL.lastIndex;
  }
  return labels;
}

/** The one sample of that name with these labels; undefined when there is none. */
export function sampleOf(
  families: Map<string, ParsedFamily>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number | undefined {
  for (const { samples } of families.values()) {
    const found = samples.find(
      (sample) =>
        sample.name === name && Object.entries(labels).every(([key, value]) => sample.labels[key] === value),
    );
    if (found) return found.value;
  }
  return undefined;
}
