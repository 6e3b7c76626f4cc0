/**
 * Counters, gauges and histograms, and their text for Prometheus (exposition format 0.0.4). Written here rather than
 * taken from a library because a job passes four of them and costs this process a few microseconds in all: a series is
 * an object that its owner keeps, and counting is adding to a field of it. It refuses to know what is counted.
 */

export interface Counter {
  value: number;
}

export interface Histogram {
  /** Seconds. */
  observe(value: number): void;
}

export interface Sample {
  readonly labels: Labels;
  readonly value: number;
}

export type Labels = Readonly<Record<string, string>>;

/** In seconds: from a handler that does nothing to one that takes an hour. */
export const SECONDS = [
  0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600,
] as const;

export const METRICS_CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** A metric: what writes its samples. */
interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  lines(): string[];
}

/** A counter or histogram with labels: one series for each combination asked for. Who asks bounds how many there are. */
export interface SeriesOf<Series> {
  with(labels: Labels): Series;
}

export class Registry {
  readonly #families = new Map<string, Family>();

  counter(name: string, help: string): SeriesOf<Counter> {
    const { series, with: withLabels } = seriesOf((): Counter => ({ value: 0 }));
    const lines = (): string[] => [...series].map(([labels, { value }]) => line(name, labels, value));
    this.#add({ name, help, type: 'counter', lines });
    return { with: withLabels };
  }

  /** Cumulative buckets are added up when it is read; an observation touches one. */
  histogram(name: string, help: string, bounds: readonly number[] = SECONDS): SeriesOf<Histogram> {
    const { series, with: withLabels } = seriesOf(() => new Buckets(bounds));
    this.#add({
      name,
      help,
      type: 'histogram',
      lines: () => [...series].flatMap(([labels, buckets]) => buckets.lines(name, labels)),
    });
    return { with: withLabels };
  }

  /** `read` answers what the samples are now; none when it is not known. */
  gauge(name: string, help: string, read: () => readonly Sample[]): void {
    const lines = (): string[] => read().map(({ labels, value }) => line(name, text(labels), value));
    this.#add({ name, help, type: 'gauge', lines });
  }

  /** What a scrape gets. */
  text(): string {
    return [...this.#families.values()]
      .flatMap(({ name, help, type, lines }) => [
        `# HELP ${name} ${help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}`,
        `# TYPE ${name} ${type}`,
        ...lines(),
        '',
      ])
      .join('\n');
  }

  #add(family: Family): void {
    if (!/^[a-zA-Z_:][a-zA-Z0-9_:]*$/.test(family.name) || this.#families.has(family.name))
      throw new TypeError(`metric ${family.name} is there already or not a name`);
    this.#families.set(family.name, family);
  }
}

function seriesOf<Series>(make: () => Series): SeriesOf<Series> & { readonly series: Map<string, Series> } {
  const series = new Map<string, Series>();
  return {
    series,
    with(labels) {
      const key = text(labels);
      const found = series.get(key) ?? make();
      series.set(key, found);
      return found;
    },
  };
}

class Buckets implements Histogram {
  readonly #bounds: readonly number[];
  /** The last is above all bounds. */
  readonly #counts: number[];
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Array<number>(bounds.length + 1).fill(0);
  }

  observe(value: number): void {
    const bounds = this.#bounds;
    let at = 0;
    while (at < bounds.length && value > (bounds[at] as number)) at += 1;
    (this.#counts[at] as number) += 1;
    this.#sum += value;
  }

  lines(name: string, labels: string): string[] {
    let below = 0;
    const buckets = this.#counts.map((count, at) => {
      below += count;
      const le = `le="${this.#bounds[at] ?? '+Inf'}"`;
      return line(`${name}_bucket`, labels === '' ? le : `${labels},${le}`, below);
    });
    return [...buckets, line(`${name}_sum`, labels, this.#sum), line(`${name}_count`, labels, below)];
  }
}

const line = (name: string, labels: string, value: number): string =>
  `${name}${labels === '' ? '' : `{${labels}}`} ${value}`;

/** Values may be anything a kind may be: the three characters that end one early are escaped. */
const text = (labels: Labels): string =>
  Object.entries(labels)
    .map(
      ([name, value]) =>
        `${name}="${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`,
    )
    .join(',');
