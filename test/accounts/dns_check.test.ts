import { afterAll, expect, test } from "bun:test";
import { createSocket } from "node:dgram";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { denoProgram } from "../../scripts/test_deno.ts";
import { checkDns, type DnsCheckOptions, type DnsReport } from "../../src/accounts/dns_check.ts";
import { deadResolver, startDnsServer } from "../dns_server.ts";

const OURS = "203.0.113.7";
const SECOND = "203.0.113.8";
const THEIRS = "198.51.100.4";
const TOKEN = "8KdQ2vXw0pTz";
/** How long a silent resolver is waited for. The others answer within it, also on a busy machine. */
const SILENT_MS = 2_000;
/** A label and a name of maximum length. */
const LABEL = "l".repeat(63);
const LONG = `${[LABEL, LABEL, LABEL].join(".")}.${"m".repeat(253 - 3 * 64 - ".acme.test".length)}`;
const hostile: { close(): unknown }[] = [];
const many = Array.from({ length: 300 }, (_, i) => `10.0.${i >> 8}.${i & 255}`);

const records = [
  `right A ${OURS}`,
  `other A ${THEIRS}`,
  `extra A ${OURS}`,
  `extra A ${THEIRS}`,
  `pair A ${SECOND}`,
  `pair A ${OURS}`,
  `stray A ${OURS}`,
  "stray AAAA 2001:DB8:0:0:0:0:0:1",
  "alias CNAME Right",
  "dangling CNAME nothing",
  "circle CNAME circle",
  "hop CNAME alias",
  "text TXT hello",
  `_own.wrong TXT "somebody else's"`,
  '_own.noise TXT "v=spf1 -all"',
  `_own.noise TXT "${TOKEN.toLowerCase()}"`,
  `_own.among TXT "v=spf1 -all"`,
  `_own.among TXT "${TOKEN}"`,
  `_own.torn TXT "${TOKEN.slice(0, 5)}" "${TOKEN.slice(5)}"`,
  `_own.moved CNAME _own.among`,
  ...["wrong", "noise", "among", "torn", "moved", "absent", "control", "crowd"].map((host) => `${host} A ${OURS}`),
  `_own.control TXT "\\000\\027[31mred\\010\\255<b>"`,
  `_own.control TXT ${Array.from({ length: 40 }, () => `"${"y".repeat(255)}"`).join(" ")}`,
  ...Array.from({ length: 200 }, (_, i) => `_own.crowd TXT "a${i}"`),
  `_own.crowd TXT "${TOKEN}"`,
  ...many.map((address) => `many A ${address}`),
  `many A ${OURS}`,
  ...Array.from({ length: 40 }, (_, i) => `flood AAAA 2001:db8::${i + 1}`),
  `${LONG} A ${OURS}`,
  `longalias CNAME ${LONG}`,
  "below NS ns.elsewhere.test.",
];

const first = await startDnsServer(
  { "acme.test": records, "split.test": [`ai A ${OURS}`] },
  { broken: ["broken.test"] },
);
const second = await startDnsServer({
  "acme.test": [...records, `late A ${OURS}`],
  "split.test": [`ai A ${THEIRS}`, "ai AAAA 2001:db8::1", `gone A ${THEIRS}`],
});
const dead = await deadResolver();

afterAll(async () => {
  for (const server of hostile) server.close();
  await Promise.all([first.stop(), second.stop()]);
});

function options(host: string, more: Partial<DnsCheckOptions> = {}): DnsCheckOptions {
  return { host, addresses: [OURS], txt: null, resolvers: [first.resolver, second.resolver], ...more };
}

const check = (host: string, more: Partial<DnsCheckOptions> = {}) => checkDns(options(host, more));
const contested = (label: string): Partial<DnsCheckOptions> => ({
  txt: { name: `_own.${label}.acme.test`, value: TOKEN },
});

/** "A ok, AAAA ok, CNAME ok", of the resolver at `index`. */
function statuses(report: DnsReport, index = 0): string {
  return (report.resolvers[index]?.records ?? []).map(({ type, status }) => `${type} ${status}`).join(", ");
}

function found(report: DnsReport, type: string): string[] {
  return report.resolvers[0]?.records.find((record) => record.type === type)?.found ?? [];
}

