import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { randomBytes } from "node:crypto";
import OpenAI from "openai";
import { rotateSecretKey } from "../../src/cli/secret_key_store.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { createLog } from "../../src/platform/log.ts";
import { until } from "../platform/own_redis.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { closeBalanced, expectRefusal, withoutEffect } from "./checks.ts";
import { readEvents } from "./response_events.ts";
import { type CallOptions, openShop, responsesBody, type Shop } from "./shop.ts";

/** Conversations whose earlier turns are stored, on three replicas. Source: RSP-3, RSP-12. */
let shop: Shop;
/** A replica that stores nothing. */
let forgetful: string;

beforeAll(async () => {
  const prices = { inputMicroUsd: 3_000_000, outputMicroUsd: 15_000_000, defaultCapTokens: 1000 };
  const own = { ...prices, id: "own", contextLength: 8192, routes: [{ provider: "first", ownResponses: true }] };
  shop = await openShop({ replicas: 3, models: [own] });
  const replica = await shop.start({ RESPONSES_KEEP_HOURS: "0" });
  shop.replicas.push(replica);
  forgetful = replica.origin;
});
afterEach(() => shop.provider.reset());
afterAll(() => closeBalanced(shop));

const ask = (secret: string, over: Record<string, unknown> = {}, options: CallOptions = {}) =>
  shop.call("/v1/responses", { secret, body: responsesBody(over), ...options });
const at = (turn: number) => ({ origin: shop.replicas[turn % 3]?.origin ?? shop.origin });
const sentMessages = () => JSON.parse(shop.provider.lastCall()?.body ?? "{}").messages;
const sentInput = () => JSON.parse(shop.provider.lastCall()?.body ?? "{}").input;
const textOf = (response: { output: { content?: { text: string }[] }[] }) => response.output.at(-1)?.content?.[0]?.text;

async function storedOf(accountId: number): Promise<number> {
  const [row] = await shop.world.sql`select count(*)::int as n from stored_responses where account_id = ${accountId}`;
  return Number(row?.n);
}

test("ten turns by previous_response_id, each on another replica: the model is given all of them, and all are charged", async () => {
  const { secret, accountId } = await shop.payer(1_000_000_000n);
  const said: (string | undefined)[] = [];
  let previous: string | null = null;
  for (let turn = 1; turn <= 10; turn++) {
    const body = { input: `Turn ${turn}.`, previous_response_id: previous, instructions: `Rule ${turn}.` };
    const { status, json } = await ask(secret, body, at(turn));
    expect(status).toBe(200);
    expect(json).toMatchObject({ previous_response_id: previous, store: true });
    said.push(textOf(json));
    previous = json.id;
  }
  const messages = sentMessages();
  // The instructions are those of the last request alone.
  expect(messages[0]).toEqual({ role: "system", content: "Rule 10." });
  const users = messages.filter(({ role }: { role: string }) => role === "user");
  expect(users.map(({ content }: { content: string }) => content)).toEqual(
    Array.from({ length: 10 }, (_, i) => `Turn ${i + 1}.`),
  );
  const answers = messages.filter(({ role }: { role: string }) => role === "assistant");
  expect(answers.map(({ content }: { content: string }) => content)).toEqual(said.slice(0, 9) as string[]);
  const rows = await shop.world.sql`
    select prompt_tokens, held_nano_usd::float8 as held from receipts where account_id = ${accountId} order by request_id`;
  const held = rows.map((row) => Number(row.held));
  expect(held.toSorted((a, b) => a - b)).toEqual(held);
  expect(await storedOf(accountId)).toBe(10);
});

test("a stream is stored before its last event is sent, and another replica continues it", async () => {
  const { secret } = await shop.customer();
  const streamed = await ask(secret, { stream: true, input: "Turn 1." }, at(0));
  const last = readEvents(streamed.text).at(-1) as unknown as { type: string; response: { id: string } };
  expect(last.type).toBe("response.completed");
  const { status } = await ask(
    secret,
    { stream: true, input: "Turn 2.", previous_response_id: last.response.id },
    at(1),
  );
  expect(status).toBe(200);
  expect(sentMessages().map(({ role }: { role: string }) => role)).toEqual(["user", "assistant", "user"]);
  // What is fetched is what the last event said.
  const { json } = await shop.call(`/v1/responses/${last.response.id}`, { secret, ...at(2) });
  expect(json).toEqual(last.response);
});

