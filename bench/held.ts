import { createServer } from "node:net";
import process from "node:process";
import { createProviderClient } from "../src/catalog/provider_client.ts";
import { chatStream, openStream } from "../src/gateway/upstream_chat.ts";
import { AnswerMemory } from "../src/platform/answer_memory.ts";
import { createLog } from "../src/platform/log.ts";
import { route } from "../test/catalog/sockets.ts";

/**
 * `bun run bench:held`: how much memory a process needs for streams that have not begun, as a multiple of the bytes that are counted for
 * them. Providers send 7 MiB of an event that never ends, in a process of their own. `ANSWER_MEMORY_MAX` bounds the counted bytes.
 */

const MIB = 1024 * 1024;
const EVENT_BYTES = 7 * MIB;
const PROVIDERS = [1, 2, 5, 10, 20, 40];
const PIECE = Buffer.alloc(64 * 1024, "a");
const MEMORY_MAX = 256 * MIB;
const SETTLE_MS = 1_000;

if (process.argv[2] === "provider") serveProvider();
else await measure();

function serveProvider(): void {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => {
      socket.write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ");
      for (let sent = 0; sent < EVENT_BYTES; sent += PIECE.length) socket.write(PIECE);
    });
  });
  server.listen(0, "127.0.0.1", () => {
    const address = server.address();
    if (typeof address === "object" && address !== null) console.log(address.port);
  });
}

async function measure(): Promise<void> {
  const child = Bun.spawn([process.execPath, import.meta.path, "provider"], { stdout: "pipe" });
  const { value } = await child.stdout.getReader().read();
  const port = Number(new TextDecoder().decode(value));
  const config = {
    providerConnectMs: 5_000,
    providerFirstByteMs: 600_000,
    providerAllowPrivate: [`127.0.0.1:${port}`],
  };
  const provider = createProviderClient({ config, log: createLog("silent") });
  let ended = 0;
  const memory = new AnswerMemory({
    ...{ max: MEMORY_MAX, min: MEMORY_MAX, fractions: { account: 1, tenant: 1 }, onShed: () => ended++ },
  });
  const call = new AbortController();
  const open = () =>
    openStream(
      {
        ...{ provider, answerMemory: memory, payer: { accountId: 1, tenantId: 0 }, requestId: "bench" },
        ...{ signal: call.signal, traceparent: undefined, beforeSend() {}, onHeaders() {} },
        ...{ firstByteMs: 600_000, totalMs: 600_000 },
      },
      route(`http://127.0.0.1:${port}/v1`),
      chatStream({ text: "{}", dropped: undefined }, route(`http://127.0.0.1:${port}/v1`)),
    ).catch(() => {});

  Bun.gc(true);
  const beforeMib = process.memoryUsage.rss() / MIB;
  console.log(
    `Bun ${Bun.version}, ${EVENT_BYTES / MIB} MiB of an event each, at most ${MEMORY_MAX / MIB} MiB held; before: ${Math.round(beforeMib)} MiB resident\n`,
  );
  console.log("| providers | held, MiB | ended | resident, MiB more | of held |\n| --- | --- | --- | --- | --- |");
  let opened = 0;
  for (const count of PROVIDERS) {
    for (; opened < count; opened++) void open();
    await arrived(memory);
    const heldMib = memory.held / MIB;
    const grownMib = process.memoryUsage.rss() / MIB - beforeMib;
    console.log(
      `| ${count} | ${heldMib.toFixed(0)} | ${ended} | ${grownMib.toFixed(0)} | ${(grownMib / heldMib).toFixed(1)} × |`,
    );
  }
  child.kill();
  process.exit(0);
}

/** Waits until nothing more arrives. */
async function arrived(memory: AnswerMemory): Promise<void> {
  for (let before = -1; before !== memory.held; ) {
    before = memory.held;
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
  }
}
