import { isIPv4 } from "node:net";
import {
  type DnsAnswer,
  type DnsFailure,
  type DnsQuestion,
  type DnsRecordType,
  queryDns,
} from "../platform/dns_query.ts";
import { isHostName } from "./host_names.ts";

/** Does a reseller's domain point at us, and if not, what is to be done? Source: rulings › Domains. */

/** Values of one record that are kept and shown, and characters of each: whoever runs the domain writes them. */
const VALUES_MAX = 10;
const VALUE_CHARS_MAX = 253;
const RESOLVERS_MAX = 8;
const TIMEOUT_MS_DEFAULT = 3000;
const OWNERSHIP_VALUE = /^[\w.:=+/-]{1,200}$/;
const UNASKED: DnsAnswer = { failure: "silent", records: [] };

export type DnsStatus = "ok" | "wrong" | "missing" | "unexpected" | "unanswered";
/** What one resolver says of one record. `found`: ours first; `foundMore`: how many more there are, not listed. */
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
/** A, AAAA and CNAME of the host itself; TXT only when ownership is asked for. */
export type DnsResolverReport = { resolver: string; records: DnsRecordReport[] };

/** One step for whoever runs the domain's DNS. `keep`: our addresses that stand there already. */
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
 * Plain JSON. `ok`: every resolver answered, and all is right. `wrong`: one of them saw something wrong. `unknown`:
 * nothing wrong was seen, but not all was answered; that is no change. `todo`: in order: delete, change, add, wait.
 */
export type DnsReport = { verdict: "ok" | "wrong" | "unknown"; resolvers: DnsResolverReport[]; todo: DnsTodo[] };

export type DnsCheckOptions = {
  host: string;
  /** Our A records: the host must have all of them and no other. */
  addresses: readonly string[];
  /** Proof of ownership, asked for only when the name is contested. */
  txt: { name: string; value: string } | null;
  /** As in "1.1.1.1" and "127.0.0.1:5353". All must agree. */
  resolvers: readonly string[];
  /** For everything. */
  timeoutMs?: number;
};

/** What is known of one record: nothing at all when there is a failure. */
type Sight = { failure: DnsFailure | null; found: string[] };
type Wanted = DnsQuestion & { expected: string[] };

/** Asks every resolver for every record, all at once. Throws Error for senseless options, never for an answer. */
export async function checkDns(options: DnsCheckOptions): Promise<DnsReport> {
  assertSensible(options);
  const { host, addresses, txt, resolvers, timeoutMs = TIMEOUT_MS_DEFAULT } = options;
  const wanted: Wanted[] = [
    { type: "A", name: host, expected: [...new Set(addresses)] },
    { type: "AAAA", name: host, expected: [] },
    { type: "CNAME", name: host, expected: [] },
  ];
  if (txt) wanted.push({ type: "TXT", name: txt.name, expected: [txt.value] });
  const reports = await Promise.all(
    resolvers.map(async (resolver) => {
      const sights = lookAt(host, await queryDns(resolver, wanted, timeoutMs));
      return { resolver, records: wanted.map((record) => judge(record, sights[record.type])) };
    }),
  );
  return { verdict: verdictOf(reports), resolvers: reports, todo: [...changesOf(reports), ...waitsOf(reports)] };
}

/** Whether a value from the database is a report: another release may have written another form. */
export function isDnsReport(value: unknown): value is DnsReport {
  if (typeof value !== "object" || value === null) return false;
  if (!("verdict" in value && "resolvers" in value && "todo" in value)) return false;
  const { verdict, resolvers, todo } = value;
  return VERDICTS.includes(verdict) && Array.isArray(resolvers) && Array.isArray(todo);
}
const VERDICTS: readonly unknown[] = ["ok", "wrong", "unknown"] satisfies DnsReport["verdict"][];

