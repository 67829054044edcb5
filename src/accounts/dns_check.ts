import { isIPv4 } from "node:net";
import {
  type DnsAnswer,
  type DnsFailure,
  type DnsQuestion,
  type DnsRecordType,
  queryDns,
} from "../platform/dns_query.ts";
import { isHostName } from "./host_names.ts";

/** Checks whether a reseller's domain points at us, and if not, what to change. Touches no table. Source: DOM-1, DOM-2. */

/** Values of one record that are stored and shown, and characters of each: the domain's owner can write anything there. */
const VALUES_MAX = 10;
const VALUE_CHARS_MAX = 253;
const RESOLVERS_MAX = 8;
const TIMEOUT_MS_DEFAULT = 3000;
const OWNERSHIP_VALUE = /^[\w.:=+/-]{1,200}$/;
const UNASKED: DnsAnswer = { failure: "silent", records: [] };

export type DnsStatus = "ok" | "wrong" | "missing" | "unexpected" | "unanswered";
/** One record as seen by one resolver. `found`: ours first; `foundMore`: how many more there are, not listed. */
export type DnsRecordReport = {
  type: DnsRecordType;
  name: string;
  expected: string[];
  found: string[];
  foundMore: number;
  status: DnsStatus;
  /** Why there is no answer; null when there is one. */
  failure: DnsFailure | null;
};
/** A, AAAA and CNAME of the host itself; TXT only if the name must be proved. */
export type DnsResolverReport = { resolver: string; records: DnsRecordReport[] };

/** One step for the DNS administrator. `keep`: our addresses that are already there. */
export type DnsTodo =
  | { kind: "delete_cname"; target: string }
  | { kind: "delete_aaaa"; value: string }
  | { kind: "delete_a"; value: string; keep: string[] }
  | { kind: "change_a"; from: string; to: string }
  | { kind: "add_a"; value: string }
  | { kind: "change_txt"; name: string; from: string; to: string }
  | { kind: "add_txt"; name: string; value: string }
  | { kind: "waiting_for_resolver"; resolver: string; seenBy: string[]; types: DnsRecordType[] }
  | { kind: "resolver_silent"; resolver: string; types: DnsRecordType[]; failure: DnsFailure };

/**
 * Plain JSON. `ok`: every resolver answered, and all records are right. `wrong`: at least one resolver saw a wrong record. `unknown`:
 * no wrong record was seen, but some answers are missing. `todo`: in this order: delete, change, add, wait.
 */
export type DnsReport = {
  verdict: "ok" | "wrong" | "unknown";
  resolvers: DnsResolverReport[];
  todo: DnsTodo[];
  /** Set if a name beside the host, which nobody has set, leads to us too. */
  wildcard?: true;
};

type TxtRecord = { name: string; value: string };

export type DnsCheckOptions = {
  host: string;
  /** Our addresses: the host must have all of them as A records, and no others. */
  addresses: readonly string[];
  /** The TXT record that proves ownership; null: the name is not contested. */
  txt: TxtRecord | null;
  /**
   * A name beside the host that nobody has set. If it leads to us, a wildcard record does, and whoever knows that could claim any name
   * below it: then `txt` is needed although the name is not contested. Left out: not asked.
   */
  beside?: { name: string; txt: TxtRecord };
  /** As in "1.1.1.1" or "127.0.0.1:5353". All must agree. */
  resolvers: readonly string[];
  /** For the whole check. */
  timeoutMs?: number;
};

/** The values of one record; with a failure they are not known. */
type Observation = { failure: DnsFailure | null; found: string[] };
type Wanted = DnsQuestion & { expected: string[] };

