import { t } from "@lingui/core/macro";
import type { DnsRecordReport, DnsReport, DnsTodo } from "../../../../accounts/dns_check.ts";
import type { HostStatus } from "../../../../accounts/domain_states.ts";
import { DNS } from "../../copy.ts";
import { formatDay } from "../../format.ts";
import type { StatusKind } from "../../ui/states.tsx";
import type { StepState } from "../../ui/stepper.tsx";

/** The text of the DNS doctor: a domain's status, what each resolver sees, and what to do. Pure functions. */

/** The parts of a domain that the text needs. */
export type DomainFacts = {
  host: string;
  status: HostStatus;
  byHand: boolean;
  contested: boolean;
  /** Consecutive checks that failed. */
  failures: number;
};
export type DomainDetails = DomainFacts & {
  suspension: { since: string; reason: string | null } | null;
  records: readonly { type: "A" | "TXT"; name: string; label: string; value: string }[];
  report: DnsReport | null;
};

/** The status for lists: a mark and a few words. */
export function statusWords({ status, byHand, contested, failures }: DomainFacts): { kind: StatusKind; words: string } {
  switch (status) {
    case "pending":
      return { kind: "unused", words: t`Not checked yet` };
    case "verifying":
      return { kind: "pending", words: t`Waiting for DNS` };
    case "active":
      if (failures > 0) return { kind: "ending", words: t`Live, records changed` };
      return { kind: "live", words: byHand ? t`Live, by hand` : t({ message: "Live", context: "state of a domain" }) };
    case "failed":
      return { kind: "failed", words: t`Not found in time` };
    case "suspended":
      if (byHand) return { kind: "suspended", words: t`Switched off` };
      return { kind: "suspended", words: contested ? t`Off, taken over` : t`Off, records changed` };
    case "removed":
      return { kind: "ended", words: t({ message: "Removed", context: "state of a domain" }) };
  }
}

/** When the next check runs, as text; null: at the planned time. */
export function nextCheckText({
  status,
  nextCheckAt,
}: Pick<DomainFacts, "status"> & { nextCheckAt: string | null }): string | null {
  if (nextCheckAt !== null) return null;
  // The domain's page says that we are looking for its records.
  return status === "verifying" ? t`Soon` : t`When you check`;
}

/** The lead of the domain's page: its state and what happens next. `now` in Unix milliseconds. */
export function leadOf(domain: DomainDetails, { now, zone }: { now: number; zone: string }): string {
  const { status, byHand, failures } = domain;
  switch (status) {
    case "pending":
      return t`Set the records below at your DNS provider, then check.`;
    case "verifying":
      return t`We look for your records for up to 72 hours. The domain goes live automatically once all resolvers see them.`;
    case "active":
      if (failures > 0)
        return t`Still live, but its records have changed. Restore them within a day, or the domain is switched off.`;
      return byHand
        ? t`Switched on by an admin. It is not checked automatically.`
        : t`The panel and the API are served there.`;
    case "failed":
      return t`We looked for 72 hours and did not find the records. Set them, then check again.`;
    case "suspended":
      return offText(domain, { now, zone });
    case "removed":
      return t`Removed. It is no longer served.`;
  }
}

function offText(
  { byHand, contested, report, suspension }: DomainDetails,
  { now, zone }: { now: number; zone: string },
): string {
  const why = byHand
    ? byHandText(suspension?.reason ?? null)
    : contested
      ? t`another account has proved that it owns this name. Prove that it is yours to get it back.`
      : changedText(report);
  if (suspension === null) return t`Off: ${why}`;
  return DNS.off(formatDay(suspension.since, zone, now), why);
}

function byHandText(reason: string | null): string {
  return reason
    ? t`switched off by an admin, "${reason}". It is not switched on again automatically.`
    : t`switched off by an admin. It is not switched on again automatically.`;
}

function changedText(report: DnsReport | null): string {
  const wrong = report?.resolvers.flatMap(({ records }) => records).find((record) => isWrong(record));
  return wrong
    ? t`the ${{ type: wrong.type }} record changed. Restore it, and the domain goes live again automatically.`
    : t`the records changed. Restore it, and the domain goes live again automatically.`;
}

