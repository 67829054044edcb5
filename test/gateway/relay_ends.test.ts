import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Socket } from "node:net";
import { createProviderClient, type ProviderClient } from "../../src/catalog/provider_client.ts";
import type { RelayOptions } from "../../src/gateway/relay.ts";
import { type RawServer, route, startRawServer } from "../catalog/sockets.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { SEED } from "../property.ts";
import { randomOf } from "../random.ts";
import { bytesOf, CHUNK, facts, handProvider, noteEnds, open, openOne, piecesFrom, relayed } from "./relay_streams.ts";

/**
 * How a stream ends, once: also when the ledger fails, the client has left, the replica shuts down, or the provider keeps its
 * connection open. Source: END-3, END-5, STR-2, STR-5.
 */

beforeAll(() => console.log(`seed ${SEED}`));

describe("an end that the ledger fails to take", () => {
  const failing = async () => {
    throw new Error("the disk is full");
  };

  /** Nothing is left open, the failure was reported once, and the client got no clean end. */
  async function expectFailed(
    { own, failures, reader, state }: Awaited<ReturnType<typeof openOne>>,
    isCancelled = false,
  ): Promise<void> {
    await until(() => failures.length > 0);
    expect(failures).toEqual([new Error("the disk is full")]);
    let text = "";
    const broke = await (async () => {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return false;
        text += new TextDecoder().decode(value);
      }
    })().catch(() => true);
    expect({ broke, done: text.includes("[DONE]") }).toEqual({ broke: !isCancelled, done: false });
    expect([own.count(), state.aborted]).toEqual([0, true]);
    own.close();
  }

  test("complete: the stream is cut without [DONE]", async () => {
    const one = await openOne({}, { complete: failing });
    await one.next();
    one.send("data: [DONE]\n\n: more\n\n");
    one.send(": and more\n\n");
    await expectFailed(one);
  });
  test("the provider broke off", async () => {
    const one = await openOne({}, { broke_off: failing });
    await one.next();
    one.send("data: oops\n\n");
    await expectFailed(one);
  });
  test("the provider is silent: detected by the timer, which nothing awaits", async () => {
    const one = await openOne({}, { fell_silent: failing });
    await one.next();
    one.send(": line\n");
    await one.jump(121_000);
    await expectFailed(one);
  });
  test("the client left", async () => {
    const one = await openOne({}, { client_left: failing });
    await one.next();
    await one.reader.cancel();
    await expectFailed(one, true);
  });
  test("the client reads too slowly: detected by the timer, which nothing awaits", async () => {
    const one = await openOne({}, { client_left: failing });
    await one.jump(61_000);
    await expectFailed(one);
  });
  test("the replica shuts down: the other streams are ended too", async () => {
    const one = await openOne({}, { ended_by_us: failing });
    const other = noteEnds();
    const stream = one.own.start(await open(handProvider().provider), facts(), other.owner);
    await one.own.endAll();
    expect(other.ended).toEqual([{ how: "ended_by_us" }]);
    expect(await new Response(stream).text()).toEndWith('data: {"error":"ended by us"}\n\n');
    await expectFailed(one);
  });
  test("an unhandled rejection ends the process, so none happened in these tests", async () => {
    // The tests above rely on this: the runtime ends the process for an unhandled rejection.
    const child = Bun.spawn(
      [process.execPath, "-e", "void (async () => { throw new Error('x') })(); setTimeout(() => {}, 1000)"],
      { stderr: "ignore" },
    );
    expect(await child.exited).not.toBe(0);
  });
});