const allRight = "A ok, AAAA ok, CNAME ok";
const unanswered = "A unanswered, AAAA unanswered, CNAME unanswered";

test("only our A record, seen by both resolvers: ok, nothing to do", async () => {
  const report = await check("right.acme.test");
  expect(report).toEqual({
    verdict: "ok",
    resolvers: [first, second].map(({ resolver }) => ({
      resolver,
      records: [
        record({ type: "A", expected: [OURS], found: [OURS] }),
        record({ type: "AAAA", expected: [], found: [] }),
        record({ type: "CNAME", expected: [], found: [] }),
      ],
    })),
    todo: [],
  });
  expect(JSON.parse(JSON.stringify(report))).toEqual(report);
});

function record(facts: { type: "A" | "AAAA" | "CNAME"; expected: string[]; found: string[] }) {
  return { ...facts, name: "right.acme.test", foundMore: 0, status: "ok" as const, failure: null };
}

test("another A record: change it to ours", async () => {
  const report = await check("other.acme.test");
  expect(report.verdict).toBe("wrong");
  expect(statuses(report)).toBe("A wrong, AAAA ok, CNAME ok");
  expect(report.todo).toEqual([{ kind: "change_a", from: THEIRS, to: OURS }]);
});

test("ours and another A record: keep ours, delete the other", async () => {
  const report = await check("extra.acme.test");
  expect(report.verdict).toBe("wrong");
  expect(statuses(report)).toBe("A unexpected, AAAA ok, CNAME ok");
  expect(found(report, "A")).toEqual([OURS, THEIRS]);
  expect(report.todo).toEqual([{ kind: "delete_a", value: THEIRS, keep: [OURS] }]);
});

test("two addresses of ours, both found: ok in any order", async () => {
  for (const addresses of [
    [OURS, SECOND],
    [SECOND, OURS],
  ])
    expect((await check("pair.acme.test", { addresses })).verdict).toBe("ok");
});

test("two addresses of ours: add the missing one, change one that is not ours", async () => {
  const addresses = [OURS, SECOND];
  const lacking = await check("right.acme.test", { addresses });
  expect(statuses(lacking)).toBe("A missing, AAAA ok, CNAME ok");
  expect(lacking.todo).toEqual([{ kind: "add_a", value: SECOND }]);
  const mixed = await check("extra.acme.test", { addresses });
  expect(statuses(mixed)).toBe("A wrong, AAAA ok, CNAME ok");
  expect(mixed.todo).toEqual([{ kind: "change_a", from: THEIRS, to: SECOND }]);
  const both = await check("other.acme.test", { addresses });
  expect(both.todo).toEqual([
    { kind: "change_a", from: THEIRS, to: OURS },
    { kind: "add_a", value: SECOND },
  ]);
});

test("a CNAME is reported and must be removed, even if it leads to our address", async () => {
  const report = await check("alias.acme.test");
  expect(report.verdict).toBe("wrong");
  expect(statuses(report)).toBe("A missing, AAAA ok, CNAME unexpected");
  expect(found(report, "CNAME")).toEqual(["right.acme.test"]);
  expect(report.todo).toEqual([
    { kind: "delete_cname", target: "right.acme.test" },
    { kind: "add_a", value: OURS },
  ]);
});

test("a CNAME to nothing, to itself or to another CNAME is reported, and nothing else is", async () => {
  for (const [host, target] of Object.entries({ dangling: "nothing", circle: "circle", hop: "alias" })) {
    const report = await check(`${host}.acme.test`);
    expect(report.todo).toEqual([
      { kind: "delete_cname", target: `${target}.acme.test` },
      { kind: "add_a", value: OURS },
    ]);
  }
});

test("an AAAA record must be removed, even if the A record is right", async () => {
  const report = await check("stray.acme.test");
  expect(report.verdict).toBe("wrong");
  expect(statuses(report)).toBe("A ok, AAAA unexpected, CNAME ok");
  expect(report.todo).toEqual([{ kind: "delete_aaaa", value: "2001:db8::1" }]);
});

