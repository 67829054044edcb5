/** Checks the platform's rules on Deno. Prints one line per rule: "ok" or what went wrong. Run by deno.test.ts. */
import { createPdfDrawer } from "../../src/commerce/pdf_drawer.ts";
import { createTokenCounter } from "../../src/gateway/tokens.ts";
import { redisBus } from "../../src/platform/bus.ts";
import { decrypt, digestOfKey, encrypt, newApiKey, newRequestId, Secret } from "../../src/platform/crypto.ts";
import { createLog } from "../../src/platform/log.ts";
import { createRateLimiter } from "../../src/platform/rate_limit.ts";
import {
  raiseFetchLimit,
  runtimeName,
  type ServeOptions,
  serve,
  sha256,
  upstreamFetch,
  upstreamTarget,
} from "../../src/platform/runtime.ts";

const log = createLog("silent");
const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const redisUrl = process.argv[2] ?? "";
const serving = (fetch: ServeOptions["fetch"], port = 0) =>
  serve({ port, hostname: "127.0.0.1", fetch, onError: () => Response.json({ error: "ours" }, { status: 500 }) });
const urlOf = ({ port }: { port: number }) => `http://127.0.0.1:${port}`;

const rules: Record<string, () => Promise<boolean> | boolean> = {
  "the runtime is Deno": () => runtimeName === "deno" && raiseFetchLimit(1000) === Number.POSITIVE_INFINITY,
  "sha256 is correct": () => Buffer.from(sha256("abc")).toString("hex").startsWith("ba7816bf8f01cfea"),
  "keys, ciphertext, ids and secrets": () => {
    const key = newApiKey();
    const ids = Array.from({ length: 10_000 }, () => newRequestId());
    return (
      digestOfKey(key.secret) === key.digest.toString("hex") &&
      digestOfKey(`${key.secret}x`) === undefined &&
      decrypt(Buffer.alloc(32), encrypt(Buffer.alloc(32), "é")) === "é" &&
      ids.every((id, i) => i === 0 || id > (ids[i - 1] ?? "")) &&
      `${new Secret("a")}` === "[secret]"
    );
  },
  "a taken port is EADDRINUSE": async () => {
    const server = serving(() => new Response());
    try {
      serving(() => new Response(), server.port);
      return false;
    } catch (error) {
      return error instanceof Error && "code" in error && error.code === "EADDRINUSE";
    } finally {
      await server.stop();
    }
  },
  "an error of the handler is answered by onError, and the peer has an address": async () => {
    const server = serving((request, peer) => {
      if (request.url.endsWith("/boom")) throw new Error("boom");
      return new Response(peer.address());
    });
    const failed = await upstreamFetch(upstreamTarget(`${urlOf(server)}/boom`), {});
    const fine = await upstreamFetch(upstreamTarget(urlOf(server)), {});
    const ok =
      failed.status === 500 && (await failed.text()) === '{"error":"ours"}' && (await fine.text()) === "127.0.0.1";
    await server.stop();
    return ok;
  },
  "stop waits for streams, until closeNow": async () => {
    const endless = () =>
      new Response(new ReadableStream({ start: (controller) => controller.enqueue(new Uint8Array(1)) }));
    const server = serving(endless);
    const response = await fetch(urlOf(server));
    let stopped = false;
    const stopping = server.stop().then(() => (stopped = true));
    await sleep(200);
    const waited = !stopped;
    await server.closeNow();
    await stopping;
    await response.body?.cancel();
    return waited;
  },
  "closeNow cuts": async () => {
    const server = serving(
      () => new Response(new ReadableStream({ start: (controller) => controller.enqueue(new Uint8Array(1)) })),
    );
    const response = await fetch(urlOf(server));
    await server.closeNow();
    return response.arrayBuffer().then(
      () => false,
      () => true,
    );
  },
  "tokens are counted in the worker": async () => {
    const counter = createTokenCounter({ log, waitingMax: 10 });
    const count = await counter.count("hello world", { accountId: 1, tenantId: 0 }, "settlement");
    counter.close();
    return count.exact && count.tokens === 2;
  },
  "a tokens worker that fails does not end the process": async () => {
    const startWorker = () => new Worker("data:application/javascript,throw new Error('no')", { type: "module" });
    const counter = createTokenCounter({ log, waitingMax: 10, startWorker });
    const count = await counter.count("abcd", { accountId: 1, tenantId: 0 }, "reservation");
    counter.close();
    return !count.exact && count.tokens === 3;
  },
  "an invoice is drawn in the worker": async () => {
    const drawer = createPdfDrawer(log);
    const seller = { name: "Acme", address: null, taxLine: null };
    const buyer = { name: "Ada", email: "ada@example.com", address: null, taxNumber: null };
    const invoice = {
      ...{
        invoiceId: 1,
        sellerId: 0,
        accountId: 5,
        number: 42,
        kind: "invoice" as const,
        language: "en" as const,
        orderId: 1,
        reference: "A1B2C3D4E5F6",
        correctsNumber: null,
      },
      ...{ seller, buyer, lines: [{ text: "Pro", quantity: 1, amountNano: 5_000_000_000n }] },
      ...{ currency: "usd", tax: null, taxNano: 0n, totalNano: 5_000_000_000n, issuedAt: "2026-11-23T23:30:00.000Z" },
    };
    const file = await drawer.draw(invoice, { brandName: "Acme", logo: null, timeZone: "UTC" });
    drawer.close();
    return new TextDecoder("latin1").decode(file).startsWith("%PDF-");
  },
  "the bus and the limiter work through Redis": async () => {
    const [a, b] = [redisBus(redisUrl, log), redisBus(redisUrl, log)];
    const limiter = createRateLimiter({
      redisUrl,
      perMinute: 3,
      inFlight: 2,
      accountPerMinute: 9,
      tenantPerMinute: 9,
      log,
    });
    const heard: string[] = [];
    b.subscribe((changes) => void heard.push(...changes.map(({ ref }) => ref)));
    for (let i = 0; i < 1500 && !(a.healthy() && b.healthy()); i++) await sleep(20);
    await a.publish([{ kind: "account", ref: "1" }]);
    for (let i = 0; i < 1500 && heard.length === 0; i++) await sleep(20);
    const taken = await Promise.allSettled(Array.from({ length: 5 }, () => limiter.take("deno")));
    const entered = await Promise.allSettled(Array.from({ length: 5 }, async () => limiter.begin("deno too").enter()));
    const granted = (results: PromiseSettledResult<unknown>[]) =>
      results.filter(({ status }) => status === "fulfilled").length;
    for (const one of [a, b, limiter]) one.close();
    return heard.join() === "1" && granted(taken) === 3 && granted(entered) === 2;
  },
  "the log is written": async () => {
    const loud = createLog("info");
    loud.info({ password: "hunter2" }, "a line of the log");
    await loud.flush();
    return true;
  },
};

for (const [rule, holds] of Object.entries(rules)) {
  try {
    console.log(`${(await holds()) ? "ok" : "NOT OK"}: ${rule}`);
  } catch (error) {
    console.log(`NOT OK: ${rule}: ${error}`);
  }
}