/** Asks every resolver for every record, concurrently. Throws Error for invalid options, never for an answer. */
export async function checkDns(options: DnsCheckOptions): Promise<DnsReport> {
  assertValid(options);
  const { host, addresses, txt, beside, resolvers, timeoutMs = TIMEOUT_MS_DEFAULT } = options;
  const wanted: Wanted[] = [
    { type: "A", name: host, expected: [...new Set(addresses)] },
    { type: "AAAA", name: host, expected: [] },
    { type: "CNAME", name: host, expected: [] },
  ];
  const proof = txt ?? beside?.txt;
  if (proof) wanted.push({ type: "TXT", name: proof.name, expected: [proof.value] });
  const probe: DnsQuestion[] = beside ? [{ type: "A", name: beside.name }] : [];
  const seen = await Promise.all(
    resolvers.map(async (resolver) => {
      const answers = await queryDns(resolver, [...wanted, ...probe], timeoutMs);
      const found = answers[wanted.length]?.records ?? [];
      const isCovered = found.some(({ type, value }) => type === "A" && addresses.includes(value));
      return { resolver, isCovered, observed: observe(host, answers) };
    }),
  );
  const wildcard = seen.some(({ isCovered }) => isCovered);
  const needed = txt || wildcard ? wanted : wanted.filter(({ type }) => type !== "TXT");
  const reports = seen.map(({ resolver, observed }) => ({
    resolver,
    records: needed.map((record) => judge(record, observed[record.type])),
  }));
  return {
    verdict: verdictOf(reports),
    resolvers: reports,
    todo: [...changesOf(reports), ...waitsOf(reports)],
    ...(wildcard && { wildcard }),
  };
}

/** Whether a value from the database is a report of this release's form. */
export function isDnsReport(value: unknown): value is DnsReport {
  if (typeof value !== "object" || value === null) return false;
  if (!("verdict" in value && "resolvers" in value && "todo" in value)) return false;
  const { verdict, resolvers, todo } = value;
  return VERDICTS.includes(verdict) && Array.isArray(resolvers) && Array.isArray(todo);
}
const VERDICTS: readonly unknown[] = ["ok", "wrong", "unknown"] satisfies DnsReport["verdict"][];

function assertValid({
  host,
  addresses,
  txt,
  beside,
  resolvers,
  timeoutMs = TIMEOUT_MS_DEFAULT,
}: DnsCheckOptions): void {
  if (!isHostName(host)) throw new Error(`"${host}" is not the name of a host.`);
  if (addresses.length < 1 || addresses.length > VALUES_MAX || !addresses.every((address) => isIPv4(address)))
    throw new Error(`A DNS check needs 1 to ${VALUES_MAX} IPv4 addresses of ours.`);
  if (resolvers.length < 1 || resolvers.length > RESOLVERS_MAX)
    throw new Error(`A DNS check needs 1 to ${RESOLVERS_MAX} resolvers.`);
  if ([txt, beside?.txt].some((record) => record && !OWNERSHIP_VALUE.test(record.value)))
    throw new Error("The value of the TXT record must be a plain token.");
  if (!(timeoutMs > 0)) throw new Error("The time for a DNS check must be above 0 ms.");
}

/** The records at the name itself, from the answers in the order of the questions. */
function observe(host: string, answers: DnsAnswer[]): Record<DnsRecordType, Observation> {
  const [a = UNASKED, aaaa = UNASKED, cname = UNASKED, txt = UNASKED] = answers;
  const atHost = ({ records }: DnsAnswer, type: DnsRecordType) =>
    unique(records.filter((record) => record.type === type && record.name === host).map(({ value }) => value));
  // Every answer about a name includes its CNAME, so one answer of the three is enough.
  const aboutHost = [a, aaaa, cname];
  const targets = unique(aboutHost.flatMap((answer) => atHost(answer, "CNAME")));
  const isKnown = aboutHost.some(({ failure }) => failure === null);
  // A CNAME excludes other records: addresses in the same answer belong to its target.
  const beside = targets.length > 0 ? { failure: null, found: [] } : undefined;
  return {
    A: beside ?? { failure: a.failure, found: atHost(a, "A") },
    AAAA: beside ?? { failure: aaaa.failure, found: atHost(aaaa, "AAAA") },
    CNAME: { failure: isKnown ? null : cname.failure, found: targets },
    // The proof may be behind a CNAME: only the name's owner can have set that.
    TXT: {
      failure: txt.failure,
      found: unique(txt.records.filter(({ type }) => type === "TXT").map(({ value }) => value)),
    },
  };
}