test("an unknown name, or one without addresses: the A record is missing", async () => {
  for (const host of ["nobody", "text"]) {
    const report = await check(`${host}.acme.test`);
    expect(report.verdict).toBe("wrong");
    expect(statuses(report)).toBe("A missing, AAAA ok, CNAME ok");
    expect(report.todo).toEqual([{ kind: "add_a", value: OURS }]);
  }
});

test("contested: without the TXT record, or with another, it is not ok", async () => {
  const name = (label: string) => `_own.${label}.acme.test`;
  const absent = await check("absent.acme.test", contested("absent"));
  expect([absent.verdict, statuses(absent)]).toEqual(["wrong", `${allRight}, TXT missing`]);
  expect(absent.todo).toEqual([{ kind: "add_txt", name: name("absent"), value: TOKEN }]);
  const wrong = await check("wrong.acme.test", contested("wrong"));
  expect([wrong.verdict, statuses(wrong)]).toEqual(["wrong", `${allRight}, TXT wrong`]);
  expect(wrong.todo).toEqual([{ kind: "change_txt", name: name("wrong"), from: "somebody else's", to: TOKEN }]);
  // A token is case-sensitive.
  const noise = await check("noise.acme.test", contested("noise"));
  expect([noise.verdict, statuses(noise)]).toEqual(["wrong", `${allRight}, TXT wrong`]);
  expect(noise.todo).toEqual([{ kind: "add_txt", name: name("noise"), value: TOKEN }]);
});

test("contested: ok if the right TXT record is among others, in pieces, behind a CNAME, or one of 201", async () => {
  for (const label of ["among", "torn", "moved", "crowd"]) {
    const report = await check(`${label}.acme.test`, contested(label));
    expect([label, report.verdict, statuses(report)]).toEqual([label, "ok", `${allRight}, TXT ok`]);
    expect(found(report, "TXT")[0]).toBe(TOKEN);
    expect(found(report, "TXT").length).toBeLessThanOrEqual(10);
  }
});

test("a resolver that cannot be reached: unknown, not wrong", async () => {
  const report = await check("right.acme.test", { resolvers: [first.resolver, dead], timeoutMs: SILENT_MS });
  expect(report.verdict).toBe("unknown");
  expect([statuses(report, 0), statuses(report, 1)]).toEqual([allRight, unanswered]);
  expect(report.todo).toEqual([
    { kind: "resolver_silent", resolver: dead, types: ["A", "AAAA", "CNAME"], failure: "unreachable" },
  ]);
});

test("a resolver that cannot be reached does not hide the other one's answer", async () => {
  const report = await check("other.acme.test", { resolvers: [dead, first.resolver], timeoutMs: SILENT_MS });
  expect(report.verdict).toBe("wrong");
  expect(report.todo.map(({ kind }) => kind)).toEqual(["change_a", "resolver_silent"]);
});

test("REFUSED, SERVFAIL and a referral are not answers", async () => {
  for (const [host, failure] of Object.entries({
    "ai.foreign.test": "refused",
    "ai.broken.test": "failed",
    "ai.below.acme.test": "refused",
  })) {
    const report = await check(host, { resolvers: [first.resolver] });
    expect([host, report.verdict, statuses(report)]).toEqual([host, "unknown", unanswered]);
    expect(report.todo).toMatchObject([{ kind: "resolver_silent", failure }]);
  }
});

test("only one resolver sees it: wait, and change nothing", async () => {
  const [seer, late] = [first.resolver, second.resolver];
  const split = await check("ai.split.test");
  expect(split.verdict).toBe("wrong");
  expect([statuses(split, 0), statuses(split, 1)]).toEqual([allRight, "A wrong, AAAA unexpected, CNAME ok"]);
  expect(split.todo).toEqual([{ kind: "waiting_for_resolver", resolver: late, seenBy: [seer], types: ["A", "AAAA"] }]);
  const fresh = await check("late.acme.test");
  expect(fresh.todo).toEqual([{ kind: "waiting_for_resolver", resolver: seer, seenBy: [late], types: ["A"] }]);
});

