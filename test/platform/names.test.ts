import { afterEach, expect, test } from "bun:test";
import { Refusal } from "../../src/errors.ts";
import { parseResolver } from "../../src/platform/dns_query.ts";
import { candidatesOf, createNames, NameError, type Names } from "../../src/platform/names.ts";
import { parseHosts, parseResolvConf, type SystemNames } from "../../src/platform/system_names.ts";
import { a, type NameServer, type Reply, startNameServer } from "../name_server.ts";

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

async function server(reply: (name: string, type: string, over: "udp" | "tcp") => Reply): Promise<NameServer> {
  const started = await startNameServer(reply);
  closers.push(started.close);
  return started;
}

/** A resolver that asks these servers, and its clock. */
function namesBy(
  servers: readonly NameServer[],
  more: Partial<SystemNames> = {},
): { names: Names; clock: { ms: number } } {
  const clock = { ms: 0 };
  const system = {
    servers: servers.map(({ address }) => parseResolver(address)),
    search: [],
    ndots: 1,
    hosts: new Map(),
  };
  return { names: createNames({ system: () => ({ ...system, ...more }), now: () => clock.ms }), clock };
}

const addresses = async (names: Names, host: string) => (await names.resolve(host)).map(({ address }) => address);
const failure = (names: Names, host: string) =>
  names.resolve(host).then(
    () => undefined,
    (error: unknown) => error,
  );

test("both families, behind CNAMEs, whose end the server may leave out", async () => {
  const { names } = namesBy([
    await server((name, type) => {
      if (name === "www.example") return [{ type: "CNAME", name, data: "Far.example", ttl: 60 }];
      if (name !== "far.example") return "none";
      return type === "A"
        ? [a(name, "192.0.2.1"), a("other.example", "192.0.2.9")]
        : [{ type: "AAAA", name, data: "2001:db8::1" }];
    }),
  ]);
  expect(await names.resolve("WWW.example")).toEqual([
    { address: "192.0.2.1", family: 4 },
    { address: "2001:db8::1", family: 6 },
  ]);
});

test("an answer counts for as long as its TTL says, a failure for five seconds; concurrent look-ups of a name are one", async () => {
  const dns = await server((name, type) =>
    type === "A" && name === "a.example" ? [a(name, "192.0.2.1", 20)] : "none",
  );
  const { names, clock } = namesBy([dns]);
  await Promise.all(Array.from({ length: 50 }, () => names.resolve("a.example")));
  clock.ms = 19_999;
  await names.resolve("a.example");
  expect(dns.asked.toSorted()).toEqual(["A a.example", "AAAA a.example"]);
  clock.ms = 20_000;
  await names.resolve("a.example");
  expect(dns.asked.length).toBe(4);
  for (const ms of [20_000, 24_999, 25_000]) {
    clock.ms = ms;
    expect(await failure(names, "b.example")).toMatchObject({ name: "NameError", isKnown: true });
  }
  expect(dns.asked.filter((one) => one === "A b.example").length).toBe(2);
});

test("the next name server is asked when one is silent or fails", async () => {
  const good = await server((name, type) => (type === "A" ? [a(name, "192.0.2.1")] : []));
  for (const bad of ["silent", "failed"] as const) {
    const first = await server(() => bad);
    expect(await addresses(namesBy([first, good]).names, "a.example")).toEqual(["192.0.2.1"]);
    expect(first.asked.length).toBeGreaterThan(0);
  }
  const failed = await server(() => "failed");
  expect(await failure(namesBy([failed]).names, "a.example")).toMatchObject({
    isKnown: false,
    message: "the name servers failed",
  });
});

test("an answer that does not fit into a packet is asked for again over TCP", async () => {
  const many = Array.from({ length: 100 }, (_, i) => a("a.example", `192.0.2.${i + 1}`));
  const dns = await server((_, type, over) => (type !== "A" ? [] : over === "tcp" ? many : "cut"));
  expect((await addresses(namesBy([dns]).names, "a.example")).length).toBe(100);
});

test("a family without an answer does not hold up the other one", async () => {
  const dns = await server((name, type) => (type === "A" ? [a(name, "192.0.2.1")] : "silent"));
  expect(await addresses(namesBy([dns]).names, "a.example")).toEqual(["192.0.2.1"]);
});

