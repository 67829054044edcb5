import type { DnsRecordReport, DnsReport, DnsTodo } from "../../../accounts/dns_check.ts";
import type { HostStatus } from "../../../accounts/domain_states.ts";
import { DNS } from "../copy.ts";
import { formatDay } from "../format.ts";
import type { StatusKind } from "../ui/states.tsx";
import type { StepState } from "../ui/stepper.tsx";

/** What the DNS doctor says: how a domain stands, what each resolver sees, and what to do, as pure functions. */

/** A domain as the panel's server describes it, as far as the words need it. */
export type DomainFacts = {
  host: string;
  status: HostStatus;
  byHand: boolean;
  contested: boolean;
  /** Checks in a row that saw something wrong. */
  failures: number;
};
export type DomainDetails = DomainFacts & {
  suspension: { since: string; reason: string | null } | null;
  records: readonly { type: "A" | "TXT"; name: string; label: string; value: string }[];
  report: DnsReport | null;
};

/** For lists: a mark and a few words. */
export function statusWords({ status, byHand, contested, failures }: DomainFacts): { kind: StatusKind; words: string } {
  switch (status) {
    case "pending":
      return { kind: "unused", words: "Not checked yet" };
    case "verifying":
      return { kind: "pending", words: "Waiting for DNS" };
    case "active":
      if (failures > 0) return { kind: "ending", words: "Live, records changed" };
      return { kind: "live", words: byHand ? "Live, by hand" : "Live" };
    case "failed":
      return { kind: "failed", words: "Not found in time" };
    case "suspended":
      if (byHand) return { kind: "suspended", words: "Switched off" };
      return { kind: "suspended", words: contested ? "Off, taken over" : "Off, records changed" };
    case "removed":
      return { kind: "ended", words: "Removed" };
  }
}

/** When the next check comes, in words; null: at the moment that is planned. */
export function nextCheckText({
  status,
  nextCheckAt,
}: Pick<DomainFacts, "status"> & { nextCheckAt: string | null }): string | null {
  if (nextCheckAt !== null) return null;
  // Its page says that we look for its records, and we do.
  return status === "verifying" ? "Soon, by itself" : "When you ask";
}

/** For its page: how it stands and how it goes on. `now` in unix milliseconds. */
export function leadOf(domain: DomainDetails, { now, zone }: { now: number; zone: string }): string {
  const { status, byHand, failures } = domain;
  switch (status) {
    case "pending":
      return "Set the records below where the DNS of this domain is run, then check.";
    case "verifying":
      return "We look for your records for up to 72 hours. It goes live by itself once all resolvers see them.";
    case "active":
      if (failures > 0) return "Still live, but its records have changed. Set them back within a day, or it goes off.";
      return byHand ? "Switched on by hand: no check comes by itself." : "Panel and API are answered there.";
    case "failed":
      return "We looked for 72 hours and did not find the records. Set them, then check again.";
    case "suspended":
      return offText(domain, { now, zone });
    case "removed":
      return "Removed. It is not answered any more.";
  }
}

function offText(
  { byHand, contested, report, suspension }: DomainDetails,
  { now, zone }: { now: number; zone: string },
): string {
  const why = byHand
    ? `switched off by hand${suspension?.reason ? `, "${suspension.reason}"` : ""}. No check switches it on again.`
    : contested
      ? "another account has proved this name since. Prove that it is yours to have it back."
      : `${changedText(report)} Set it back, and it goes live again by itself.`;
  if (suspension === null) return `Off: ${why}`;
  return DNS.off(formatDay(suspension.since, zone, now), why);
}

/** "the A record changed." */
function changedText(report: DnsReport | null): string {
  const amiss = report?.resolvers.flatMap(({ records }) => records).find((record) => isAmiss(record));
  return `the ${amiss ? `${amiss.type} record` : "records"} changed.`;
}

/** Records → Check → Certificate → Live. As loud as the status beside it: what we still wait for is no failure. */
export function stepStates(domain: Pick<DomainDetails, "status" | "byHand" | "failures" | "report">): StepState[] {
  const { status, byHand, failures, report } = domain;
  if (status === "active") return [failures > 0 ? "waiting" : "done", "done", "done", "done"];
  if (status === "suspended" && byHand) return ["done", "done", "done", "bad"];
  if (status === "failed" || status === "suspended") return ["bad", "todo", "todo", "todo"];
  if (status === "pending") return ["current", "todo", "todo", "todo"];
  if (report === null || report.todo.some(isForPerson)) return ["waiting", "todo", "todo", "todo"];
  return ["done", "waiting", "todo", "todo"];
}

function isForPerson({ kind }: DnsTodo): boolean {
  return kind !== "waiting_for_resolver" && kind !== "resolver_silent";
}