describe("exactly one end", () => {
  test("is made for a stream that starts after the shutdown", async () => {
    const one = await openOne();
    await one.own.endAll();
    const late = noteEnds();
    const hand = handProvider();
    const text = await new Response(one.own.start(await open(hand.provider), facts(), late.owner)).text();
    expect(text).toBe('data: {"error":"ended by us"}\n\n');
    expect([late.ended, hand.state.aborted, one.own.count()]).toEqual([[{ how: "ended_by_us" }], true, 0]);
    one.own.close();
  });

  test("of a client that left before it was sent anything: the usage that has arrived counts, and no text", async () => {
    const one = await openOne();
    const report = { choices: [], usage: { prompt_tokens: 1, completion_tokens: 300 } };
    const hand = handProvider(`${CHUNK({ content: "not sent" })}data: ${JSON.stringify(report)}\n\n`);
    const left = noteEnds();
    await one.own.start(await open(hand.provider), facts(), left.owner).cancel();
    expect(left.ended).toMatchObject([
      { how: "client_left", isWhole: false, relayed: { text: "", usage: { completionTokens: 300 } } },
    ]);
    expect(hand.state.aborted).toBe(true);
    await one.reader.cancel();
    one.own.close();
  });

  test("is kept if the client leaves while the end is being settled", async () => {
    const settled = Promise.withResolvers<void>();
    const ended: string[] = [];
    const one = await openOne(
      {},
      {
        complete: async () => {
          ended.push("complete");
          await settled.promise;
        },
        client_left: async () => void ended.push("client_left"),
      },
    );
    await one.next();
    one.send(CHUNK({}, "stop"));
    await one.next();
    one.close();
    await until(() => ended.length === 1);
    await one.reader.cancel();
    settled.resolve();
    await one.own.endAll();
    await sleep(10);
    expect([ended, one.failures, one.own.count()]).toEqual([["complete"], [], 0]);
    one.own.close();
  });

  test("is kept in 300 random combinations of all ends", async () => {
    const random = randomOf(SEED).next;
    for (let round = 0; round < 300; round++) {
      const one = await openOne();
      const acts = [
        () => one.send(CHUNK({ content: "x" })),
        () => one.send("data: [DONE]\n\n"),
        () => one.send("data: oops\n\n"),
        () => void one.own.endAll(),
        () => void one.reader.cancel(),
        () => void one.reader.read().catch(() => {}), // It may break off: which end came first is not the question.
      ];
      for (let i = 0; i < 6; i++) {
        try {
          acts[Math.floor(random() * acts.length)]?.();
        } catch {
          // The provider's side is closed already.
        }
        if (random() < 0.5) await Promise.resolve();
        if (random() < 0.2) await sleep(0);
      }
      await one.own.endAll();
      await until(() => one.ended.length > 0);
      if (one.ended.length !== 1 || one.failures.length > 0)
        expect({ SEED, round, ended: one.ended, failures: one.failures }).toEqual({
          SEED,
          round,
          ended: [expect.anything()],
          failures: [],
        });
      expect(one.own.count()).toBe(0);
      one.own.close();
    }
  });
});