function judge({ type, name, expected }: Wanted, { failure, found }: Observation): DnsRecordReport {
  const ours = expected.filter((value) => found.includes(value));
  // Sorted, so that a resolver that turns its lists round does not look like a change.
  const others = found.filter((value) => !expected.includes(value)).sort();
  return {
    type,
    name,
    expected,
    found: [...ours, ...others].slice(0, VALUES_MAX).map(shorten),
    foundMore: Math.max(0, found.length - VALUES_MAX),
    status: failure
      ? "unanswered"
      : statusOf(type, { isLacking: ours.length < expected.length, hasOthers: others.length > 0 }),
    failure,
  };
}

function statusOf(
  type: DnsRecordType,
  { isLacking, hasOthers }: { isLacking: boolean; hasOthers: boolean },
): DnsStatus {
  if (isLacking) return hasOthers ? "wrong" : "missing";
  // Other TXT records are allowed.
  return hasOthers && type !== "TXT" ? "unexpected" : "ok";
}

function verdictOf(reports: DnsResolverReport[]): DnsReport["verdict"] {
  const records = reports.flatMap((report) => report.records);
  if (records.some(isWrong)) return "wrong";
  return records.every(({ status }) => status === "ok") ? "ok" : "unknown";
}

/** What to change in the DNS: deletions first, since nothing can be added next to a CNAME. */
function changesOf(reports: DnsResolverReport[]): DnsTodo[] {
  return (["CNAME", "AAAA", "A", "TXT"] as const).flatMap((type) => {
    const seen = reports.flatMap(({ records }) => records.filter((record) => record.type === type));
    const [first, ...others] = seen.filter(isWrong);
    // If one resolver sees the right record, it has been set, and the others will see it later.
    if (!first || seen.some(({ status }) => status === "ok")) return [];
    return stepsFor({ ...first, found: unique([first, ...others].flatMap(({ found }) => found)) });
  });
}

function stepsFor({ type, name, expected, found }: DnsRecordReport): DnsTodo[] {
  const lacking = expected.filter((value) => !found.includes(value));
  const extra = found.filter((value) => !expected.includes(value));
  if (type === "CNAME") return extra.map((target) => ({ kind: "delete_cname", target }));
  if (type === "AAAA") return extra.map((value) => ({ kind: "delete_aaaa", value }));
  const [only, ...more] = extra;
  if (type === "TXT") {
    const isChange = only !== undefined && more.length === 0;
    return lacking.map((value) =>
      isChange ? { kind: "change_txt", name, from: only, to: value } : { kind: "add_txt", name, value },
    );
  }
  const keep = expected.filter((value) => found.includes(value));
  const deletions = extra.slice(lacking.length).map((value): DnsTodo => ({ kind: "delete_a", value, keep }));
  const rest = lacking.map((value, i): DnsTodo => {
    const from = extra[i];
    return from === undefined ? { kind: "add_a", value } : { kind: "change_a", from, to: value };
  });
  return [...deletions, ...rest];
}

/** The resolvers to wait for: those that do not see yet what another one does, and those that did not answer. */
function waitsOf(reports: DnsResolverReport[]): DnsTodo[] {
  const resolversThatSee = (type: DnsRecordType) =>
    reports.filter(({ records }) => records.some((record) => record.type === type && record.status === "ok"));
  const late = reports.flatMap(({ resolver, records }): DnsTodo[] => {
    const types = records
      .filter((record) => isWrong(record) && resolversThatSee(record.type).length > 0)
      .map(({ type }) => type);
    const seenBy = unique(types.flatMap(resolversThatSee).map((report) => report.resolver));
    return types.length > 0 ? [{ kind: "waiting_for_resolver", resolver, seenBy, types }] : [];
  });
  const silent = reports.flatMap(({ resolver, records }): DnsTodo[] => {
    const unanswered = records.filter(({ status }) => status === "unanswered");
    const failure = unanswered[0]?.failure;
    return failure ? [{ kind: "resolver_silent", resolver, types: unanswered.map(({ type }) => type), failure }] : [];
  });
  return [...late, ...silent];
}

function isWrong({ status }: DnsRecordReport): boolean {
  return status !== "ok" && status !== "unanswered";
}

function shorten(value: string): string {
  return value.length > VALUE_CHARS_MAX ? `${value.slice(0, VALUE_CHARS_MAX - 3)}...` : value;
}

function unique(values: string[]): string[] {
  return [...new Set(values)];
}
