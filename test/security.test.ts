import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Glob } from "bun";
import { EXCEPTIONS, judge } from "../scripts/audit.ts";
import type { Role } from "../src/accounts/roles.ts";
import { readConfig } from "../src/config.ts";
import type { Deps } from "../src/deps.ts";
import { panelEndpoints } from "../src/panel/api/endpoints.ts";
import { createLog } from "../src/platform/log.ts";
import { startReplica } from "../src/replica.ts";
import { expectRefusal } from "./gateway/checks.ts";
import { type Answer, imageBody, openShop, type Shop } from "./gateway/shop.ts";
import { givePassword, PANEL, PASSWORD, type PanelSession, signInTo } from "./panel/panel_client.ts";
import { FORMS, OTHER_ROUTES, ROUTE_TABLE } from "./panel/route_table.ts";
import { TEST_SECRET_KEY } from "./replica.ts";
import { codeAndStrings } from "./source_text.ts";

/**
 * What docs/security.md promises and no other test shows: that its table is true to the tests, and what must hold of every route
 * or of every file. Source: ADM-9, SEC-1, SEC-3, SEC-4, SEC-5.
 */
const REPOSITORY = dirname(import.meta.dirname);
const PREFIX = "/api/panel";

let shop: Shop;
let people: Record<Role, { accountId: number }>;
let sessions: Record<Role, PanelSession>;
let key: { secret: string; keyId: number; accountId: number };

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  const { world } = shop;
  key = await shop.customer();
  people = { customer: key, reseller: await world.addReseller(), admin: await world.addAdmin() };
  sessions = {
    customer: await signInTo(shop, people.customer),
    reseller: await signInTo(shop, people.reseller),
    admin: await signInTo(shop, people.admin),
  };
});
afterAll(async () => {
  const { sql } = shop.world;
  expect(await sql`select 1 from escrows where units > 0 or nano_usd > 0`).toHaveLength(0);
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
});