describe("reading on after the client has left", () => {
  const usage = (tokens: number) =>
    `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 1, completion_tokens: tokens } })}\n\n`;
  const openLeft = async (options: Partial<RelayOptions> = {}) => {
    const one = await openOne(options, {}, true);
    expect(await one.next()).toContain("one");
    await one.reader.cancel();
    expect([one.own.count(), one.own.readOn(), one.ended, one.state.aborted]).toEqual([0, 1, [], false]);
    return one;
  };

  test("continues to the provider's end: the usage is the provider's, the text is the relayed text", async () => {
    const one = await openLeft();
    one.send(CHUNK({ content: "not relayed" }));
    one.send(CHUNK({}, "stop"));
    one.send(usage(700));
    one.send("data: [DONE]\n\n");
    one.close();
    await until(() => one.ended.length > 0);
    expect(one.ended).toMatchObject([
      { how: "client_left", isWhole: true, relayed: { text: "one", usage: { completionTokens: 700 } } },
    ]);
    expect(one.own.readOn()).toBe(0);
    one.own.close();
  });

  test("settles by the last report if the provider breaks off", async () => {
    const one = await openLeft();
    one.send(usage(300));
    one.send("data: oops\n\n");
    await until(() => one.ended.length > 0);
    expect(one.ended).toMatchObject([
      { how: "client_left", isWhole: false, relayed: { usage: { completionTokens: 300 } } },
    ]);
    expect([one.own.readOn(), one.state.aborted]).toEqual([0, true]);
    one.own.close();
  });

  test.each([
    ["the provider falls silent", 121_000, ["provider_idle"]],
    ["it takes too long", 301_000, []],
  ] as const)("%s: its call is ended, and its last report counts", async (_, ms, limits) => {
    const one = await openLeft(limits.length > 0 ? {} : { providerIdleMs: 400_000 });
    one.send(usage(300));
    await one.jump(ms);
    expect([one.timeouts, one.own.readOn(), one.state.aborted]).toEqual([[...limits], 0, true]);
    expect(one.ended).toMatchObject([
      { how: "client_left", isWhole: false, relayed: { usage: { completionTokens: 300 } } },
    ]);
    one.own.close();
  });

  test("is limited in number: further calls are aborted when their clients leave", async () => {
    const one = await openOne({ readOnMax: 0 }, {}, true);
    await one.next();
    await one.reader.cancel();
    expect([one.own.readOn(), one.state.aborted]).toEqual([0, true]);
    expect(one.ended).toMatchObject([{ how: "client_left", isWhole: false }]);
    one.own.close();
  });

  test("is limited by account and by tenant: one cannot take the places of others", async () => {
    const sheds: string[] = [];
    const one = await openOne({ readOnMax: 8, onShed: (reason) => sheds.push(reason) });
    const leave = async (payer: { accountId: number; tenantId: number }) => {
      const hand = handProvider();
      const before = one.own.readOn();
      const reader = one.own
        .start(await open(hand.provider), { ...facts(), readsOn: true, payer }, noteEnds({}).owner)
        .getReader();
      await reader.read();
      await reader.cancel();
      return one.own.readOn() > before;
    };
    const account = { accountId: 1, tenantId: 9 };
    const colleague = { accountId: 2, tenantId: 9 };
    const third = { accountId: 3, tenantId: 9 };
    const stranger = { accountId: 4, tenantId: 0 };
    const results: boolean[] = [];
    for (const payer of [account, account, account, colleague, colleague, third, stranger])
      results.push(await leave(payer));
    expect(results).toEqual([true, true, false, true, true, false, true]);
    expect(sheds).toEqual(["read_on_per_account", "read_on_per_tenant"]);
    one.own.close();
  });

  test("does not happen if the whole answer has already arrived", async () => {
    const one = await openOne({}, {}, true);
    await one.next();
    one.send(CHUNK({}, "stop") + usage(700));
    await one.next();
    await one.reader.cancel();
    expect(one.ended).toMatchObject([
      { how: "client_left", isWhole: true, relayed: { usage: { completionTokens: 700 } } },
    ]);
    one.own.close();
  });

  test("happens after the finish_reason too, until the usage has arrived", async () => {
    const one = await openOne({}, {}, true);
    await one.next();
    one.send(CHUNK({}, "stop"));
    await one.next();
    await one.reader.cancel();
    expect([one.own.readOn(), one.ended]).toEqual([1, []]);
    one.send(usage(700));
    one.send("data: [DONE]\n\n");
    one.close();
    await until(() => one.ended.length > 0);
    expect(one.ended).toMatchObject([
      { how: "client_left", isWhole: true, relayed: { usage: { completionTokens: 700 } } },
    ]);
    one.own.close();
  });

  test("is settled once, by the known usage, if the replica shuts down", async () => {
    const one = await openLeft();
    one.send(usage(300));
    await sleep(20); // Read by now.
    await one.own.endAll();
    expect(one.ended).toMatchObject([
      { how: "client_left", isWhole: false, relayed: { usage: { completionTokens: 300 } } },
    ]);
    expect([one.own.readOn(), one.state.aborted]).toEqual([0, true]);
    await sleep(20);
    expect(one.ended).toHaveLength(1);
    one.own.close();
  });
});

