import { spawn } from "node:child_process";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Shop } from "../../test/gateway/shop.ts";
import { a, startNameServer } from "../../test/name_server.ts";
import { type PanelSession, signInTo } from "../../test/panel/panel_client.ts";
import { residentBytes } from "../cpu.ts";
import type { Attack } from "./attack.ts";
import type { Assault, Toll } from "./attacker.ts";
import { ms, said } from "./neighbour.ts";
import { silentReceiver } from "./silent_receiver.ts";

/**
 * Attempts of a customer to keep others from being served, each beside a neighbour that sends 25 small chats a second.
 */

const ATTACK_SECONDS = 15;
const ATTACKER_KEYS = 34;
const RECORDS = 300_000;
const SAMPLE_MS = 50;
/** A sign-in takes 30 ms; while the runtime's threads waited for silent name servers, it took up to 28 s. */
const SIGN_IN_MS_MAX = 5_000;
/** How often somebody else signs in during the attack by names. */
const SIGN_IN_EVERY_MS = 2_000;
/** Reads of a burst; half of them are of the panel, where three bursts are what a person may send in a minute. */
const READS = 400;
const READS_KEYS = 10;
/** How often the other person reads a page: below what a minute allows. */
const PAGE_EVERY_MS = 150;
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
const DOMAINS: Part = { kind: "domains", keys: 1, atOnce: 1, signIn: asDomainOwner };
const DOCS: Part = { kind: "docs", keys: 1, atOnce: 100 };

export const starvingAttacks: Attack[] = [
  attack("nine bodies of 20 MiB with seven million objects each", [BOMBS]),
  attack("34 keys of one account, 300 silent bodies each", [SILENT]),
  attack("60 bodies of 20 MiB from one key", [BODIES]),
  attack("three keys that list usage by a filter that nothing passes", [USAGE]),
  attack("all four of these at once", [BOMBS, SILENT, BODIES, USAGE]),
  attack("strange Host names", [HOSTS]),
  attack("strange Host names, while a reseller adds a domain every second", [HOSTS, DOMAINS]),
  silentNames("25 webhooks at once whose name server is silent"),
  attack("10,000 voucher codes a request, ten times a second", [VOUCHERS]),
  attack("tests of a webhook whose receiver never answers", [HOOKS]),
  attack("/docs/openapi.json from one address", [DOCS]),
  burstsOfReads(`${READS} reads at once, of pages and balances, while another person reads a page`),
];

/** Another person reads a page of the panel again and again. */
function burstsOfReads(name: string): Attack {
  return {
    name,
    async run(shop, begin) {
      const secrets = await keysOf(shop, READS_KEYS);
      const [attacker] = await shop.world.sql`select max(account_id)::int as id from receipts`;
      const session = await signInTo(shop, { accountId: Number(attacker?.id) });
      const other = await signInTo(shop, await shop.world.addCustomer());
      await begin();
      let isOver = false;
      const pages = readUntil(other, () => isOver);
      const port = Number(new URL(shop.origin).port);
      const at = { headers: headersOf(session), path: "/api/panel/keys" };
      const what = { kind: "reads", port, atOnce: READS, secrets, seconds: ATTACK_SECONDS, session: at } as const;
      const toll = await assault(what);
      isOver = true;
      const seen = await pages;
      return {
        attacker: `reads: ${said(toll)}`,
        others: `${seen.failed} of ${seen.count} pages of another person failed; median ${ms(seen.medianMs)}, the slowest took ${ms(seen.slowestMs)}`,
        isStopped: seen.failed === 0,
      };
    },
  };
}

async function readUntil(person: PanelSession, isOver: () => boolean) {
  const tookMs: number[] = [];
  let failed = 0;
  while (!isOver()) {
    const startMs = performance.now();
    const { status } = await person.get("/keys");
    if (status !== 200) failed++;
    tookMs.push(performance.now() - startMs);
    await new Promise((resolve) => setTimeout(resolve, PAGE_EVERY_MS));
  }
  tookMs.sort((a, b) => a - b);
  const count = tookMs.length;
  return { count, failed, medianMs: tookMs[count >> 1] ?? 0, slowestMs: tookMs.at(-1) ?? 0 };
}

/** Others also sign in, and the neighbour's provider has a name that was not looked up lately. */
function silentNames(name: string): Attack {
  return {
    name,
    async run(shop, begin) {
      const dns = await startNameServer((host, type) => {
        if (host.startsWith("silent")) return "silent";
        return host === PROVIDER && type === "A" ? [a(host, "127.0.0.1", 1)] : "none";
      });
      const [provider] = await shop.world.sql`
        update providers set base_url = replace(base_url, '127.0.0.1', ${PROVIDER}) where name = 'neighbour' returning base_url`;
      const { host } = new URL(provider?.base_url);
      const replica = await shop.start({ NAME_SERVERS: dns.address, PROVIDER_ALLOW_PRIVATE: host });
      const { origin } = replica;
      const session = await signInTo(shop, await shop.world.addCustomer(), { origin });
      await begin(origin);
      let isOver = false;
      const signedIn = signInsUntil(shop, origin, () => isOver);
      const secrets = [JSON.stringify(headersOf(session))];
      const port = Number(new URL(origin).port);
      const toll = await assault({ kind: "names", port, atOnce: 25, secrets, seconds: ATTACK_SECONDS });
      isOver = true;
      const signIns = await signedIn;
      return {
        attacker: `names: ${said(toll)}; ${new Set(dns.asked).size} questions`,
        others: `${signIns.failed} of ${signIns.count} sign-ins failed, the slowest took ${ms(signIns.slowestMs)}`,
        isStopped: signIns.failed === 0 && signIns.slowestMs <= SIGN_IN_MS_MAX,
        async close() {
          await replica.kill();
          dns.close();
        },
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
    async run(shop, begin) {
      const port = Number(new URL(shop.origin).port);
      const secrets = await keysOf(shop, Math.max(...parts.map(({ keys }) => keys)));
      const sessions = await Promise.all(parts.map(({ signIn }) => signIn?.(shop)));
      await begin();
      const memory = watchMemory(shop);
      const tolls = await Promise.all(
        parts.map(({ kind, atOnce, keys }, i) => {
          const session = sessions[i];
          const part = { kind, port, atOnce, secrets: secrets.slice(0, keys), seconds: ATTACK_SECONDS };
          return assault({ ...part, ...(session && { session }) });
        }),
      );
      const { startMb, mostMb } = memory.end();
      return {
        attacker: parts.map(({ kind }, i) => `${kind}: ${said(tolls[i] ?? {})}`).join("; "),
        others: `replica ${startMb} → ${mostMb} MB`,
        isStopped: true, // If the neighbour is served.
      };
    },
  };
}

/** A reseller that makes vouchers. */
async function asReseller(shop: Shop): Promise<Assault["session"]> {
  const host = "ai.flood.test";
  const session = await signInTo(shop, await shop.world.addReseller(host), { host });
  return { headers: headersOf(session), path: "/api/panel/vouchers" };
}

/** A reseller that adds domains. */
async function asDomainOwner(shop: Shop): Promise<Assault["session"]> {
  const host = "ai.domains.test";
  const session = await signInTo(shop, await shop.world.addReseller(host), { host });
  return { headers: headersOf(session), path: "/api/panel/domains" };
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

/** An attacker is a process with the same priority as the replica, though it would normally be on another machine. */
function assault(what: Assault): Promise<Toll> {
  const child = spawn(process.execPath, [ATTACKER, JSON.stringify(what)], { stdio: ["ignore", "pipe", "inherit"] });
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