describe("mass assignment", () => {
  /** What no form is for: who one is, what one has, and what the service keeps up. */
  const EXTRAS: Readonly<Record<string, unknown>> = {
    id: 1,
    accountId: 1,
    account_id: 1,
    tenantId: 1,
    resellerId: 1,
    reseller_id: 1,
    role: "admin",
    status: "active",
    email: "thief@example.com",
    password_hash: "x",
    passwordHash: "x",
    totpEnabled: false,
    balance: 1e9,
    balanceNanoUsd: "9000000000",
    balance_nano_usd: "9000000000",
    unitsUsed: 0,
    paygEnabled: true,
    enabled: true,
    digest: "x",
    keyCiphertext: "x",
    createdAt: "2020-01-01T00:00:00Z",
    requestId: "x",
    by: { accountId: 1 },
    constructor: {},
  };

  /** The routes of the panel as the framework has them, with the shapes of their bodies. */
  async function shapes(): Promise<Map<string, Record<string, unknown> | undefined>> {
    const config = readConfig({
      DATABASE_URL: shop.world.url,
      SECRET_KEY: TEST_SECRET_KEY,
      PORT: "0",
      SPOOL_DIR: `${shop.world.spoolDir}/shapes`,
      LOG_LEVEL: "silent",
    });
    const clock = { nowMs: () => performance.now(), wallMs: () => Date.now() };
    const replica = await startReplica(config, clock, createLog("silent"));
    const routes = panelEndpoints(replica.deps as Deps).routes;
    await replica.drain();
    return new Map(
      routes
        .filter(({ method }) => method !== "GET")
        .map(({ method, path, hooks }) => {
          const body = hooks?.body as { properties?: Record<string, unknown>; anyOf?: unknown[] } | undefined;
          return [`${method} ${path.slice(PREFIX.length)}`, body && (body.properties ?? {})];
        }),
    );
  }

  const callAs = (role: Role, route: string, body: unknown): Promise<Answer> => {
    const [method = "", pattern = ""] = route.split(" ");
    const ids = pattern.replace(/:resellerId|:id|:keyId|:packageId/g, "999999999").replace(/:\w+/g, "none");
    // A model is named in the query: its id may hold slashes.
    const path = pattern.startsWith("/admin/model") ? `${ids}?id=none` : ids;
    const session = sessions[role];
    return shop.call(PREFIX + path, {
      host: PANEL,
      method,
      headers: { cookie: session.cookie, origin: `http://${PANEL}`, "x-csrf-token": session.csrf },
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
  };

  /** Who everybody is and what everybody has. */
  async function standing(): Promise<string> {
    const { sql } = shop.world;
    const rows = await Promise.all([
      sql`select * from accounts order by id`,
      sql`select * from balances order by account_id`,
      sql`select * from packages order by id`,
      sql`select * from keys order by id`,
      sql`select * from providers order by id`,
      sql`select * from provider_keys order by id`,
      sql`select account_id, host from sessions order by 1, 2`,
    ]);
    return JSON.stringify(rows);
  }

  test("the table has a form for every route whose body has a shape, and for no other", async () => {
    const shaped = [...(await shapes())].filter(([, fields]) => fields !== undefined).map(([route]) => route);
    expect(shaped.sort()).toEqual(Object.keys(FORMS).sort());
  });

  test("unknown fields of a form are refused by name on every route, and nothing changes", async () => {
    const fieldsOf = await shapes();
    const before = await standing();
    for (const [route, form] of Object.entries(FORMS)) {
      const who = ROUTE_TABLE[route]?.who ?? "open";
      if (who === "open") throw new Error(`${route} is open`);
      for (const [extra, value] of Object.entries(EXTRAS)) {
        if (extra in (fieldsOf.get(route) ?? {}) || extra in form) continue;
        const answer = await callAs(who[0] as Role, route, { ...form, [extra]: value });
        // Of a body of several shapes the framework names no field.
        const param = answer.json?.error?.param === null ? null : extra;
        expectRefusal(answer, "validation_failed", { param });
      }
    }
    expect(await standing()).toBe(before);
  });

  test("__proto__ in a body does not set a prototype", async () => {
    const named = await callAs("customer", "PATCH /settings/profile", '{"name":"Ann","__proto__":{"role":"admin"}}');
    expect([200, 422]).toContain(named.status);
    // As a prototype it would end this session too.
    await callAs("customer", "POST /sign-out-everywhere", '{"__proto__":{"thisToo":true}}');
    expect((await sessions.customer.get("/me")).json.person.role).toBe("customer");
  });

  test("routes without a form do not read a body, and nothing changes", async () => {
    const fieldsOf = await shapes();
    const ending = ["POST /sign-out"]; // Of its own below: it ends the session.
    const bare = [...fieldsOf].filter(([, fields]) => fields === undefined).map(([route]) => route);
    const before = await standing();
    for (const route of bare.filter((one) => !ending.includes(one))) {
      const who = ROUTE_TABLE[route]?.who ?? "open";
      const role = who === "open" ? "customer" : (who[0] as Role);
      const answer = await callAs(role, route, EXTRAS);
      // Refused for what is missing or unknown, or done without a look at the body.
      expect([200, 401, 404, 422], `${route}: ${answer.text}`).toContain(answer.status);
    }
    expect(await standing()).toBe(before);
  });

  test("a sign-in to the panel is for the account of the password, whoever the body names", async () => {
    const person = await shop.world.addCustomer();
    const email = await givePassword(shop, person);
    const before = await standing();
    const answer = await shop.call(`${PREFIX}/sign-in`, {
      host: PANEL,
      headers: { origin: `http://${PANEL}` },
      body: { ...EXTRAS, accountId: people.admin.accountId, email, password: PASSWORD },
    });
    expect(answer.status).toBe(200);
    const cookie = answer.headers.get("set-cookie")?.split(";", 1)[0] ?? "";
    const me = await shop.call(`${PREFIX}/me`, { host: PANEL, headers: { cookie } });
    expect(me.json.person).toMatchObject({ accountId: person.accountId, role: "customer" });
    await shop.world.sql`delete from sessions where account_id = ${person.accountId}`;
    expect(await standing()).toBe(before);
  });

  test("a request to the API is paid by the account of its key, whoever the body names", async () => {
    const payer = await shop.payer(1_000_000_000n);
    const named = { accountId: payer.accountId, account_id: payer.accountId, user: String(payer.accountId), key_id: 1 };
    expect((await shop.chat(key.secret, named)).status).toBe(200);
    const image = await shop.call("/v1/images/generations", { secret: key.secret, body: imageBody(named) });
    expect(image.status).toBe(200);
    expect(await shop.counters(payer.accountId)).toMatchObject({ usage: 0, balance: 1_000_000_000 });
    expect((await shop.counters(key.accountId)).usage).toBeGreaterThanOrEqual(2);
  });
});

describe("caches", () => {
  const NO_STORE = /\bno-store\b/;

  test("no answer of the API or the panel may be stored, successful or refused, with or without a session", async () => {
    for (const [route, { who }] of Object.entries(ROUTE_TABLE)) {
      const [method = "", pattern = ""] = route.split(" ");
      const path = PREFIX + pattern.replace(/:resellerId|:id|:keyId|:packageId/g, "999999999").replace(/:\w+/g, "none");
      // What changes something is asked without a session, or about what is not there.
      const roles: readonly (Role | null)[] = who === "open" ? [null] : method === "GET" ? [null, ...who] : [null];
      for (const role of roles) {
        const cookie = role === null ? "" : sessions[role].cookie;
        const answer = await shop.call(path, { host: PANEL, method, headers: { cookie } });
        expect(answer.headers.get("cache-control"), `${route} ${role} ${answer.status}`).toMatch(NO_STORE);
      }
    }
    for (const [route, { who, call }] of Object.entries(OTHER_ROUTES)) {
      const method = route.split(" ")[0] ?? "";
      if (who !== "key") continue;
      for (const secret of [key.secret, "sk-none"]) {
        const answer = await shop.call(call.path, { method, secret, body: call.body });
        expect(answer.headers.get("cache-control"), `${route} ${answer.status}`).toMatch(NO_STORE);
      }
    }
  });

  test("answers of 404 and 405, and those of the probes, may not be stored either", async () => {
    for (const [path, method] of [
      ["/v1/nothing", "GET"],
      ["/v1/chat/completions", "GET"],
      ["/nothing", "GET"],
      ["/assets/none.js", "GET"],
      ["/brand/none", "GET"],
      ["/healthz", "GET"],
      ["/readyz", "GET"],
    ] as const) {
      const answer = await shop.call(path, { method, host: PANEL });
      expect(answer.headers.get("cache-control"), path).toMatch(NO_STORE);
    }
  });

  test("a stream may not be stored", async () => {
    const stream = await shop.chat(key.secret, { stream: true });
    expect(stream.status).toBe(200);
    expect(stream.headers.get("cache-control")).toMatch(/\bno-(?:store|cache)\b/);
  });

  test("forwarded hosts change no answer: neither the brand nor a link nor an address", async () => {
    const forwarded = {
      "x-forwarded-host": "evil.test",
      "x-host": "evil.test",
      "x-forwarded-server": "evil.test",
      "x-original-url": "/v1/models",
      "x-rewrite-url": "/v1/models",
      forwarded: "host=evil.test;proto=http",
      "x-forwarded-proto": "http",
      "x-forwarded-port": "1",
      "x-http-method-override": "DELETE",
    };
    const { cookie, csrf } = sessions.admin;
    const own = { cookie, origin: `http://${PANEL}`, "x-csrf-token": csrf };
    for (const path of ["/me", "/keys", "/settings"]) {
      const plain = await shop.call(PREFIX + path, { host: PANEL, headers: own });
      const told = await shop.call(PREFIX + path, { host: PANEL, headers: { ...own, ...forwarded } });
      const timeless = ({ status, text }: Answer) => `${status} ${text.replace(/"serverTime":"[^"]*"/, "")}`;
      expect(timeless(told)).toBe(timeless(plain));
    }
    const invited = await shop.call(`${PREFIX}/people`, {
      host: PANEL,
      headers: { ...own, ...forwarded },
      body: { email: "forwarded@example.com", name: "Forwarded" },
    });
    expect(invited.json.link.url).toStartWith(`http://${PANEL}/`);
    const page = await shop.call("/sign-in", { host: PANEL, headers: { accept: "text/html", ...forwarded } });
    expect(page.text).not.toContain("evil.test");
  });
});

describe("the audit of the packages", () => {
  const HOLE = {
    elysia: [
      {
        id: 1104,
        url: "https://github.com/advisories/GHSA-aaaa-bbbb-cccc",
        title: "Bad thing",
        severity: "high",
        vulnerable_versions: "<99",
      },
    ],
  };
  const TODAY = "2026-06-15T12:00:00Z";
  const excepted = (until: `${number}-${number}-${number}`) => [
    { id: "GHSA-aaaa-bbbb-cccc", reason: "the bad part is not used", until },
  ];

  /** scripts/audit.ts as `check` runs it, against a registry that answers so. */
  async function audit(answer: (() => Response) | null) {
    const registry = answer && Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: answer });
    const child = Bun.spawn([process.execPath, join(REPOSITORY, "scripts/audit.ts")], {
      env: {
        PATH: process.env.PATH ?? "",
        HOME: process.env.HOME ?? "/tmp",
        NPM_CONFIG_REGISTRY: `http://127.0.0.1:${registry?.port ?? 1}/`,
      },
      stdout: "pipe",
      stderr: "pipe",
    });
    const said = (await new Response(child.stdout).text()) + (await new Response(child.stderr).text());
    const code = await child.exited;
    await registry?.stop(true);
    return { code, said };
  }

  test("fails on a vulnerability, and names the package, the problem and its advisory", async () => {
    const { code, said } = await audit(() => Response.json(HOLE));
    expect(code).toBe(1);
    expect(said).toContain("elysia <99 (high): Bad thing, GHSA-aaaa-bbbb-cccc");
  });

  test("passes without a vulnerability", async () => {
    expect(await audit(() => Response.json({}))).toEqual({ code: 0, said: "No package has a known vulnerability.\n" });
  });

  test("passes if the registry is unreachable or has no such endpoint, and says in one line that nothing is known", async () => {
    const refused = (status: number) => () => new Response("no", { status });
    for (const answer of [refused(404), refused(405), null]) {
      const { code, said } = await audit(answer);
      expect([code, said.trim().split("\n").length]).toEqual([0, 1]);
      expect(said).toStartWith("AUDIT NOT DONE:");
    }
  });

  test("does not pass if the registry fails or answers something else", async () => {
    for (const answer of [() => new Response("no", { status: 500 }), () => new Response("<html>")]) {
      const { code, said } = await audit(answer);
      expect(code).toBe(1);
      expect(said).toContain("The audit failed");
    }
  });

  test("accepts an exception until its date, and reports one that is no longer needed", () => {
    const said = { stdout: JSON.stringify(HOLE), stderr: "" };
    expect(judge(said, excepted("2026-12-31"), TODAY).exitCode).toBe(0);
    expect(judge(said, excepted("2026-06-14"), TODAY).exitCode).toBe(1);
    expect(judge(said, excepted("2026-06-14"), TODAY).lines[0]).toContain("ended on 2026-06-14");
    expect(judge({ stdout: "{}", stderr: "" }, excepted("2026-12-31"), TODAY).lines[0]).toContain("no longer needed");
    for (const { reason, until } of EXCEPTIONS) {
      expect(reason.length).toBeGreaterThan(20);
      expect(until).toMatch(/^\d{4}-\d\d-\d\d$/);
    }
  });
});