test("two resolvers see different mistakes: one list of steps", async () => {
  const report = await check("gone.split.test");
  expect([statuses(report, 0), statuses(report, 1)]).toEqual([
    "A missing, AAAA ok, CNAME ok",
    "A wrong, AAAA ok, CNAME ok",
  ]);
  expect(report.todo).toEqual([{ kind: "change_a", from: THEIRS, to: OURS }]);
});

test("the next check sees a changed record", async () => {
  const server = await startDnsServer({ "turn.test": [`ai A ${THEIRS}`] });
  const see = async () => (await check("ai.turn.test", { resolvers: [server.resolver], timeoutMs: SILENT_MS })).verdict;
  expect(await see()).toBe("wrong");
  server.setRecords("turn.test", [`ai A ${OURS}`]);
  expect(await see()).toBe("ok");
  await server.stop();
  expect(await see()).toBe("unknown");
});

test("301 addresses: ours first, ten listed, the others counted", async () => {
  const report = await check("many.acme.test");
  expect(report.verdict).toBe("wrong");
  expect(found(report, "A")).toEqual([OURS, ...[...many].sort().slice(0, 9)]);
  expect(report.resolvers[0]?.records[0]?.foundMore).toBe(291);
  expect(report.todo.length).toBe(9);
  const flood = await check("flood.acme.test");
  expect(found(flood, "AAAA").length).toBe(10);
  expect(JSON.stringify([report, flood]).length).toBeLessThan(10_000);
});

test("control characters are removed, and long texts are cut", async () => {
  const report = await check("control.acme.test", contested("control"));
  expect(found(report, "TXT")).toEqual(["??[31mred??<b>", `${"y".repeat(250)}...`]);
  expect(JSON.stringify(report)).toMatch(/^[\x20-\x7e]+$/);
});

test("names of maximum length are found", async () => {
  const name = `${LONG}.acme.test`;
  expect(name.length).toBe(253);
  expect((await check(name)).verdict).toBe("ok");
  expect(found(await check("longalias.acme.test"), "CNAME")).toEqual([name]);
});

/** A DNS server that answers each question with `reply`; null: no answer. */
async function hostileServer(reply: (question: Buffer) => Buffer | null): Promise<string> {
  const server = createServer((socket: Socket) => {
    socket.on("error", () => socket.destroy());
    let asked = Buffer.alloc(0);
    socket.on("data", (bytes: Buffer) => {
      asked = Buffer.concat([asked, bytes]);
      while (asked.length >= 2 && asked.length >= 2 + asked.readUInt16BE(0)) {
        const size = asked.readUInt16BE(0);
        const answer = reply(asked.subarray(2, 2 + size));
        asked = asked.subarray(2 + size);
        if (answer) socket.write(answer);
      }
    });
  });
  hostile.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  return `127.0.0.1:${address !== null && typeof address === "object" ? address.port : 0}`;
}

/** An answer to `question`: flags (0x8580 is a resolver's success) and one record with these bytes, if any. */
function answerTo(question: Buffer, flags: number, record: number[] = []): Buffer {
  const message = Buffer.concat([question, Buffer.from(record)]);
  message.writeUInt16BE(flags, 2);
  message.writeUInt16BE(record.length > 0 ? 1 : 0, 6);
  return Buffer.concat([Buffer.of(message.length >> 8, message.length & 255), message]);
}

const typeOf = (question: Buffer) => question.readUInt16BE(question.length - 4);
const ownA = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 203, 0, 113, 7];
const rightAnswer = (question: Buffer) => answerTo(question, 0x8580, typeOf(question) === 1 ? ownA : []);

test("a failed AAAA question does not mean that there is no AAAA record: unknown", async () => {
  for (const [flags, failure] of [
    [0x8182, "failed"],
    [0x8185, "refused"],
    [0x8184, "failed"],
    [0x8780, "garbled"],
  ] as const) {
    const resolver = await hostileServer((question) =>
      typeOf(question) === 28 ? answerTo(question, flags) : rightAnswer(question),
    );
    const report = await check("ai.acme.test", { resolvers: [resolver] });
    expect([report.verdict, statuses(report)]).toEqual(["unknown", "A ok, AAAA unanswered, CNAME ok"]);
    expect(report.todo).toEqual([{ kind: "resolver_silent", resolver, types: ["AAAA"], failure }]);
  }
});

