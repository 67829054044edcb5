import {
  againstChat,
  type Commit,
  type Figures,
  type HeldFigures,
  pairedDifference,
  pairedRatio,
  type Range,
  rangeOf,
} from "./figures.ts";
import type { Goal } from "./goals.ts";
import { CONTENDERS, type ContenderName, WORK, type Workload } from "./workloads.ts";

/** Figures as tables, for a terminal and for a page. */

type Table = { title: string; note: string; head: string[]; rows: string[][] };

const HEAD = [
  ...["", "a second", "× bare: min–median–max", "CPU µs", "× bare: min–median–max", "Postgres µs", "Redis µs"],
  ...["p50 ms", "p99", "first byte p50", "p99", "relay p50", "p99", "MB"],
];

/** What each measured contender does, and does not do, for a request. */
export function workTable(all: readonly Figures[]): Table[] {
  const measured = CONTENDERS.filter((name) => all.some((f) => f.contender === name));
  if (measured.length === 0) return [];
  const rows = measured.map((name) => {
    const { checksKey, keepsQuotaAndBalance, writesReceipt, limitsRate, parsesBodies, note } = WORK[name];
    const done = [checksKey, keepsQuotaAndBalance, writesReceipt, limitsRate, parsesBodies];
    return [name, ...done.map((is) => (is ? "yes" : "no")), note];
  });
  const head = ["", "API key", "quota, balance", "receipt", "rate limits", "parses bodies", ""];
  return [{ title: "What each does for a request", note: "", head, rows }];
}

const RESPONSES_HEAD = ["", "a second", "× chat", "CPU µs", "× chat", "Postgres µs", "p50 ms", "p99"];

/** Responses beside the chats of the same size. */
export function responsesTable(workloads: readonly Workload[], all: readonly Figures[]): Table[] {
  const compared = workloads.filter(({ against }) => against !== undefined);
  const rows = compared.map((workload) => {
    const own = all.filter((f) => f.workload === workload.name);
    const ratio = (pick: (f: Figures) => number | null) =>
      workload.name === workload.against ? "1" : threeOf(againstChat(all, workload, pick));
    return [
      ...[`${workload.name}: ${workload.what}`, middle(own, (f) => f.perSecond), ratio((f) => f.perSecond)],
      ...[middle(own, (f) => f.gatewayCpuUs), ratio((f) => f.gatewayCpuUs), middle(own, (f) => f.postgresCpuUs)],
      ...[middle(own, (f) => f.wholeMs.p50, 2), middle(own, (f) => f.wholeMs.p99, 2)],
    ];
  });
  if (rows.length === 0) return [];
  const note = "measured in turns with the chat of the same size; ratios: min–median–max of the rounds";
  return [{ title: "POST /v1/responses against chat", note, head: RESPONSES_HEAD, rows }];
}

const FIXED_HEAD = [
  ...["", "kept up", "p50 ms", "p99", "p99.9", "added p50", "p99", "p99.9", "CPU µs", "× bare", "Postgres µs"],
  ...["relay p50", "p99", "sent late p50", "p99"],
];

/** A table for each workload at a fixed rate; and the highest rate at which each contender kept up. */
export function fixedTables(workloads: readonly Workload[], all: readonly Figures[]): Table[] {
  const atRate = all.filter((f) => f.atRate !== null);
  const tables = workloads.flatMap(({ name, what, plan }) => {
    const own = atRate.filter((f) => f.workload === name);
    const contenders = [...new Set(own.map((f) => f.contender))];
    if (contenders.length === 0) return [];
    const time = plan.chunks === 0 ? "latency to the last byte" : "latency to the first byte of the body";
    return [
      {
        title: `${name}: ${what}`,
        note: `${time}, from the intended start of a request; medians of the rounds; "added" is less bare's of the same round; a contender that did not keep up has no latency`,
        head: FIXED_HEAD,
        rows: contenders.map((contender) => fixedRow(own, { workload: name, contender }, plan.chunks === 0)),
      },
    ];
  });
  return tables.length === 0 ? [] : [...tables, keptUpTable(workloads, atRate)];
}

const SHARES = ["p50", "p99", "p999"] as const;