test("items are referred to by id: messages, calls and reasoning; reasoning that is gone is left out", async () => {
  const { secret } = await shop.customer();
  const tools = [{ type: "function", name: "get_toll", parameters: { type: "object", properties: {} } }];
  shop.provider.next({
    body: JSON.stringify({
      id: "chatcmpl-1",
      choices: [
        {
          index: 0,
          finish_reason: "tool_calls",
          message: {
            role: "assistant",
            content: "Let me see.",
            reasoning_content: "A toll is asked for.",
            tool_calls: [{ id: "call_1", type: "function", function: { name: "get_toll", arguments: "{}" } }],
          },
        },
      ],
      usage: { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 },
    }),
  });
  const first = (await ask(secret, { input: "The toll?", tools })).json;
  const references = first.output.map(({ id }: { id: string }) => ({ type: "item_reference", id }));
  expect(references.length).toBe(3);
  const output = { type: "function_call_output", call_id: "call_1", output: "3 crowns" };
  const user = { role: "user", content: "The toll?" };
  const gone = { type: "item_reference", id: "rs_gone" };
  expect((await ask(secret, { input: [user, gone, ...references, output], tools }, at(1))).status).toBe(200);
  expect(sentMessages()).toEqual([
    { role: "user", content: "The toll?" },
    {
      role: "assistant",
      content: "Let me see.",
      reasoning_content: "A toll is asked for.",
      tool_calls: [{ id: "call_1", type: "function", function: { name: "get_toll", arguments: "{}" } }],
    },
    { role: "tool", tool_call_id: "call_1", content: "3 crowns" },
  ]);
});

test("a provider's own /responses gets the whole conversation too, with store: false, and its items can be referred to", async () => {
  const { secret } = await shop.customer();
  const first = (await ask(secret, { model: "own", input: "Turn 1." })).json;
  expect(first).toMatchObject({ store: true, previous_response_id: null });
  const second = (await ask(secret, { model: "own", input: "Turn 2.", previous_response_id: first.id }, at(1))).json;
  expect(JSON.parse(shop.provider.lastCall()?.body ?? "").store).toBe(false);
  expect(sentInput().map(({ role }: { role: string }) => role)).toEqual(["user", "assistant", "user"]);
  expect(second.previous_response_id).toBe(first.id);
  const references = first.output.map(({ id }: { id: string }) => ({ type: "item_reference", id }));
  const user = { role: "user", content: "Turn 3." };
  expect((await ask(secret, { model: "own", input: [...references, user] }, at(2))).status).toBe(200);
  expect(sentInput().map(({ role }: { role: string }) => role)).toEqual(["assistant", "user"]);
  const streamed = await ask(secret, { model: "own", stream: true, input: "Turn 4.", previous_response_id: second.id });
  const last = readEvents(streamed.text).at(-1) as unknown as { response: { id: string } };
  expect((await shop.call(`/v1/responses/${last.response.id}`, { secret })).json).toEqual(last.response);
});