test("search domains and ndots, as in a cluster", async () => {
  const search = ["shop.svc.cluster.local", "svc.cluster.local"];
  expect(candidatesOf("vllm", { search, ndots: 5 })).toEqual([...search.map((domain) => `vllm.${domain}`), "vllm"]);
  expect(candidatesOf("api.a.example", { search, ndots: 1 })[0]).toBe("api.a.example");
  expect(candidatesOf("x".repeat(64), { search, ndots: 1 })).toEqual([]);
  const dns = await server((name, type) => {
    if (type !== "A") return [];
    return name === "vllm.svc.cluster.local"
      ? [a(name, "10.0.0.7")]
      : name === "api.a.example"
        ? [a(name, "192.0.2.1")]
        : "none";
  });
  const { names } = namesBy([dns], { search, ndots: 5 });
  expect(await addresses(names, "vllm")).toEqual(["10.0.0.7"]);
  expect(await addresses(names, "api.a.example")).toEqual(["192.0.2.1"]);
});

test("the hosts file comes first; localhost needs no name server", async () => {
  const dns = await server(() => "silent");
  const { names } = namesBy([dns], { hosts: parseHosts("10.0.0.3 DB db2 # comment\n::3 db\nnonsense x\n") });
  expect(await addresses(names, "db")).toEqual(["10.0.0.3", "::3"]);
  expect(await addresses(names, "db2")).toEqual(["10.0.0.3"]);
  expect(await addresses(names, "ai.localhost")).toEqual(["127.0.0.1", "::1"]);
  expect(dns.asked).toEqual([]);
});

test("resolv.conf", () => {
  const text =
    "# x\nnameserver 10.96.0.10\nnameserver nonsense\nsearch a.example B.example.\ndomain c.example\noptions timeout:1 ndots:5\n";
  expect(parseResolvConf(text)).toEqual({
    servers: [{ host: "10.96.0.10", port: 53 }],
    search: ["c.example"],
    ndots: 5,
  });
  expect(parseResolvConf("")).toEqual({ servers: [], search: [], ndots: 1 });
});

test("an account has eight look-ups in progress; others and the operator are not held up", async () => {
  const dns = await server((name, type) =>
    name.startsWith("silent") ? "silent" : type === "A" ? [a(name, "192.0.2.1")] : [],
  );
  const { names } = namesBy([dns]);
  const owner = { accountId: 7, tenantId: 0 };
  const hanging = Array.from({ length: 100 }, (_, i) =>
    names.resolve(`silent${i}.example`, owner).catch((error: unknown) => error),
  );
  expect(await names.resolve("a.example", { accountId: 8, tenantId: 0 })).toEqual([
    { address: "192.0.2.1", family: 4 },
  ]);
  expect(await names.resolve("b.example")).toEqual([{ address: "192.0.2.1", family: 4 }]);
  const ends = await Promise.all(hanging);
  const refused = ends.filter((end) => end instanceof Refusal && end.code === "too_many_requests");
  const silent = ends.filter((end) => end instanceof NameError && !end.isKnown);
  expect([refused.length, silent.length]).toEqual([92, 8]);
  expect(new Set(dns.asked.filter((one) => one.includes("silent"))).size).toBe(16);
  // Its places are free again.
  expect(await names.resolve("c.example", owner)).toEqual([{ address: "192.0.2.1", family: 4 }]);
});

test("the accounts of one tenant have 64 together, and all clients 256", async () => {
  const dns = await server(() => "silent");
  const { names } = namesBy([dns]);
  const codes = async (owners: { accountId: number; tenantId: number }[]) => {
    const ends = owners.map((owner, i) =>
      names.resolve(`${owner.tenantId}-${i}.example`, owner).catch((error: unknown) => error),
    );
    return (await Promise.all(ends)).map((end) => (end instanceof Refusal ? end.code : "begun"));
  };
  const of = (tenantId: number, count: number) =>
    Array.from({ length: count }, (_, i) => ({ accountId: tenantId * 1000 + Math.floor(i / 8), tenantId }));
  const ends = await codes([...of(1, 70), ...of(2, 64), ...of(3, 64), ...of(4, 64), ...of(5, 10)]);
  const count = (code: string) => ends.filter((one) => one === code).length;
  expect([count("begun"), count("too_many_requests"), count("service_unavailable")]).toEqual([256, 6, 10]);
});