function fixedRow(
  own: readonly Figures[],
  { workload, contender }: { workload: string; contender: ContenderName },
  isJson: boolean,
): string[] {
  const ours = own.filter((f) => f.contender === contender);
  const kept = own.filter(isKept);
  const ourKept = kept.filter((f) => f.contender === contender);
  const time = (f: Figures) => (isJson ? f.wholeMs : f.firstByteMs);
  const pair = { workload, contender, to: "bare" } as const;
  const added = SHARES.map((share) => {
    const range = contender === "bare" ? null : pairedDifference(kept, pair, (f) => time(f)[share]);
    return range === null ? "–" : range.median.toFixed(2);
  });
  const cpu = contender === "bare" ? null : pairedRatio(kept, pair, (f) => f.gatewayCpuUs);
  return [
    ...[contender, `${ourKept.length} of ${ours.length}`],
    ...SHARES.map((share) => middle(ourKept, (f) => time(f)[share], 2)),
    ...added,
    middle(ourKept, (f) => f.gatewayCpuUs),
    contender === "bare" ? "1" : threeOf(cpu),
    middle(ourKept, (f) => f.postgresCpuUs),
    ...(["p50", "p99"] as const).map((share) => middle(ourKept, (f) => f.relayMs?.[share] ?? null, 2)),
    ...(["p50", "p99"] as const).map((share) => middle(ourKept, (f) => f.atRate?.lateMs[share] ?? null, 2)),
  ];
}

function isKept({ atRate }: Figures): boolean {
  return atRate?.isCarried === true;
}

/** The highest rates at which a contender kept up in every round: of JSON, and of streams. */
function keptUpTable(workloads: readonly Workload[], atRate: readonly Figures[]): Table {
  const contenders = [...new Set(atRate.map((f) => f.contender))];
  const highest = (contender: ContenderName, isJson: boolean) => {
    const rates = workloads.flatMap(({ name, perSecond = 0, plan }) => {
      const rounds = atRate.filter((f) => f.workload === name && f.contender === contender);
      const isIt = rounds.length > 0 && (plan.chunks === 0) === isJson && rounds.every(isKept);
      return isIt ? [perSecond] : [];
    });
    return rates.length === 0 ? "none" : Math.max(...rates).toLocaleString("en");
  };
  return {
    title: "The highest of these rates at which each kept up in every round",
    note: "kept up: 98 % of the requests were answered when the measured time ended",
    head: ["", "JSON a second", "streams a second"],
    rows: contenders.map((contender) => [contender, highest(contender, true), highest(contender, false)]),
  };
}

/** A table for each workload that is compared with the bare proxy: medians over the rounds, and paired ratios. */
export function workloadTables(workloads: readonly Workload[], all: readonly Figures[]): Table[] {
  return workloads
    .filter(({ against, perSecond }) => against === undefined && perSecond === undefined)
    .map((workload) => ({ workload, own: all.filter((f) => f.workload === workload.name) }))
    .filter(({ own }) => own.length > 0)
    .map(({ workload: { name, what }, own }) => {
      const contenders = [...new Set(own.map((f) => f.contender))];
      return {
        title: `${name}: ${what}`,
        note: distance(own),
        head: HEAD,
        rows: contenders.map((c) => row(own, name, c)),
      };
    });
}

function row(own: readonly Figures[], workload: string, contender: ContenderName): string[] {
  const ours = own.filter((f) => f.contender === contender);
  const ratio = (pick: (f: Figures) => number | null) => {
    if (contender === "bare") return "1";
    return threeOf(pairedRatio(own, { workload, contender, to: "bare" }, pick));
  };
  return [
    contender,
    middle(ours, (f) => f.perSecond),
    ratio((f) => f.perSecond),
    middle(ours, (f) => f.gatewayCpuUs),
    ratio((f) => f.gatewayCpuUs),
    middle(ours, (f) => f.postgresCpuUs),
    middle(ours, (f) => f.redisCpuUs),
    middle(ours, (f) => f.wholeMs.p50, 2),
    middle(ours, (f) => f.wholeMs.p99, 2),
    middle(ours, (f) => f.firstByteMs.p50, 2),
    middle(ours, (f) => f.firstByteMs.p99, 2),
    middle(ours, (f) => f.relayMs?.p50 ?? null, 2),
    middle(ours, (f) => f.relayMs?.p99 ?? null, 2),
    middle(ours, (f) => f.residentMb, 0),
  ];
}

/** The median of the rounds. */
function middle(own: readonly Figures[], pick: (f: Figures) => number | null, digits = 1): string {
  const range = rangeOf(own.map(pick));
  return range === null ? "–" : range.median.toFixed(range.median >= 100 ? 0 : digits);
}