/** Records → Check → Certificate → Live. Waiting is not shown as a failure, in line with the status. */
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

/** The steps to take in the DNS, in order, and what to wait for. */
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

/** `value`: the value to set now; the token may have changed since the check. */
type StepFacts = {
  label: string;
  value: string | null;
  values: (kind: "delete_a" | "delete_aaaa") => string[];
  keep: string[];
};

/** One step as text. Deletions of one kind share one sentence. null: nothing to do but wait. */
function stepText(todo: DnsTodo, { label, value, values, keep }: StepFacts): string | null {
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

/** Whether every resolver failed: then the domain's name servers are at fault, not the resolvers. */
export function doServersFail({ resolvers }: DnsReport): boolean {
  return resolvers.length > 0 && resolvers.every(({ records }) => records.every(({ failure }) => failure === "failed"));
}

/** What one resolver sees of a record: one entry per value. */
export type ResolverView = { mark: "ok" | "bad" | "unknown"; words: string }[];

/** What to set, in plain text, to pass on to the DNS administrator. Does not reveal the operator. */
export function instructionsText({ host, records }: Pick<DomainDetails, "host" | "records">): string {
  const listed = records.map(({ type, name, label, value }) => {
    const lines = [t`Type: ${type}`, t`Name: ${label} (in full: ${name})`, t`Value: ${value}`];
    return `${lines.map((line) => `   ${line}`).join("\n")}\n`;
  });
  return [
    t`DNS records for ${host}`,
    "",
    t`1. Delete every CNAME and AAAA record of ${host}, and every A record of it that is not listed below.`,
    "",
    t`2. Add these records:`,
    "",
    ...listed,
    t`3. Switch off any proxy or forwarding for these records: the name must resolve to this address.`,
    "",
    t`The change may take as long as the TTL of the old records. No other records of the domain need to change.`,
  ].join("\n");
}

export type RecordRow = {
  type: "A" | "AAAA" | "CNAME" | "TXT";
  label: string;
  /** The full name. */
  name: string;
  /** Empty: there must be no such record. */
  values: string[];
  /** One per resolver, in the order of the report. */
  views: ResolverView[];
};

/** The rows of the table: records to set, and records that must not exist. A CNAME row only if a resolver saw one. */
export function recordRows({ host, records, report }: DomainDetails): RecordRow[] {
  const label = records.find(({ name }) => name === host)?.label ?? host;
  const row = (type: RecordRow["type"], name = host, ownLabel = label): RecordRow => ({
    type,
    name,
    label: ownLabel,
    values: records.filter((record) => record.type === type && record.name === name).map(({ value }) => value),
    views: (report?.resolvers ?? []).map(({ records: seen }) => viewOf(seen.find((each) => each.type === type))),
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

/** undefined: the last check did not query this record, because the name was not contested then. */
function viewOf(record: DnsRecordReport | undefined): ResolverView {
  if (record === undefined) return [{ mark: "unknown", words: t`not checked yet` }];
  const { status, found, foundMore, expected, failure } = record;
  if (status === "unanswered")
    return [{ mark: "unknown", words: failure === "failed" ? t`servers fail` : t`no answer` }];
  if (status === "ok")
    return [{ mark: "ok", words: expected.length === 0 ? t({ message: "none", context: "DNS records" }) : t`ok` }];
  if (found.length === 0) return [{ mark: "bad", words: t({ message: "missing", context: "a DNS record" }) }];
  return [
    ...found.map((value): ResolverView[number] => ({ mark: expected.includes(value) ? "ok" : "bad", words: value })),
    ...(foundMore > 0 ? [{ mark: "bad" as const, words: t`${foundMore} more` }] : []),
  ];
}

function isWrong({ status }: DnsRecordReport): boolean {
  return status !== "ok" && status !== "unanswered";
}

/** The host name in what was typed or pasted, such as a URL. Invalid text is returned as it is, for the server to refuse. */
export function readHost(typed: string): string {
  const plain = typed.trim();
  const address = /^[a-z][a-z\d+.-]*:\/\//i.test(plain) ? plain : `https://${plain}`;
  if (plain === "" || /\s/.test(plain) || !URL.canParse(address)) return plain;
  return new URL(address).hostname.replace(/\.$/, "");
}