test("a resolver that does not answer one question: its other answers count, and the wait is limited", async () => {
  const resolver = await hostileServer((question) => (typeOf(question) === 28 ? null : rightAnswer(question)));
  const report = await check("ai.acme.test", { resolvers: [resolver], timeoutMs: SILENT_MS });
  expect([report.verdict, statuses(report)]).toEqual(["unknown", "A ok, AAAA unanswered, CNAME ok"]);
  expect(report.todo).toMatchObject([{ failure: "silent" }]);
});

test("a failed CNAME question: an A answer without a CNAME proves that there is none", async () => {
  const resolver = await hostileServer((question) =>
    typeOf(question) === 5 ? answerTo(question, 0x8182) : rightAnswer(question),
  );
  expect((await check("ai.acme.test", { resolvers: [resolver] })).verdict).toBe("ok");
});

test("a CNAME whose target fails: the CNAME is the mistake", async () => {
  const ownAlias = [0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 2, 0xc0, 15];
  const resolver = await hostileServer((question) =>
    typeOf(question) === 5 ? answerTo(question, 0x8580, ownAlias) : answerTo(question, 0x8182),
  );
  const report = await check("ai.acme.test", { resolvers: [resolver] });
  expect([report.verdict, statuses(report)]).toEqual(["wrong", "A missing, AAAA ok, CNAME unexpected"]);
  expect(report.todo).toEqual([
    { kind: "delete_cname", target: "acme.test" },
    { kind: "add_a", value: OURS },
  ]);
});

test("answers that are not DNS messages count as unanswered immediately", async () => {
  const broken: Record<string, (question: Buffer) => Buffer> = {
    "text instead of DNS": () => Buffer.from("HTTP/1.1 400 Bad Request\r\n\r\n".repeat(4000)),
    "an empty message": () => Buffer.alloc(2),
    "the question sent back": (question) => Buffer.concat([Buffer.of(0, question.length), question]),
    "a name that leads to itself": (question) => answerTo(question, 0x8580, [0xc0, question.length, ...ownA.slice(2)]),
    "an address of three bytes": (question) => answerTo(question, 0x8580, [...ownA.slice(0, 11), 3, 203, 0, 113]),
    "a record that ends early": (question) => answerTo(question, 0x8580, ownA.slice(0, -1)),
    "an answer given twice": (question) => Buffer.concat([rightAnswer(question), rightAnswer(question)]),
  };
  for (const [what, reply] of Object.entries(broken)) {
    // Who waited for a better answer would wait for an hour.
    const report = await check("ai.acme.test", { resolvers: [await hostileServer(reply)], timeoutMs: 3_600_000 });
    expect([what, report.verdict]).toEqual([what, "unknown"]);
    expect(report.todo).toMatchObject([{ kind: "resolver_silent", failure: "garbled" }]);
  }
});

/** A resolver without TCP. `reply` gets a question, and a function that sends a message back, also a forged one from another port. */
async function udpResolver(
  reply: (question: Buffer, send: (message: Buffer, isForged?: boolean) => void) => void,
): Promise<string> {
  const [socket, forger] = [createSocket("udp4"), createSocket("udp4")];
  hostile.push(socket, forger);
  socket.on("message", (question, { address, port }) =>
    reply(question, (message, isForged = false) => (isForged ? forger : socket).send(message, port, address)),
  );
  await new Promise<void>((resolve) => socket.bind(0, "127.0.0.1", resolve));
  return `127.0.0.1:${socket.address().port}`;
}

/** Forwards a question to the first server, over UDP. */
function askFirst(question: Buffer, send: (message: Buffer) => void): void {
  const socket = createSocket("udp4");
  socket.on("message", (message) => {
    socket.close();
    send(message);
  });
  socket.send(question, Number(first.resolver.split(":")[1]), "127.0.0.1");
}

test("a resolver without TCP is asked over UDP; an answer that is too long for UDP does not count", async () => {
  const resolvers = [await udpResolver(askFirst)];
  expect((await check("right.acme.test", { resolvers })).verdict).toBe("ok");
  expect((await check("extra.acme.test", { resolvers })).todo).toEqual([
    { kind: "delete_a", value: THEIRS, keep: [OURS] },
  ]);
  const many = await check("many.acme.test", { resolvers });
  expect([many.verdict, statuses(many)]).toEqual(["unknown", "A unanswered, AAAA ok, CNAME ok"]);
  expect(many.todo).toMatchObject([{ kind: "resolver_silent", failure: "garbled" }]);
});