function threeOf(range: Range | null): string {
  return range === null ? "–" : `${range.min.toFixed(2)}–${range.median.toFixed(2)}–${range.max.toFixed(2)}`;
}

/** The load of provider and generator, which shows that they are not the bottleneck. */
function distance(own: readonly Figures[]): string {
  const rate = (contender: ContenderName) =>
    rangeOf(own.filter((f) => f.contender === contender).map((f) => f.perSecond))?.median;
  const load = (pick: (f: Figures) => number | null) =>
    rangeOf(own.filter((f) => f.contender === "tollgate").map(pick));
  const [direct, ours] = [rate("direct"), rate("tollgate")];
  const percent = (value: number | undefined) => (value === undefined ? "–" : `${Math.round(value * 100)} %`);
  const loads = `with tollgate the provider takes ${percent(load((f) => f.providerLoad)?.median)} of a core, the generator ${percent(load((f) => f.generatorLoad)?.median)}`;
  const far = direct && ours ? `direct is ${(direct / ours).toFixed(1)} × tollgate; ` : "";
  return load((f) => f.generatorLoad) === null ? far : far + loads;
}

export function heldTable(held: readonly HeldFigures[]): Table[] {
  if (held.length === 0) return [];
  const mb = (bytes: number) => (bytes / 1024 / 1024).toFixed(0);
  return [
    {
      title: `open: ${held[0]?.streams.toLocaleString("en")} streams open at once, a chunk a second`,
      note: "",
      head: ["", "at the start MB", "open MB", "closed MB", "KB a stream"],
      rows: held.map(({ contender, streams, startBytes, openBytes, endBytes }) => [
        ...[contender, mb(startBytes), mb(openBytes), mb(endBytes)],
        ((openBytes - startBytes) / streams / 1024).toFixed(1),
      ]),
    },
  ];
}

export function commitLine(commits: readonly Commit[]): string[] {
  const [p50, p99] = [rangeOf(commits.map((c) => c.ms.p50)), rangeOf(commits.map((c) => c.ms.p99))];
  if (p50 === null || p99 === null) return [];
  return [`one commit on this Postgres: p50 ${p50.median.toFixed(2)} ms, p99 ${p99.median.toFixed(2)} ms`];
}

/** `earlier`: the same goals as whole runs before this one measured them, a column each. */
export function goalsTable(goals: readonly Goal[], earlier: readonly (readonly Goal[])[] = []): Table {
  const runs = [...earlier, goals];
  const rows = goals.map(({ what, goal }) => {
    const of = runs.map((run) => run.find((one) => one.what === what));
    return [what, goal, ...of.map((one) => one?.measured ?? "–"), verdict(of.map((one) => one?.met ?? null))];
  });
  const columns = earlier.length === 0 ? ["measured"] : runs.map((_, i) => `run ${i + 1}`);
  return {
    title: "Goals",
    note: "median (smallest–largest) of the rounds; bun run bench:ledger measures the hot account",
    head: ["", earlier.length === 0 ? "goal" : `goal${LAST_RUNS}`, ...columns, ""],
    rows,
  };
}

/** The time of a commit differs between runs: a goal that depends on it uses the last run's. */
const LAST_RUNS = ", by the last run's commits";

function verdict(met: readonly (boolean | null)[]): string {
  const known = met.filter((one) => one !== null);
  const good = known.filter((one) => one).length;
  if (known.length === 0) return "not measured";
  if (good === known.length) return "met";
  return good === 0 ? "MISSED" : `met in ${good} of ${known.length}`;
}

/** In columns, for a terminal. */
export function asText({ title, note, head, rows }: Table): string {
  const lines = [head, ...rows];
  const widths = head.map((_, i) => Math.max(...lines.map((line) => line[i]?.length ?? 0)));
  const text = lines.map((line) =>
    line
      .map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0)))
      .join("  ")
      .trimEnd(),
  );
  return [`\n${title}`, ...text, ...(note === "" ? [] : [`(${note})`])].join("\n");
}

/** For a page. */
export function asMarkdown({ title, note, head, rows }: Table): string {
  const line = (cells: string[]) => `| ${cells.join(" | ")} |`;
  const rule = line(head.map((_, i) => (i === 0 ? "---" : "---:")));
  return [`### ${title}\n`, line(head), rule, ...rows.map(line), ...(note === "" ? [] : [`\n${note}.`]), ""].join("\n");
}
