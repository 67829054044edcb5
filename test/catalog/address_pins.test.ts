import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { denoProgram } from "../../scripts/test_deno.ts";
import type { Address } from "../../src/catalog/guard.ts";
import { createProviderClient } from "../../src/catalog/provider_client.ts";
import { ProviderFailure } from "../../src/catalog/provider_errors.ts";
import { upstreamTarget } from "../../src/platform/runtime.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { AUTHORITY, CERTIFICATES } from "./certificates.ts";
import { rejectionOf, route } from "./sockets.ts";

/** Providers are called at the checked address, even if their name resolves to another one a moment later. */
const REACHED_FOR_MS = 10_000;
const FIRST: Address = { address: "127.0.0.1", family: 4 };
/** A second address of this machine: macOS has only one of IPv4. */
const LATER: Address =
  process.platform === "darwin" ? { address: "::1", family: 6 } : { address: "127.0.0.2", family: 4 };
const CHECKED_FOR_MS = 60_000;

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** Two servers on the same port: the one that the name resolves to first, and the one later. */
async function twoMachines() {
  const calls = { first: 0, later: 0 };
  const start = (which: "first" | "later", host: string, port: number) =>
    new Promise<number>((resolve, reject) => {
      const server = createServer((request, response) => {
        calls[which] += 1;
        response.setHeader("content-type", "application/json").end(JSON.stringify({ host: request.headers.host }));
      });
      server.on("error", reject);
      closers.push(() => {
        server.closeAllConnections();
        server.close();
      });
      server.listen(port, host, () => {
        const address = server.address();
        resolve(typeof address === "object" && address ? address.port : 0);
      });
    });
  const port = await start("first", FIRST.address, 0);
  await start("later", LATER.address, port);
  return { port, calls };
}

/** A client whose resolver answers with `leadsTo`, and a test clock. */
function clientOf(port: number) {
  const state = { leadsTo: FIRST, isResolverAway: false, lookups: 0, ms: 0 };
  const allowed = [`rebind.example:${port}`];
  const resolve = async (): Promise<Address[]> => {
    state.lookups += 1;
    if (state.isResolverAway) throw new Error("SERVFAIL");
    return [state.leadsTo];
  };
  const config = { providerConnectMs: 5_000, providerFirstByteMs: 5_000, providerAllowPrivate: allowed };
  const client = createProviderClient({ config, log: quietLog().log, now: () => state.ms, resolve });
  const upstream = route(`http://rebind.example:${port}/v1`);
  const options = { accept: "application/json" as const, signal: new AbortController().signal };
  const post = async () => (await client.post(upstream, "/x", "{}", options)).json() as Promise<{ host: string }>;
  return { state, allowed, post };
}

/** The error of `post`, or undefined. */
const kindOf = async (call: Promise<unknown>) => {
  const thrown = await rejectionOf(call);
  return thrown instanceof ProviderFailure ? thrown.kind : String(thrown);
};