test("OpenAI's SDK continues, fetches, lists and deletes", async () => {
  const { secret, accountId } = await shop.customer();
  const client = new OpenAI({ baseURL: `${shop.origin}/v1`, apiKey: secret, maxRetries: 0 });
  const first = await client.responses.create({ model: "chat-a", input: "Turn 1." });
  const second = await client.responses.create({ model: "chat-a", input: "Turn 2.", previous_response_id: first.id });
  expect((await client.responses.retrieve(second.id)).output_text).toBe(second.output_text);
  const items = [];
  for await (const item of client.responses.inputItems.list(second.id, { order: "asc", limit: 1 })) items.push(item);
  expect(items.map((item) => [item.type, "role" in item ? item.role : ""])).toEqual([
    ["message", "user"],
    ["message", "assistant"],
    ["message", "user"],
  ]);
  expect(items[1]?.id).toBe(first.output[0]?.id as string);
  expect(new Set(items.map(({ id }) => id)).size).toBe(3);
  // An input item can be referred to as well.
  const again = [{ type: "item_reference" as const, id: String(items[2]?.id) }];
  await client.responses.create({ model: "chat-a", input: again });
  expect(sentMessages()).toEqual([{ role: "user", content: "Turn 2." }]);
  await client.responses.delete(first.id);
  expect(await storedOf(accountId)).toBe(2);
  const fetching = async () => await client.responses.retrieve(first.id);
  expect(fetching()).rejects.toMatchObject({ status: 404 });
  // What a later response was given stays with it.
  await client.responses.create({ model: "chat-a", input: "Turn 3.", previous_response_id: second.id });
  expect(sentMessages().length).toBe(5);
});

describe("a reference to what is not there is refused, and costs nothing", () => {
  test("malformed ids, ids of another account or tenant, deleted, unstored and broken responses", async () => {
    const stranger = await shop.customer();
    const { secret } = await shop.customer();
    const theirs = (await ask(stranger.secret)).json;
    const deleted = (await ask(secret)).json;
    await shop.call(`/v1/responses/${deleted.id}`, { secret, method: "DELETE" });
    const unstored = (await ask(secret, { store: false })).json;
    expect(unstored.store).toBe(false);
    shop.provider.next({
      contentType: "text/event-stream",
      body: 'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n',
    });
    const broken = readEvents((await ask(secret, { stream: true })).text).at(-1) as unknown as {
      type: string;
      response: { id: string };
    };
    expect(broken.type).toBe("response.failed");
    const ids = [
      ...["", "resp_1", "resp_", `resp_${"0".repeat(32)}`, `resp_${"g".repeat(32)}`, "x".repeat(5_000), "\0"],
      ...[theirs.id, deleted.id, unstored.id, broken.response.id],
    ];
    await withoutEffect(shop, async () => {
      for (const id of ids) {
        const answer = await ask(secret, { previous_response_id: id });
        expectRefusal(answer, "invalid_request", { param: "previous_response_id" });
        const reference = { type: "item_reference", id: id.replace("resp_", "msg_") || "msg_" };
        const item = await ask(secret, { input: [{ role: "user", content: "Hello" }, reference] });
        expectRefusal(item, "invalid_request", { param: "input.1" });
        if (id === "" || id.includes("\0")) continue;
        expectRefusal(await shop.call(`/v1/responses/${id}`, { secret }), "not_found");
        expectRefusal(await shop.call(`/v1/responses/${id}`, { secret, method: "DELETE" }), "not_found");
        expectRefusal(await shop.call(`/v1/responses/${id}/input_items`, { secret }), "not_found");
      }
      const output = { type: "item_reference", id: theirs.output[0].id };
      expectRefusal(await ask(secret, { input: [output] }), "invalid_request", { param: "input.0" });
      for (const previous_response_id of [7, [], {}, true])
        expectRefusal(await ask(secret, { previous_response_id }), "invalid_request", {
          param: "previous_response_id",
        });
    });
    // It is still its owner's.
    expect((await shop.call(`/v1/responses/${theirs.id}`, { secret: stranger.secret })).status).toBe(200);
  });

  test("a revoked key reads nothing", async () => {
    const { secret, keyId } = await shop.customer();
    const { id } = (await ask(secret)).json;
    await shop.world.sql`update keys set status = 'revoked' where id = ${keyId}`;
    await until(async () => (await shop.call("/v1/models", { secret })).status === 401);
    expectRefusal(await shop.call(`/v1/responses/${id}`, { secret }), "invalid_api_key");
    expectRefusal(await ask(secret, { previous_response_id: id }), "invalid_api_key");
  });

  test("more responses than one request may refer to, and a conversation that is too large", async () => {
    const { secret } = await shop.customer();
    const input = Array.from({ length: 101 }, () => ({
      type: "item_reference",
      id: `msg_${randomBytes(16).toString("hex")}0000`,
    }));
    await withoutEffect(shop, async () => {
      expectRefusal(await ask(secret, { input }), "invalid_request", { param: "input" });
    });
    const narrow = await shop.start({ BODY_BYTES_MAX: "20000" });
    try {
      let previous: string | null = null;
      let status = 200;
      for (let turn = 0; turn < 6 && status === 200; turn++) {
        const body = { input: "x".repeat(9_000), previous_response_id: previous };
        const answer = await ask(secret, body, { origin: narrow.origin });
        status = answer.status;
        if (status === 200) previous = answer.json.id;
        else expectRefusal(answer, "invalid_request", { param: "previous_response_id" });
      }
      expect(status).toBe(400);
    } finally {
      await narrow.kill();
    }
  });

  test("a query of input_items that makes no sense", async () => {
    const { secret } = await shop.customer();
    const { id } = (await ask(secret)).json;
    const list = (query: string) => shop.call(`/v1/responses/${id}/input_items?${query}`, { secret });
    for (const [query, param] of [
      ["limit=0", "limit"],
      ["limit=101", "limit"],
      ["limit=x", "limit"],
      ["order=up", "order"],
      ["after=nobody", "after"],
      ["after=", "after"],
      ["limit=1&limit=2", "limit"],
    ] as const)
      expectRefusal(await list(query), "invalid_request", { param });
    expect((await list("limit=1")).json).toMatchObject({ object: "list", has_more: false });
  });

  test("where nothing is stored, a reference says so", async () => {
    const { secret } = await shop.customer();
    const { json } = await ask(secret, {}, { origin: forgetful });
    expect(json.store).toBe(false);
    const again = await ask(secret, { previous_response_id: json.id }, { origin: forgetful });
    expectRefusal(again, "invalid_request", { param: "previous_response_id" });
    expect(again.json.error.message).toContain("Nothing is stored here");
    const fetched = await shop.call(`/v1/responses/${json.id}`, { secret, origin: forgetful });
    expectRefusal(fetched, "not_found");
  });
});