describe("CPU by hostile text", () => {
  /** A text at which a quadratic pattern takes hours, and a linear one some milliseconds. */
  const TEXT_CHARS = 4_000_000;
  const END_MS_MAX = 20_000;
  /**
   * Which patterns are tried with such a text: those that take so long with a short one, in the best of a few tries. A quadratic pattern
   * takes several times as long on any machine. Nothing is expected of this time.
   */
  const SHORT_CHARS = 20_000;
  const SUSPECT_MS = 10;
  const TRIES = 4;
  /** Repeated, these are what patterns choke on. */
  const UNITS = [
    ..."aA0f .-_/@:;%\\\"'[](){}<>=&,+*#?!~`|$^é\t\n\r\u0000",
    ...[
      "👍",
      "a.",
      "a-",
      "a@",
      "0.",
      "0 ",
      "a ",
      "//",
      "\\\\",
      "[a",
      "a:",
      "::",
      "a,",
      "=a",
      "a=",
      "<a",
      "&a",
      "%2",
      "%20",
    ],
    ...[
      "``",
      "**",
      "*a",
      "_a",
      "[](",
      "![](",
      "](",
      "sk-",
      "0a",
      "Aa0",
      "a\n",
      "\n ",
      "a/",
      "../",
      "data:",
      "Bearer ",
      "http://",
    ],
  ];
  const ENDS: readonly [before: string, after: string][] = [
    ["", ""],
    ["", "\u0001"],
    ["x", "!"],
  ];
  /** What reads so little that it does not matter. */
  const SHORT_READERS = new Map([
    ["/^\\d*\\.?\\d+$/", "a field of a few characters, typed by the person whose browser it is"],
    ["/^-?\\d*\\.?\\d+$/", "the same"],
    ["/^(.+?)\\1+$/su", "a password, typed by the person whose browser it is"],
    ["/\\/+$/", "a provider's address of at most 2,048 characters, typed by an admin"],
    ["/0+$/", "nine digits"],
  ]);

  const files = [...new Glob("src/**/*.{ts,tsx}").scanSync({ cwd: REPOSITORY })]
    // On the operator's own machine: commands, and the demo.
    .filter((path) => !/^src\/(?:cli|demo)\//.test(path));
  const patterns = new Set(
    files.flatMap((path) => codeAndStrings(readFileSync(join(REPOSITORY, path), "utf8")).regExps),
  );

  type Trial = { before: string; unit: string; after: string };
  const textOf = ({ before, unit, after }: Trial, chars: number) => before + unit.repeat(chars / unit.length) + after;

  /** The texts with which the pattern may be slow. */
  const suspects = (pattern: RegExp): Trial[] =>
    UNITS.flatMap((unit) => ENDS.map(([before, after]) => ({ before, unit, after }))).filter((trial) => {
      const text = textOf(trial, SHORT_CHARS);
      for (let i = 0; i < TRIES; i++) if (timeOf(pattern, text) <= SUSPECT_MS) return false;
      return true;
    });

  const timeOf = (pattern: RegExp, text: string): number => {
    const startedAt = performance.now();
    if (pattern.global) text.replace(pattern, "");
    else pattern.exec(text);
    return performance.now() - startedAt;
  };

  /** Whether the pattern comes to the end of the long text. Runs in a process of its own, since nothing else can stop a pattern. */
  const ends = (pattern: RegExp, { before, unit, after }: Trial): boolean => {
    const made = `${JSON.stringify(before)} + ${JSON.stringify(unit)}.repeat(${TEXT_CHARS / unit.length}) + ${JSON.stringify(after)}`;
    const script = `const text = ${made}; ${pattern.global ? `text.replace(${pattern}, "")` : `${pattern}.exec(text)`};`;
    const { status, signal } = spawnSync(process.execPath, ["-e", script], {
      timeout: END_MS_MAX,
      killSignal: "SIGKILL",
    });
    if (status !== 0 && signal === null) throw new Error(`The trial of ${pattern} failed.`);
    return status === 0;
  };

  const isLinear = (pattern: RegExp): boolean => suspects(pattern).every((trial) => ends(pattern, trial));

  /** Undefined for what is none: between a page's tags a slash may look like the beginning of one. */
  const patternOf = (written: string): RegExp | undefined => {
    const [, source = "", flags = ""] = /^\/([\s\S]*)\/([a-z]*)$/.exec(written) ?? [];
    const areFlags = /^[dgimsuvy]*$/.test(flags) && new Set(flags).size === flags.length;
    try {
      return areFlags ? new RegExp(source, flags) : undefined;
    } catch {
      return undefined;
    }
  };

  test("every regular expression of src takes time linear in its input", () => {
    expect(patterns.size).toBeGreaterThan(100);
    const slow: string[] = [];
    for (const written of patterns) {
      if (SHORT_READERS.has(written)) continue;
      const pattern = patternOf(written);
      if (pattern === undefined) continue;
      if (!isLinear(pattern)) slow.push(written);
    }
    expect(slow).toEqual([]);
    expect([...SHORT_READERS.keys()].filter((written) => !patterns.has(written))).toEqual([]);
  });

  test("a quadratic pattern is found", () => {
    expect(isLinear(/\/+$/)).toBe(false);
  });
});