async function until(isSo: () => Promise<boolean>): Promise<void> {
  for (let i = 0; i < 500; i++) {
    if (await isSo()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error("it did not come to pass");
}

describe("a provider's name whose address changes (DNS rebinding)", () => {
  test("is called at the checked address, under its own name, without a second look-up", async () => {
    const { port, calls } = await twoMachines();
    const { state, post } = clientOf(port);
    expect((await post()).host).toBe(`rebind.example:${port}`);
    state.leadsTo = LATER;
    for (let i = 0; i < 20; i++) {
      state.ms += 1_000;
      await post();
    }
    expect(calls).toEqual({ first: 21, later: 0 });
    expect(state.lookups).toBe(1);
  });

  test("a new private address is refused by the next check and never connected to", async () => {
    const { port, calls } = await twoMachines();
    const { state, allowed, post } = clientOf(port);
    await post();
    // From here on the name is like any other that may not be private.
    allowed.length = 0;
    state.leadsTo = LATER;
    while (state.ms < CHECKED_FOR_MS) {
      state.ms += REACHED_FOR_MS - 1;
      await post().catch(() => {});
    }
    await until(() =>
      post().then(
        () => false,
        () => true,
      ),
    );
    expect(await kindOf(post())).toBe("address");
    expect(calls.later).toBe(0);
  });

  test("is looked up again before the next call after a quiet period", async () => {
    const { port, calls } = await twoMachines();
    const { state, allowed, post } = clientOf(port);
    await post();
    allowed.length = 0;
    state.leadsTo = LATER;
    state.ms += REACHED_FOR_MS;
    expect(await kindOf(post())).toBe("address");
    expect(calls).toEqual({ first: 1, later: 0 });
  });

  test("a new allowed address is used within a minute; a resolver that fails changes nothing", async () => {
    const { port, calls } = await twoMachines();
    const { state, post } = clientOf(port);
    await post();
    state.isResolverAway = true;
    const busy = async (forMs: number) => {
      for (let ms = 0; ms < forMs; ms += 9_000) {
        state.ms += 9_000;
        await post();
      }
    };
    await busy(2 * CHECKED_FOR_MS);
    expect(calls.later).toBe(0);
    state.isResolverAway = false;
    state.leadsTo = LATER;
    await busy(2 * CHECKED_FOR_MS);
    await until(() => post().then(() => calls.later > 0));
  });
});

test("upstreamTarget looks up no name, and throws without a checked address", () => {
  expect(() => upstreamTarget("http://localhost:1/")).toThrow("needs a checked address");
  expect(() => upstreamTarget("http://localhost:1/", "localhost")).toThrow("needs a checked address");
});

describe("TLS certificates are verified against the name, not the address", () => {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-pinning-"));
  const authority = join(folder, "authority.pem");
  let server: ReturnType<typeof Bun.serve>;
  beforeAll(() => {
    writeFileSync(authority, AUTHORITY);
    server = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      tls: Object.entries(CERTIFICATES).map(([serverName, pair]) => ({ serverName, ...pair })),
      fetch: (request) => Response.json({ data: [{ id: request.headers.get("host") }] }),
    });
  });
  afterAll(async () => {
    await server.stop(true);
    rmSync(folder, { recursive: true });
  });

  /** a and b share an address and a port; nobody has a certificate for c. */
  const NAMES = "a.example,b.example,a.example,c.example,b.example,c.example,a.example";

  async function outcomes(command: string[], trusted: boolean): Promise<string[]> {
    const script = join(import.meta.dirname, "address_pins_check.ts");
    const child = Bun.spawn([...command, script, String(server.port), NAMES], {
      env: { PATH: process.env.PATH ?? "", HOME: folder, ...(trusted && { NODE_EXTRA_CA_CERTS: authority }) },
      stdout: "pipe",
      stderr: "pipe",
    });
    const lines = (await new Response(child.stdout).text()).trim().split("\n");
    expect([await child.exited, await new Response(child.stderr).text()]).toEqual([0, expect.anything()]);
    return lines;
  }

  for (const [runtime, command] of [
    ["Bun", [process.execPath]],
    ["Deno", [denoProgram(), "run", "--allow-all", "--no-check"]],
  ] as const) {
    test(`${runtime}: two names with one address each need their own certificate; a wrong certificate is refused`, async () => {
      const seen = await outcomes([...command], true);
      expect(seen.map((line) => line.split(" ").slice(0, 2).join(" "))).toEqual(
        NAMES.split(",").map((name) => `${name} ${name === "c.example" ? "failed" : "ok"}`),
      );
      const hosts = seen.filter((line) => line.includes(" ok ")).map((line) => line.split(" ").at(-1));
      expect(hosts).toEqual(["a", "b", "a", "b", "a"].map((name) => `${name}.example:${server.port}`));
    });

    test(`${runtime}: a certificate of an untrusted authority is refused`, async () => {
      for (const line of await outcomes([...command], false)) expect(line).toContain(" failed ");
    });
  }
});
