import { describe, expect, test } from "bun:test";
import type { DnsReport } from "../../src/accounts/dns_check.ts";
import { instructionsFor } from "../../src/accounts/domain_records.ts";
import { accentNote, readHex } from "../../src/panel/web/pages/brand/brand_colour.ts";
import {
  type DomainDetails,
  doServersFail,
  instructionsText,
  leadOf,
  nextCheckText,
  readHost,
  recordRows,
  statusWords,
  stepStates,
  todoText,
} from "../../src/panel/web/pages/domains/domain_text.ts";
import { deviceName } from "../../src/panel/web/pages/settings/device_name.ts";
import { pathAfterSignIn } from "../../src/panel/web/pages/sign_in/next_path.ts";
import { strengthOf } from "../../src/panel/web/pages/sign_in/password_strength.ts";
import type { StepState } from "../../src/panel/web/ui/stepper.tsx";

/** Texts and rules of the panel's sign-in, settings, brand and domain pages. Source: PAN-3, PAN-7, PAN-12. */

const NOW = Date.parse("2026-11-21T17:48:00Z");
const OURS = "203.0.113.7";
const THEIRS = "198.51.100.4";

test("after sign-in the next page is a path of this panel; any other value opens Home", () => {
  const origin = "https://panel.acme.test";
  for (const next of ["/keys", "/usage?key=7&days=30", "/domains/ai.acme.test#top"])
    expect(pathAfterSignIn(next, origin)).toBe(next);
  for (const next of [
    null,
    "",
    "keys",
    "//evil.test/keys",
    "/\\evil.test",
    "/\t/evil.test",
    "/.//evil.test",
    "/..//evil.test",
    "/%2e//evil.test",
    "/keys/..//evil.test",
    "/.\\\\evil.test",
    "/keys/..\\\\evil.test",
    "https://evil.test/",
    "javascript:alert(1)",
    "/sign-in?next=/sign-in",
    "/invite/x",
    "/reset/x",
    "/api/panel/me",
    "/v1/models",
  ])
    expect([next, pathAfterSignIn(next, origin)]).toEqual([next, "/"]);
});

describe("the strength of a password", () => {
  const about = ["Nora New", "nora.new@acme.test", "Acme"];

  test("a password that is too short or too long is reported with the number of characters", () => {
    expect(strengthOf("short", about)).toEqual({ level: 0, words: "5 more characters." });
    expect(strengthOf("nine char", about).words).toBe("1 more character.");
    expect(strengthOf("x".repeat(203), about)).toEqual({ level: 0, words: "3 too many characters." });
  });

  test("repeats, sequences, common words and facts about the person are easy to guess", () => {
    for (const password of [
      "aaaaaaaaaaaaaa",
      "1234567890123",
      "qwertyuiopasdf",
      "Password2024!",
      "acmeacmeacmeacme",
      "Nora.New.2026",
      "abcabcabcabcabc",
      "letmein welcome",
    ])
      expect([password, strengthOf(password, about).level]).toEqual([password, 1]);
  });

  test("random letters are rated fair; unrelated words and long mixtures are rated strong", () => {
    expect(strengthOf("kfmwzplrtb", about).level).toBe(2);
    for (const password of ["tall lamp, brown ink", "h8#Lq2!vR9xZ", "зелёный чайник под дождём"])
      expect([password, strengthOf(password, about).level]).toEqual([password, 3]);
  });
});

test("a device is named by its browser and system", () => {
  const named = {
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0": "Firefox on Linux",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36 Edg/130.0.0.0":
      "Edge on Windows",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.0 Mobile/15E148 Safari/604.1":
      "Safari on iPhone",
    "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Mobile Safari/537.36":
      "Chrome on Android",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15":
      "Safari on Mac",
    "curl/8.5.0": "curl",
    "Mozilla/5.0": "Unknown device",
    "": "Unknown device",
    "<script>alert(1)</script>": "Unknown device",
  };
  for (const [userAgent, name] of Object.entries(named))
    expect([userAgent, deviceName(userAgent)]).toEqual([userAgent, name]);
});

describe("a colour", () => {
  test("is read with or without #, in three or six digits, in any case", () => {
    expect(["#0A7D5C", "0a7d5c", " #0af ", "#0a7d5", "teal", ""].map(readHex)).toEqual([
      "#0a7d5c",
      "#0a7d5c",
      "#00aaff",
      null,
      null,
      null,
    ]);
  });

  test("an adjustment is described; without one nothing is said", () => {
    expect(accentNote({ fillChange: "none", textChange: "none" })).toBeNull();
    expect(accentNote({ fillChange: "none", textChange: "darker" })).toBe("We darkened your colour for text.");
    expect(accentNote({ fillChange: "darker", textChange: "darker" })).toBe(
      "We darkened your colour for text and buttons.",
    );
    expect(accentNote({ fillChange: "softer", textChange: "darker" })).toBe(
      "We darkened your colour for text. We softened your colour for buttons.",
    );
  });
});

