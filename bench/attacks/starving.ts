import { spawn } from "node:child_process";
import { constants, setPriority } from "node:os";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Shop } from "../../test/gateway/shop.ts";
import { a, startNameServer } from "../../test/name_server.ts";
import { PANEL, type PanelSession, signInTo } from "../../test/panel/panel_client.ts";
import type { Person } from "../../test/world.ts";
import { residentBytes } from "../cpu.ts";
import type { Attack } from "./attack.ts";
import type { Assault, Toll } from "./attacker.ts";
import { type Neighbour, refusals, type Seen, watch } from "./neighbour.ts";
import { silentReceiver } from "./silent_receiver.ts";

/**
 * Attempts of a customer to keep others from being served, each beside a neighbour that sends 25 small chats a second.
 */

const ATTACK_SECONDS = 15;
const ALONE_MS = 8_000;
/** The maximum ratio of a neighbour's p99 to its undisturbed p99. */
const P99_RATIO_MAX = 3;
const ATTACKER_KEYS = 34;
const RECORDS = 300_000;
const SAMPLE_MS = 50;
const NEIGHBOURS = 5;
/** Enough for one request in five, alone and during the attack. */
const FRESH_KEYS = 200;
/** A sign-in takes 30 ms; while the runtime's threads waited for silent name servers, it took up to 28 s. */
const SIGN_IN_MS_MAX = 5_000;
/** How often somebody else signs in during the attack by names. */
const SIGN_IN_EVERY_MS = 2_000;
const PROVIDER = "provider.test";
const ATTACKER = fileURLToPath(new URL("attacker.ts", import.meta.url));

type Part = Pick<Assault, "kind" | "atOnce"> & { keys: number; signIn?: (shop: Shop) => Promise<Assault["session"]> };

const BOMBS: Part = { kind: "bombs", keys: 1, atOnce: 9 };
const SILENT: Part = { kind: "silent", keys: ATTACKER_KEYS, atOnce: 300 };
const BODIES: Part = { kind: "bodies", keys: 1, atOnce: 60 };
const USAGE: Part = { kind: "usage", keys: 3, atOnce: 50 };
const HOSTS: Part = { kind: "hosts", keys: 1, atOnce: 100 };
const VOUCHERS: Part = { kind: "vouchers", keys: 1, atOnce: 1, signIn: asReseller };
const HOOKS: Part = { kind: "hooks", keys: 1, atOnce: 1, signIn: withSilentHook };
const DOCS: Part = { kind: "docs", keys: 1, atOnce: 100 };

export const starvingAttacks: Attack[] = [
  attack("14. nine bodies of 20 MiB with seven million objects each", [BOMBS]),
  attack("15. 34 keys of one account, 300 silent bodies each", [SILENT]),
  attack("16. 60 bodies of 20 MiB from one key", [BODIES]),
  attack("17. three keys that list usage by a filter that nothing passes", [USAGE]),
  attack("18. strange Host names", [HOSTS]),
  attack("20. 10,000 voucher codes a request, ten times a second", [VOUCHERS]),
  attack("21. tests of a webhook whose receiver never answers", [HOOKS]),
  attack("22. /docs/openapi.json from one address", [DOCS]),
  attack("14 to 17 at once", [BOMBS, SILENT, BODIES, USAGE]),
  silentNames("19. 25 webhooks at once whose name server is silent"),
];