describe("after [DONE]", () => {
  let server: RawServer;
  let provider: ProviderClient;
  let behave: (socket: Socket) => void = () => {};
  let closed = 0;
  const seen = new WeakSet<Socket>();
  beforeAll(async () => {
    server = await startRawServer((socket) => {
      if (!seen.has(socket)) socket.once("close", () => closed++);
      seen.add(socket);
      behave(socket);
    });
    const config = { providerConnectMs: 5_000, providerFirstByteMs: 20_000, providerAllowPrivate: [server.hostPort] };
    provider = createProviderClient({ config, log: quietLog().log });
  });
  afterAll(() => server.close());

  const ask = () => relayed(provider, { to: route(server.baseUrl) });
  const wire = `${CHUNK({ content: "one" })}${CHUNK({}, "stop")}data: [DONE]\n\n`;
  const chunked = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
  const HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";

  test("nothing that the provider sends behind it is relayed or counted, whether it looks like the events before or not", async () => {
    const said = ["one", "two", "three"].map((content) => CHUNK({ content }));
    for (const behind of [
      CHUNK({ content: "four" }),
      CHUNK({ reasoning_content: "four" }, "length"),
      "data: four\n\n",
    ]) {
      const pieces = [...said, `data: [DONE]\n\n${behind}`];
      // Sent apart, they are rewritten as they are read; in one piece, from the payloads of the stream's beginning.
      for (const sent of [[pieces[0] ?? "", pieces.slice(1).join("")], [pieces.join("")]]) {
        const { text, ended } = await relayed(piecesFrom(sent.map(bytesOf)));
        expect(text).toEndWith("data: [DONE]\n\n");
        expect(text).not.toContain("four");
        expect(ended).toMatchObject([{ how: "complete", relayed: { text: "onetwothree" } }]);
      }
    }
  });

  test("the provider closes the stream: the connection is reused", async () => {
    behave = (socket) => socket.write(`${HEAD}transfer-encoding: chunked\r\n\r\n${chunked(wire)}0\r\n\r\n`);
    await ask();
    const before = server.connections();
    for (let i = 0; i < 10; i++) {
      expect((await ask()).ended).toMatchObject([{ how: "complete" }]);
      await sleep(5);
    }
    expect(server.connections() - before).toBeLessThanOrEqual(2);
  });

  test.each([
    ["chunks of an answer", CHUNK({ content: "late" })],
    ["another [DONE]", "data: [DONE]\n\n"],
    ["an error", 'data: {"error":{"message":"late"}}\n\n'],
    ["no event at all", "\u0000\u0001 oops"],
  ])("the provider goes on with %s, at once or later: not relayed, and its call is ended", async (_, more) => {
    const whole = (await relayed(piecesFrom([bytesOf(wire)]))).text;
    behave = (socket) => socket.write(`${HEAD}content-length: 100000\r\n\r\n${wire}${more}`);
    const atOnce = closed;
    expect(await ask()).toMatchObject({ text: whole, ended: [{ how: "complete" }] });
    await until(() => closed > atOnce);
    behave = (socket) => {
      socket.write(`${HEAD}content-length: 100000\r\n\r\n${wire}`);
      setTimeout(() => socket.write(more), 50);
    };
    const later = closed;
    expect(await ask()).toMatchObject({ text: whole, ended: [{ how: "complete" }] });
    await until(() => closed > later);
  });

  test("the provider neither closes nor sends: the answer is complete, and then the call is aborted", async () => {
    behave = (socket) => socket.write(`${HEAD}content-length: 100000\r\n\r\n${wire}`);
    const before = closed;
    expect(await ask()).toMatchObject({ ended: [{ how: "complete" }] });
    await until(() => closed > before);
  });
});

function _isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function _find(bytes: Uint8Array, text: string): number {
  return Buffer.from(bytes).indexOf(text);
}