type Seen = Partial<Record<"A" | "AAAA" | "CNAME", string[]>> & { failure?: "silent" | "failed" };

/** A report as the DNS check writes it, one entry per resolver. */
function reportOf(todo: DnsReport["todo"], ...seen: Seen[]): DnsReport {
  const resolvers = seen.map(({ failure = null, ...found }, at) => ({
    resolver: `${at + 1}.1.1.1`,
    records: (["A", "AAAA", "CNAME"] as const).map((type) => {
      const expected = type === "A" ? [OURS] : [];
      const values = found[type] ?? [];
      const isRight = values.length === expected.length && values.every((value) => expected.includes(value));
      const amiss = values.length === 0 ? ("missing" as const) : ("unexpected" as const);
      const status = failure ? ("unanswered" as const) : isRight ? ("ok" as const) : amiss;
      return { type, name: "ai.acme.com", expected, found: values, foundMore: 0, status, failure };
    }),
  }));
  return { verdict: todo.length === 0 ? "ok" : "wrong", resolvers, todo };
}

function domainOf(facts: Partial<DomainDetails>): DomainDetails {
  return {
    host: "ai.acme.com",
    status: "verifying",
    byHand: false,
    contested: false,
    failures: 1,
    suspension: null,
    records: [{ type: "A", name: "ai.acme.com", label: "ai", value: OURS }],
    report: null,
    ...facts,
  };
}

describe("the instructions for DNS records", () => {
  test("to pass on, are in English those of the APIs", () => {
    const domain = domainOf({
      records: [
        { type: "A", name: "ai.acme.com", label: "ai", value: OURS },
        { type: "TXT", name: "_verify.ai.acme.com", label: "_verify.ai", value: "token" },
      ],
    });
    expect(instructionsText(domain)).toBe(instructionsFor(domain.host, domain.records));
  });

  test("deletions come first; deletions of one record type are one sentence", () => {
    const report = reportOf([
      { kind: "delete_aaaa", value: "2001:db8::1" },
      { kind: "delete_aaaa", value: "2001:db8::2" },
      { kind: "delete_a", value: THEIRS, keep: [OURS] },
    ]);
    expect(todoText(domainOf({ report })).steps).toEqual([
      'Delete the AAAA records of "ai": 2001:db8::1 and 2001:db8::2.',
      `Two A records: keep ${OURS}, delete ${THEIRS}.`,
    ]);
  });

  test("a wrong address is changed, a missing one added, a CNAME deleted first", () => {
    const steps = (todo: DnsReport["todo"]) => todoText(domainOf({ report: reportOf(todo) })).steps;
    expect(steps([{ kind: "change_a", from: THEIRS, to: OURS }])).toEqual([`Found ${THEIRS}. Change it to ${OURS}.`]);
    expect(
      steps([
        { kind: "delete_cname", target: "shops.example.com" },
        { kind: "add_a", value: OURS },
      ]),
    ).toEqual([
      "There is a CNAME to shops.example.com. Delete it, then add the A record.",
      `Add an A record for "ai": ${OURS}.`,
    ]);
  });

  test("the proof of a contested name is the current token, not the one that was checked", () => {
    const name = "_verify.ai.acme.com";
    const records = [
      { type: "A" as const, name: "ai.acme.com", label: "ai", value: OURS },
      { type: "TXT" as const, name, label: "_verify.ai", value: "new" },
    ];
    const report = reportOf([{ kind: "add_txt", name, value: "old" }], { A: [OURS] });
    const domain = domainOf({ contested: true, records, report });
    expect(todoText(domain).steps).toEqual(['Add a TXT record for "_verify.ai": new']);
    expect(recordRows(domain).at(-1)).toMatchObject({
      type: "TXT",
      values: ["new"],
      views: [[{ mark: "unknown", words: "not checked yet" }]],
    });
  });

  test("resolvers that do not see the records yet, or do not answer, need no action", () => {
    const report = reportOf(
      [
        { kind: "waiting_for_resolver", resolver: "2.1.1.1", seenBy: ["1.1.1.1"], types: ["A"] },
        { kind: "resolver_silent", resolver: "3.1.1.1", types: ["A"], failure: "silent" },
      ],
      { A: [OURS] },
      { A: [THEIRS] },
    );
    expect(todoText(domainOf({ report }))).toEqual({
      steps: [],
      waits: ["1.1.1.1 sees it, 2.1.1.1 not yet.", "3.1.1.1 did not answer. Your records may be fine; we ask again."],
    });
    expect(stepStates(domainOf({ report }))).toEqual(["done", "waiting", "todo", "todo"]);
  });

  test("if all resolvers fail, the domain's name servers are named, once", () => {
    const silent = (resolver: string): DnsReport["todo"][number] => ({
      kind: "resolver_silent",
      resolver,
      types: ["A"],
      failure: "failed",
    });
    const report = reportOf([silent("1.1.1.1"), silent("2.1.1.1")], { failure: "failed" }, { failure: "failed" });
    expect(todoText(domainOf({ report })).waits).toEqual(["The name servers of your domain do not answer."]);
    expect(doServersFail(reportOf([], { failure: "failed" }, { failure: "silent" }))).toBe(false);
  });

  test("each value that a resolver found is marked as right, wrong or absent", () => {
    const report = reportOf([], { A: [OURS, THEIRS] }, { A: [OURS], CNAME: ["shops.example.com"] });
    expect(recordRows(domainOf({ report }))).toMatchObject([
      {
        type: "A",
        values: [OURS],
        views: [
          [
            { mark: "ok", words: OURS },
            { mark: "bad", words: THEIRS },
          ],
          [{ mark: "ok", words: "ok" }],
        ],
      },
      { type: "AAAA", values: [], views: [[{ mark: "ok", words: "none" }], [{ mark: "ok", words: "none" }]] },
      { type: "CNAME", views: [[{ mark: "ok", words: "none" }], [{ mark: "bad", words: "shops.example.com" }]] },
    ]);
  });
});