/** What to do in the DNS, in order, and what is only to be waited for. */
export function todoText({ report, records, host }: DomainDetails): { steps: string[]; waits: string[] } {
  if (report === null) return { steps: [], waits: [] };
  const recordOf = (name: string) => records.find((record) => record.name === name);
  const { todo } = report;
  const values = (kind: "delete_a" | "delete_aaaa") => todo.flatMap((each) => (each.kind === kind ? [each.value] : []));
  const keep = todo.flatMap((each) => (each.kind === "delete_a" ? each.keep : []));
  const said = new Set<string>();
  for (const each of todo) {
    const name = "name" in each ? each.name : host;
    const { label = name, value = null } = recordOf(name) ?? {};
    const step = stepText(each, { label, value, values, keep: [...new Set(keep)] });
    if (step !== null) said.add(step);
  }
  return { steps: [...said], waits: waitsText(report) };
}

/** `value`: what is to be set today; a token may be another one since the check. */
type Around = {
  label: string;
  value: string | null;
  values: (kind: "delete_a" | "delete_aaaa") => string[];
  keep: string[];
};

/** Deletions of one kind are one sentence, which each of them says. null: nothing to do but wait. */
function stepText(todo: DnsTodo, { label, value, values, keep }: Around): string | null {
  switch (todo.kind) {
    case "delete_cname":
      return DNS.cname(todo.target);
    case "delete_aaaa":
      return DNS.aaaa(label, values("delete_aaaa"));
    case "delete_a":
      return DNS.deleteA(values("delete_a"), keep);
    case "change_a":
      return DNS.wrongA(todo.from, todo.to);
    case "add_a":
      return DNS.addA(label, todo.value);
    case "change_txt":
      return DNS.changeTxt(label, value ?? todo.to);
    case "add_txt":
      return DNS.addTxt(label, value ?? todo.value);
    case "waiting_for_resolver":
    case "resolver_silent":
      return null;
  }
}

function waitsText(report: DnsReport): string[] {
  if (doServersFail(report)) return [DNS.serversFail];
  return report.todo.flatMap((todo) => {
    if (todo.kind === "waiting_for_resolver") return [DNS.notYet(todo.seenBy, todo.resolver)];
    return todo.kind === "resolver_silent" ? [DNS.noAnswer(todo.resolver)] : [];
  });
}

/** Every resolver asked the domain's own servers, and none got an answer: it is not the resolvers. */
export function doServersFail({ resolvers }: DnsReport): boolean {
  return resolvers.length > 0 && resolvers.every(({ records }) => records.every(({ failure }) => failure === "failed"));
}

/** What one resolver sees of a record: a line for each value. */
export type Sight = { mark: "ok" | "bad" | "unknown"; words: string }[];

export type RecordRow = {
  type: "A" | "AAAA" | "CNAME" | "TXT";
  label: string;
  /** The whole name. */
  name: string;
  /** Empty: there must be none. */
  values: string[];
  /** One a resolver, in the report's order. */
  sights: Sight[];
};

/** The table: what is to be set, and what is not to be there. A CNAME only where somebody saw one. */
export function recordRows({ host, records, report }: DomainDetails): RecordRow[] {
  const label = records.find(({ name }) => name === host)?.label ?? host;
  const row = (type: RecordRow["type"], name = host, ownLabel = label): RecordRow => ({
    type,
    name,
    label: ownLabel,
    values: records.filter((record) => record.type === type && record.name === name).map(({ value }) => value),
    sights: (report?.resolvers ?? []).map(({ records: seen }) => sightOf(seen.find((each) => each.type === type))),
  });
  const hasCname = report?.resolvers.some(({ records: seen }) =>
    seen.some(({ type, found }) => type === "CNAME" && found.length > 0),
  );
  const proof = records.find(({ type }) => type === "TXT");
  return [
    row("A"),
    row("AAAA"),
    ...(hasCname ? [row("CNAME")] : []),
    ...(proof ? [row("TXT", proof.name, proof.label)] : []),
  ];
}

/** undefined: the last check did not ask for it, since the name was not contested then. */
function sightOf(record: DnsRecordReport | undefined): Sight {
  if (record === undefined) return [{ mark: "unknown", words: "not asked yet" }];
  const { status, found, foundMore, expected, failure } = record;
  if (status === "unanswered") return [{ mark: "unknown", words: failure === "failed" ? "servers fail" : "no answer" }];
  if (status === "ok") return [{ mark: "ok", words: expected.length === 0 ? "none" : "ok" }];
  if (found.length === 0) return [{ mark: "bad", words: "not there" }];
  return [
    ...found.map((value): Sight[number] => ({ mark: expected.includes(value) ? "ok" : "bad", words: value })),
    ...(foundMore > 0 ? [{ mark: "bad" as const, words: `${foundMore} more` }] : []),
  ];
}

function isAmiss({ status }: DnsRecordReport): boolean {
  return status !== "ok" && status !== "unanswered";
}

/** The name in what was typed or pasted: an address, capitals, umlauts. What is none stays, for the server to say so. */
export function readHost(typed: string): string {
  const plain = typed.trim();
  const address = /^[a-z][a-z\d+.-]*:\/\//i.test(plain) ? plain : `https://${plain}`;
  if (plain === "" || /\s/.test(plain) || !URL.canParse(address)) return plain;
  return new URL(address).hostname.replace(/\.$/, "");
}