/** The neighbours also sign in and call a provider by a name that was not looked up lately. */
function silentNames(name: string): Attack {
  return {
    name,
    async run(shop) {
      const dns = await startNameServer((host, type) => {
        if (host.startsWith("silent")) return "silent";
        return host === PROVIDER && type === "A" ? [a(host, "127.0.0.1", 1)] : "none";
      });
      const port = String(shop.provider.port);
      const replica = await shop.start({ NAME_SERVERS: dns.address, PROVIDER_ALLOW_PRIVATE: `${PROVIDER}:${port}` });
      await shop.world
        .sql`update providers set base_url = replace(base_url, ${`127.0.0.1:${port}`}, ${`${PROVIDER}:${port}`})`;
      const { origin } = replica;
      const session = await signInTo(shop, await shop.world.addCustomer(), { origin });
      const headers = { cookie: session.cookie, "x-csrf-token": session.csrf, host: PANEL, origin: `http://${PANEL}` };
      const neighbours = await openNeighbours(shop);
      const secrets = neighbours.map(({ secret }) => secret);
      const neighbour: Neighbour = { port: Number(new URL(origin).port), secrets, fresh: [] };
      const alone = await watchFor(neighbour, ALONE_MS);
      let isOver = false;
      const seen = watch(neighbour, () => isOver);
      const signedIn = signInsUntil(shop, origin, () => isOver);
      const toll = await assault({
        ...{ kind: "names", port: neighbour.port, atOnce: 25, secrets: [JSON.stringify(headers)] },
        seconds: ATTACK_SECONDS,
      });
      isOver = true;
      const [during, signIns] = await Promise.all([seen, signedIn]);
      await replica.kill();
      dns.close();
      const ratio = during.p99Ms / alone.p99Ms;
      return {
        attacker: `names: ${said(toll)}; ${new Set(dns.asked).size} questions`,
        others: `${refusals(during)} of ${during.requests} refused${said(during.refused) && ` (${said(during.refused)})`}; p99 ${ms(alone.p99Ms)} → ${ms(during.p99Ms)} (× ${ratio.toFixed(1)}); ${signIns.failed} of ${signIns.count} sign-ins failed, the slowest took ${ms(signIns.slowestMs)}`,
        isStopped:
          refusals(during) === 0 &&
          ratio <= P99_RATIO_MAX &&
          signIns.failed === 0 &&
          signIns.slowestMs <= SIGN_IN_MS_MAX,
      };
    },
  };
}

async function signInsUntil(shop: Shop, origin: string, isOver: () => boolean) {
  const seen = { count: 0, failed: 0, slowestMs: 0 };
  while (!isOver()) {
    const person = await shop.world.addCustomer();
    const startMs = performance.now();
    seen.count++;
    await signInTo(shop, person, { origin }).catch(() => seen.failed++);
    seen.slowestMs = Math.max(seen.slowestMs, performance.now() - startMs);
    await new Promise((resolve) => setTimeout(resolve, SIGN_IN_EVERY_MS));
  }
  return seen;
}

function attack(name: string, parts: readonly Part[]): Attack {
  return {
    name,
    async run(shop) {
      const port = Number(new URL(shop.origin).port);
      const secrets = await keysOf(shop, Math.max(...parts.map(({ keys }) => keys)));
      const neighbours = await openNeighbours(shop);
      const fresh = await Promise.all(
        Array.from(
          { length: FRESH_KEYS },
          async (_, i) => (await shop.world.addKey(neighbours[i % NEIGHBOURS] as Person)).secret,
        ),
      );
      const sessions = await Promise.all(parts.map(({ signIn }) => signIn?.(shop)));
      const neighbour: Neighbour = { port, secrets: neighbours.map(({ secret }) => secret), fresh };
      await watchFor(neighbour, 2_000); // Warms the caches.
      const alone = await watchFor(neighbour, ALONE_MS);
      const memory = watchMemory(shop);
      let isOver = false;
      const seen = watch(neighbour, () => isOver);
      const tolls = await Promise.all(
        parts.map(({ kind, atOnce, keys }, i) => {
          const session = sessions[i];
          const part = { kind, port, atOnce, secrets: secrets.slice(0, keys), seconds: ATTACK_SECONDS };
          return assault({ ...part, ...(session && { session }) });
        }),
      );
      isOver = true;
      const during = await seen;
      const { startMb, mostMb } = memory.end();
      const ratio = during.p99Ms / alone.p99Ms;
      return {
        attacker: parts.map(({ kind }, i) => `${kind}: ${said(tolls[i] ?? {})}`).join("; "),
        others: `${refusals(during)} of ${during.requests} refused${said(during.refused) && ` (${said(during.refused)})`}; p50 ${ms(alone.p50Ms)} → ${ms(during.p50Ms)}, p99 ${ms(alone.p99Ms)} → ${ms(during.p99Ms)} (× ${ratio.toFixed(1)}); replica ${startMb} → ${mostMb} MB`,
        isStopped: refusals(during) === 0 && ratio <= P99_RATIO_MAX,
      };
    },
  };
}