describe("the state of a domain", () => {
  test("the steps are: records to set, wrong records, live", () => {
    expect(stepStates(domainOf({ status: "pending" }))[0]).toBe("current");
    const wrong = reportOf([{ kind: "change_a", from: THEIRS, to: OURS }]);
    expect(stepStates(domainOf({ report: wrong }))[0]).toBe("waiting");
    expect(stepStates(domainOf({ report: reportOf([{ kind: "add_a", value: OURS }]) }))[0]).toBe("waiting");
    expect(stepStates(domainOf({ status: "active", failures: 0 }))).toEqual(["done", "done", "done", "done"]);
  });

  test("the steps and the status mark agree in every state", () => {
    const marks = new Map<string, StepState>([
      ["live", "done"],
      ["pending", "waiting"],
      ["ending", "waiting"],
      ["failed", "bad"],
      ["suspended", "bad"],
      ["unused", "current"],
    ]);
    const wrong = reportOf([{ kind: "change_a", from: THEIRS, to: OURS }]);
    for (const status of ["pending", "verifying", "active", "failed", "suspended"] as const)
      for (const failures of [0, 1])
        for (const report of [null, wrong]) {
          const domain = domainOf({ status, failures, report });
          const { kind } = statusWords(domain);
          const said = stepStates(domain).filter((step) => step !== "todo");
          const loudest = said.find((step) => step === "bad" || step === "waiting") ?? said.at(-1);
          expect<unknown>([status, kind, loudest]).toEqual([status, kind, marks.get(kind)]);
        }
  });

  test("the next check is automatic while records are awaited, and otherwise on request", () => {
    const nextCheckAt = "2026-11-21T18:00:00Z";
    const text = (facts: Partial<DomainDetails>, at: string | null) =>
      nextCheckText({ ...domainOf(facts), nextCheckAt: at });
    for (const status of ["verifying", "active", "suspended"] as const)
      expect(text({ status }, nextCheckAt)).toBeNull();
    expect(text({ status: "verifying" }, null)).toBe("Soon");
    for (const status of ["pending", "failed"] as const) expect(text({ status }, null)).toBe("When you check");
    for (const status of ["active", "suspended"] as const)
      expect(text({ status, byHand: true }, null)).toBe("When you check");
  });

  test("a suspended domain shows since when, and why", () => {
    const suspension = { since: "2026-11-20T09:00:00Z", reason: null };
    const off = (facts: Partial<DomainDetails>) =>
      leadOf(domainOf({ status: "suspended", suspension, ...facts }), { now: NOW, zone: "UTC" });
    const report = reportOf([], { A: [THEIRS] });
    expect(off({ report })).toBe(
      "Off since 20 Nov: the A record changed. Restore it, and the domain goes live again automatically.",
    );
    expect(off({ contested: true })).toStartWith(
      "Off since 20 Nov: another account has proved that it owns this name.",
    );
    expect(off({ byHand: true, suspension: { ...suspension, reason: "Abuse" } })).toBe(
      'Off since 20 Nov: switched off by an admin, "Abuse". It is not switched on again automatically.',
    );
  });

  test("an active domain with wrong records shows a warning", () => {
    expect(statusWords(domainOf({ status: "active", failures: 1 }))).toEqual({
      kind: "ending",
      words: "Live, records changed",
    });
    expect(statusWords(domainOf({ status: "active", failures: 0 })).words).toBe("Live");
  });
});

test("a host is read from a pasted URL; other input is left for the server to refuse", () => {
  const read = {
    "AI.Acme.com": "ai.acme.com",
    "https://ai.acme.com/start?x=1": "ai.acme.com",
    " ai.acme.com. ": "ai.acme.com",
    "ai.münchen.de": "ai.xn--mnchen-3ya.de",
    "not a name": "not a name",
    "": "",
  };
  for (const [typed, host] of Object.entries(read)) expect([typed, readHost(typed)]).toEqual([typed, host]);
});