test("over UDP a lost packet is sent again, and forged answers are ignored", async () => {
  const seen = new Set<string>();
  const resolver = await udpResolver((question, send) => {
    const isFirst = !seen.has(question.toString("hex"));
    seen.add(question.toString("hex"));
    if (isFirst) return;
    const wrong = rightAnswer(question).subarray(2);
    wrong.writeUInt8(66, wrong.length - 1);
    send(wrong, true);
    const [otherNumber, otherName] = [Buffer.from(wrong), Buffer.from(wrong)];
    otherNumber.writeUInt16BE((question.readUInt16BE(0) + 1) % 65_536, 0);
    otherName.writeUInt8(120, 13);
    for (const forged of [otherNumber, otherName, Buffer.alloc(0), Buffer.alloc(3)]) send(forged);
    setTimeout(() => askFirst(question, send), 50);
  });
  expect((await check("right.acme.test", { resolvers: [resolver] })).verdict).toBe("ok");
  expect(seen.size).toBe(3);
});

test("invalid options are refused with a message", async () => {
  const wrong: [Partial<DnsCheckOptions>, RegExp][] = [
    [{ host: "ai..acme.test" }, /not the name of a host/],
    [{ host: "AI.acme.test" }, /not the name of a host/],
    [{ addresses: [] }, /1 to 10 IPv4 addresses/],
    [{ addresses: ["2001:db8::1"] }, /1 to 10 IPv4 addresses/],
    [{ resolvers: [] }, /1 to 8 resolvers/],
    [{ resolvers: ["one.one.one.one"] }, /not a DNS resolver/],
    [{ resolvers: ["1.1.1.1:0"] }, /not a DNS resolver/],
    [{ resolvers: ["[1.1.1.1]:53"] }, /not a DNS resolver/],
    [{ txt: { name: "_own.ai.acme.test", value: "?" } }, /plain token/],
    [{ txt: { name: `${"l".repeat(64)}.test`, value: TOKEN } }, /not a DNS name/],
    [{ timeoutMs: 0 }, /above 0 ms/],
  ];
  for (const [more, message] of wrong) await expect(check("ai.acme.test", more)).rejects.toThrow(message);
});

test("Deno reports what Bun reports", async () => {
  const silent = await hostileServer(() => null);
  const labels = ["right", "other", "extra", "alias", "dangling", "circle", "stray", "nobody", "text", "many", "flood"];
  const asked = [
    ...labels.map((label) => options(`${label}.acme.test`)),
    ...["absent", "wrong", "torn", "crowd", "control"].map((label) => options(`${label}.acme.test`, contested(label))),
    ...["ai.split.test", "ai.foreign.test", "ai.broken.test", "ai.below.acme.test"].map((host) => options(host)),
    options("right.acme.test", { resolvers: [first.resolver, dead], timeoutMs: SILENT_MS }),
    options("other.acme.test", { resolvers: [await udpResolver(askFirst)] }),
    options("right.acme.test", { resolvers: [first.resolver, silent], timeoutMs: SILENT_MS }),
  ];
  const onBun: DnsReport[] = [];
  for (const one of asked) onBun.push(await checkDns(one));
  const repository = join(import.meta.dirname, "../..");
  const program = `
    import { checkDns } from ${JSON.stringify(join(repository, "src/accounts/dns_check.ts"))};
    const reports = [];
    for (const one of JSON.parse(await new Response(Deno.stdin.readable).text())) reports.push(await checkDns(one));
    console.log(JSON.stringify(reports));`;
  const child = Bun.spawn([denoProgram(), "eval", "--ext=ts", program], {
    cwd: repository,
    stdin: new Blob([JSON.stringify(asked)]),
    stdout: "pipe",
    stderr: "pipe",
  });
  const [output, complaints] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  expect(complaints).toBe("");
  expect(JSON.parse(output)).toEqual(onBun);
});