test("an answer that its balance cannot pay is not stored", async () => {
  const { secret, accountId } = await shop.payer(20_000_000n);
  shop.provider.next({
    body: JSON.stringify({
      id: "chatcmpl-1",
      choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: "dear" } }],
      usage: { prompt_tokens: 5, completion_tokens: 5_000_000, total_tokens: 5_000_005 },
    }),
  });
  const answer = await ask(secret, { max_output_tokens: 10 });
  expectRefusal(answer, "insufficient_balance");
  const id = `resp_${String(answer.headers.get("x-request-id")).replaceAll("-", "")}`;
  expectRefusal(await shop.call(`/v1/responses/${id}`, { secret }), "not_found");
  expect(await storedOf(accountId)).toBe(0);
});

test("two replicas that continue one conversation at once both do", async () => {
  const { secret, accountId } = await shop.customer();
  const { id } = (await ask(secret, { input: "Turn 1." })).json;
  const both = await Promise.all(
    [0, 1].map((i) => ask(secret, { input: `Turn 2${i}.`, previous_response_id: id }, at(i))),
  );
  expect(both.map(({ status }) => status)).toEqual([200, 200]);
  expect(new Set(both.map(({ json }) => json.id)).size).toBe(2);
  expect(await storedOf(accountId)).toBe(3);
});

test("the table has no clear text, and a row of another account or id cannot be read", async () => {
  const { secret, accountId } = await shop.customer();
  const secretWord = "kumquat".repeat(20);
  const { id } = (await ask(secret, { input: secretWord })).json;
  const { sql } = shop.world;
  const rows = await sql`select input, response from stored_responses where account_id = ${accountId}`;
  const bytes = Buffer.concat(rows.flatMap((row) => [row.input, row.response]));
  expect(bytes.includes("kumquat")).toBe(false);
  const thief = await shop.customer();
  await sql`update stored_responses set account_id = ${thief.accountId} where account_id = ${accountId}`;
  expectRefusal(await shop.call(`/v1/responses/${id}`, { secret: thief.secret }), "not_found");
});