function openNeighbours(shop: Shop) {
  const spec = { dailyLimit: 1_000_000, totalLimit: 30_000_000 };
  return Promise.all(Array.from({ length: NEIGHBOURS }, () => shop.customer(spec)));
}

/** A reseller that makes vouchers. */
async function asReseller(shop: Shop): Promise<Assault["session"]> {
  const host = "ai.flood.test";
  const session = await signInTo(shop, await shop.world.addReseller(host), { host });
  return { headers: headersOf(session), path: "/api/panel/vouchers" };
}

/** A customer with a webhook whose receiver accepts connections and says nothing. */
async function withSilentHook(shop: Shop): Promise<Assault["session"]> {
  const session = await signInTo(shop, await shop.world.addCustomer());
  const url = `http://${await silentReceiver()}/`;
  const { status, json, text } = await session.post("/webhooks", { url, kinds: ["balance_low"] });
  if (status !== 200) throw new Error(`the webhook was not added: ${text}`);
  return { headers: headersOf(session), path: `/api/panel/webhooks/${json.endpoint.endpointId}/test` };
}

function headersOf({ host, cookie, csrf }: PanelSession): Record<string, string> {
  return { host, cookie, origin: `http://${host}`, "x-csrf-token": csrf };
}

/** Keys of one account with many usage records. */
async function keysOf(shop: Shop, count: number): Promise<string[]> {
  const attacker = await shop.customer({ dailyLimit: 1_000_000, totalLimit: 30_000_000 });
  const keys = [attacker.secret];
  while (keys.length < count) keys.push((await shop.world.addKey(attacker)).secret);
  await shop.world.sql`
    insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd, charged_nano_usd,
      shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
    select (left(request_id_floor(at)::text, 14) || '7000-8000-' || lpad(n::text, 12, '0'))::uuid, ${attacker.accountId}, ${attacker.keyId},
      'chat-a', 'localhost', 'payg', 'settled', 'complete', 0, 0, 0, 0, 10, 0, 10, 20, false, at, at
    from (select n, clock_timestamp() - interval '2 hours' + n * interval '20 milliseconds' as at from generate_series(1, ${RECORDS}::int) as n) as made`;
  await shop.world.sql`analyze receipts`;
  return keys;
}

async function watchFor(neighbour: Neighbour, forMs: number): Promise<Seen> {
  const endsAt = performance.now() + forMs;
  return watch(neighbour, () => performance.now() > endsAt);
}

/**
 * An attacker is a process of the lowest priority, so that the others do not wait for its work, which would normally be
 * on another machine.
 */
function assault(what: Assault): Promise<Toll> {
  const child = spawn(process.execPath, [ATTACKER, JSON.stringify(what)], { stdio: ["ignore", "pipe", "inherit"] });
  if (child.pid !== undefined) setPriority(child.pid, constants.priority.PRIORITY_LOW);
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text) => {
    said += text;
  });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => {
      if (code === 0) resolve(JSON.parse(said));
      else reject(new Error(`the attacker of kind ${what.kind} ended with ${code}`));
    });
  });
}

/** The replica's resident memory at the start and at most, MB. */
function watchMemory(shop: Shop): { end(): { startMb: number; mostMb: number } } {
  const pid = shop.replicas[0]?.process.pid ?? 0;
  const megabytes = () => Math.round((residentBytes(pid) ?? 0) / 1024 / 1024);
  const startMb = megabytes();
  let mostMb = startMb;
  const timer = setInterval(() => {
    mostMb = Math.max(mostMb, megabytes());
  }, SAMPLE_MS);
  return {
    end() {
      clearInterval(timer);
      return { startMb, mostMb };
    },
  };
}

function said(toll: Toll): string {
  return Object.entries(toll)
    .map(([status, n]) => `${n} × ${status}`)
    .join(", ");
}

function ms(value: number): string {
  return `${value < 100 ? value.toFixed(1) : Math.round(value)} ms`;
}