function assertSensible({ host, addresses, txt, resolvers, timeoutMs = TIMEOUT_MS_DEFAULT }: DnsCheckOptions): void {
  if (!isHostName(host)) throw new Error(`"${host}" is not the name of a host.`);
  if (addresses.length < 1 || addresses.length > VALUES_MAX || !addresses.every((address) => isIPv4(address)))
    throw new Error(`A DNS check needs 1 to ${VALUES_MAX} IPv4 addresses of ours.`);
  if (resolvers.length < 1 || resolvers.length > RESOLVERS_MAX)
    throw new Error(`A DNS check needs 1 to ${RESOLVERS_MAX} resolvers.`);
  if (txt && !OWNERSHIP_VALUE.test(txt.value)) throw new Error("The value of the TXT record must be a plain token.");
  if (!(timeoutMs > 0)) throw new Error("The time for a DNS check must be above 0 ms.");
}

/** What stands at the name itself, from the answers in the order of the questions. */
function lookAt(host: string, answers: DnsAnswer[]): Record<DnsRecordType, Sight> {
  const [a = UNASKED, aaaa = UNASKED, cname = UNASKED, txt = UNASKED] = answers;
  const atHost = ({ records }: DnsAnswer, type: DnsRecordType) =>
    unique(records.filter((record) => record.type === type && record.name === host).map(({ value }) => value));
  // A CNAME comes with every answer about its name, so one of the three is enough to know.
  const aboutHost = [a, aaaa, cname];
  const targets = unique(aboutHost.flatMap((answer) => atHost(answer, "CNAME")));
  const isKnown = aboutHost.some(({ failure }) => failure === null);
  // Beside a CNAME stands nothing else: addresses that come with it are its target's.
  const beside = targets.length > 0 ? { failure: null, found: [] } : undefined;
  return {
    A: beside ?? { failure: a.failure, found: atHost(a, "A") },
    AAAA: beside ?? { failure: aaaa.failure, found: atHost(aaaa, "AAAA") },
    CNAME: { failure: isKnown ? null : cname.failure, found: targets },
    // The proof may stand behind a CNAME: only the name's owner can have put it there.
    TXT: {
      failure: txt.failure,
      found: unique(txt.records.filter(({ type }) => type === "TXT").map(({ value }) => value)),
    },
  };
}

function judge({ type, name, expected }: Wanted, { failure, found }: Sight): DnsRecordReport {
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
  // Whatever else stands in TXT records is nobody's business.
  return hasOthers && type !== "TXT" ? "unexpected" : "ok";
}

function verdictOf(reports: DnsResolverReport[]): DnsReport["verdict"] {
  const records = reports.flatMap((report) => report.records);
  if (records.some(isAmiss)) return "wrong";
  return records.every(({ status }) => status === "ok") ? "ok" : "unknown";
}

/** What to change in the DNS: deletions first, since nothing can be added beside a CNAME. */
function changesOf(reports: DnsResolverReport[]): DnsTodo[] {
  return (["CNAME", "AAAA", "A", "TXT"] as const).flatMap((type) => {
    const seen = reports.flatMap(({ records }) => records.filter((record) => record.type === type));
    const [first, ...others] = seen.filter(isAmiss);
    // Once one resolver sees it right, it is right, and the others will.
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

/** Whom to wait for: resolvers that do not see yet what another one does, and those that said nothing. */
function waitsOf(reports: DnsResolverReport[]): DnsTodo[] {
  const seers = (type: DnsRecordType) =>
    reports.filter(({ records }) => records.some((record) => record.type === type && record.status === "ok"));
  const late = reports.flatMap(({ resolver, records }): DnsTodo[] => {
    const types = records.filter((record) => isAmiss(record) && seers(record.type).length > 0).map(({ type }) => type);
    const seenBy = unique(types.flatMap(seers).map((report) => report.resolver));
    return types.length > 0 ? [{ kind: "waiting_for_resolver", resolver, seenBy, types }] : [];
  });
  const silent = reports.flatMap(({ resolver, records }): DnsTodo[] => {
    const unanswered = records.filter(({ status }) => status === "unanswered");
    const failure = unanswered[0]?.failure;
    return failure ? [{ kind: "resolver_silent", resolver, types: unanswered.map(({ type }) => type), failure }] : [];
  });
  return [...late, ...silent];
}

function isAmiss({ status }: DnsRecordReport): boolean {
  return status !== "ok" && status !== "unanswered";
}

function shorten(value: string): string {
  return value.length > VALUE_CHARS_MAX ? `${value.slice(0, VALUE_CHARS_MAX - 3)}...` : value;
}

function unique(values: string[]): string[] {
  return [...new Set(values)];
}