test("an account keeps a bounded number of responses and bytes: the oldest are deleted", async () => {
  const { secret, accountId } = await shop.customer({ dailyLimit: 10_000 });
  const { sql } = shop.world;
  // A thousand older ones.
  await sql`
    insert into stored_responses (account_id, id, created_at, item_ids, input, response)
    select ${accountId}, ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, ledger_now(), '{}', '\\x00', '\\x00'
    from generate_series(1, 1000) as n`;
  for (let i = 0; i < 32; i++) expect((await ask(secret)).status).toBe(200);
  expect(await storedOf(accountId)).toBe(1_000);
  const [oldest] = await sql`select min(id::text) as id from stored_responses where account_id = ${accountId}`;
  expect(oldest?.id).toBe("00000000-0000-7000-8000-000000000033");
  // And 64 MiB of them.
  await sql`
    update stored_responses set input = decode(repeat('00', 1024 * 1024), 'hex')
    where account_id = ${accountId} and id between '00000000-0000-7000-8000-000000000900' and '00000000-0000-7000-8000-000000001000'`;
  for (let i = 0; i < 32; i++) expect((await ask(secret)).status).toBe(200);
  const [kept] = await sql`
    select sum(octet_length(input) + octet_length(response))::float8 as bytes, count(*)::int as n
    from stored_responses where account_id = ${accountId}`;
  expect(Number(kept?.bytes)).toBeLessThanOrEqual(64 * 1024 * 1024);
  // The 64 of this test, and as many of the large ones as fit beside them.
  expect(Number(kept?.n)).toBe(64 + 63);
});

test("responses are forgotten when their hours have passed, and their day is dropped", async () => {
  const { secret, accountId } = await shop.customer();
  const { id } = (await ask(secret)).json;
  const { sql, setClock } = shop.world;
  const [row] = await sql`select created_at from stored_responses where account_id = ${accountId}`;
  const later = (hours: number) => new Date(Date.parse(String(row?.created_at)) + hours * 3_600_000).toISOString();
  try {
    await setClock(later(23.9));
    expect((await shop.call(`/v1/responses/${id}`, { secret })).status).toBe(200);
    await setClock(later(24.1));
    expectRefusal(await shop.call(`/v1/responses/${id}`, { secret }), "not_found");
    expectRefusal(await ask(secret, { previous_response_id: id }), "invalid_request", {
      param: "previous_response_id",
    });
    await setClock(later(72));
    await sql`select turn_response_days(24)`;
    expect(await storedOf(accountId)).toBe(0);
  } finally {
    await setClock(null);
    await sql`select turn_response_days(24)`;
  }
  expect((await ask(secret)).status).toBe(200);
  expect(await storedOf(accountId)).toBe(1);
});

test("a replacement of SECRET_KEY forgets all of them; a row of the old key is as if it were gone", async () => {
  const { secret, accountId } = await shop.customer();
  const { id } = (await ask(secret)).json;
  const { sql } = shop.world;
  const [row] = await sql`select * from stored_responses where account_id = ${accountId}`;
  const db = shop.world.openDb();
  const from = Buffer.from(TEST_SECRET_KEY, "base64");
  const to = randomBytes(32);
  try {
    const deps = { db, bus: inProcessBus(createLog("silent")) };
    expect(await rotateSecretKey(deps, { from, to })).toBeDefined();
    expect(await storedOf(accountId)).toBe(0);
    // Back again, for the other tests.
    expect(await rotateSecretKey(deps, { from: to, to: from })).toBeDefined();
  } finally {
    await db.close();
  }
  const damaged = Buffer.from(row?.response as Uint8Array);
  damaged[2] = (damaged[2] ?? 0) ^ 1;
  await sql`
    insert into stored_responses values
      (${accountId}, ${row?.id}, ${row?.created_at}, '{}', ${row?.input}, ${damaged})`;
  expectRefusal(await shop.call(`/v1/responses/${id}`, { secret }), "not_found");
});
