import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Value } from "@sinclair/typebox/value";
import { addLosses } from "../../src/accounts/losses_store.ts";
import { askServer } from "../../src/cli/server_door.ts";
import { Refusal } from "../../src/errors.ts";
import { SERVED } from "../../src/operations/management_api.ts";
import { runCli } from "../cli/cli_process.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { type Management, managementOf, requestFor } from "./management_client.ts";

/** The command line with `--server` and a token does and prints what it does with the database. Source: MGT-1. */

/** Commands whose second run may be a success. */
const HAS_IF_MISSING = /^(account|provider|model|offering) (add|route) /;

let shop: Shop;
let admin: Management;
let reseller: { accountId: number };
let seller: Management;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { PANEL_URL: "http://localhost", SERVER_ADDRESSES: "203.0.113.10" } });
  admin = await managementOf(shop, await shop.world.addAdmin(), "admin");
  reseller = await shop.world.addReseller("ai.ours.test");
  await shop.world.setBalance(reseller, 50_000_000_000n);
  seller = await managementOf(shop, reseller, "reseller");
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
});

const withDatabase = (words: string) =>
  runCli(words, {
    env: {
      DATABASE_URL: shop.world.url,
      SPOOL_DIR: shop.world.spoolDir,
      SECRET_KEY: TEST_SECRET_KEY,
      PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${shop.provider.port}`,
    },
  });
/** Without a database: only the server and the token. */
const withServer = (words: string, { secret }: Management) =>
  runCli(`${words} --server ${shop.origin.replace("127.0.0.1", "localhost")}`, { env: { TOLLGATE_TOKEN: secret } });

test("reading commands print the same with a server as with the database", async () => {
  const customer = await shop.world.addCustomer(reseller.accountId);
  await shop.world.givePackage(customer);
  const { keyId, secret } = await shop.world.addKey(customer);
  expect((await shop.chat(secret)).status).toBe(200);
  for (const words of [
    "account list",
    "account list --role reseller",
    `account limits ${customer.accountId}`,
    `key list --account ${customer.accountId}`,
    `key limits ${keyId}`,
    `account markup ${reseller.accountId}`,
    "voucher list",
    `voucher list --seller ${reseller.accountId}`,
    "order list --all",
    "payment list",
    "offering list",
    `package list ${customer.accountId}`,
    "allotment list",
    "host list",
    "model list",
    "model show chat-a",
    "measured show",
    "model import --provider openai --markup 20 --models gpt-4o --json",
    "usage",
    `usage --account ${customer.accountId} --key ${keyId} --model chat-a --since 2020-01-01`,
    "usage --outcome released --limit 5",
    `host list --reseller ${reseller.accountId}`,
  ]) {
    const [here, there] = [await withDatabase(words), await withServer(words, admin)];
    expect({ words, ...there }).toEqual({ words, ...here });
    expect(here.code).toBe(0);
  }
});

test("changing commands change the same rows, and the audit log names the token's owner instead of the command line", async () => {
  const [a, b] = [
    await shop.world.addCustomer(reseller.accountId),
    await shop.world.addCustomer(reseller.accountId),
  ] as const;
  const commands = (id: number) => [
    `account suspend ${id}`,
    `account activate ${id}`,
    `account limits ${id} --requests-per-minute 5`,
    `balance add ${id} 12.40 --reason start`,
    `payg enable ${id}`,
    `key add --account ${id} --name ci --mode payg`,
    `offering add --name P${id} --kind custom --daily 5 --days 2 --wholesale 1 --retail 2 --requests-per-minute 9`,
    `offering price P${id} --retail 3`,
    `package assign ${id} --offering P${id}`,
    `package assign ${id} --offering P${id} --after --paid-by operator`,
    `allotment grant ${reseller.accountId} --offering P${id} --pieces 2 --reason launch`,
    `package assign ${id} --offering P${id} --allotment`,
    `offering disable P${id}`,
    `host add h${id}.ours.test --reseller ${reseller.accountId}`,
    `host suspend h${id}.ours.test`,
    `host activate h${id}.ours.test`,
    `model add m-${id} --input 1 --output 2 --image 1024x1024=0.04 --context 9000`,
    `model add m-${id} --if-missing`,
    `model price m-${id} --input 3 --output 4 --image 1024x1024=none --image 1024x1024/high=0.2`,
    `model set m-${id} --margin 1100 --hides-tokens yes`,
    `model route m-${id} --provider second --upstream up --drop-param seed --cost-input 1 --cost-output 2`,
    `model route m-${id} --provider first --priority 2`,
    `model import --provider openai --markup ${id} --models gpt-4o --yes`,
    `account add --role reseller --email added-${id}@ours.test --name Added`,
    `account add --role reseller --email added-${id}@ours.test --name Added --if-missing`,
    `account add --reseller ${reseller.accountId} --email added-${id}@ours.test --name Added --if-missing`,
    `measured set --wholesale --open --days-min 1 --days-max 20 --daily-min 1 --daily-max 90 --step 0=1 --step 5000=0.50`,
    "measured set --wholesale --days-max 21",
    `measured set --seller ${reseller.accountId} --open --days-min 1 --days-max 9 --daily-min 1 --daily-max 90 --step 0=2`,
  ];
  for (const words of commands(a.accountId))
    expect({ words, ...(await withDatabase(words)) }).toMatchObject({ code: 0 });
  for (const words of commands(b.accountId))
    expect({ words, ...(await withServer(words, admin)) }).toMatchObject({ code: 0, err: "" });
  const state = async ({ accountId }: { accountId: number }) => {
    const [row] = await shop.world.sql`
      select status, limits, balance_nano_usd, payg_enabled, (select array_agg(mode || name) from keys where account_id = accounts.id) as keys,
        (select array_agg(row(days, daily_limit, paid_by_account_id = ${reseller.accountId}, allotment_id is null, ended_early)::text order by id) from packages where account_id = accounts.id) as packages,
        (select row(total_limit, limits, wholesale_nano_usd, enabled)::text from offerings where name = 'P' || accounts.id) as offering,
        (select price_nano from retail_prices r join offerings o on o.id = r.offering_id where o.name = 'P' || accounts.id) as price,
        (select array_agg(row(email, role, reseller_id)::text order by id) from (
          select id, replace(email, accounts.id::text, 'x') as email, role, reseller_id from accounts as other where email like 'added-' || accounts.id || '@%') added) as added,
        (select status from hosts where host = 'h' || accounts.id || '.ours.test') as host,
        (select row(context_length, input_micro_usd, output_micro_usd, margin_permille, hides_tokens)::text from models where id = 'm-' || accounts.id) as model,
        (select array_agg(row(size, quality, micro_usd)::text) from image_prices where model_id = 'm-' || accounts.id) as images,
        (select array_agg(row(provider_id, upstream_model = 'up', priority, dropped_params, cost_input_micro_usd)::text order by id) from routes
          where model_id = 'm-' || accounts.id) as routes
      from accounts join balances on account_id = accounts.id where accounts.id = ${accountId}`;
    return row;
  };
  expect(await state(b)).toEqual(await state(a));
  const model = `m-${b.accountId}`;
  const { routes } = JSON.parse((await withServer("model list --json", admin)).out).models.find(
    ({ id }: { id: string }) => id === model,
  );
  expect(routes).toMatchObject([
    { providerName: "second", droppedParams: ["seed"], facts: {}, takes: { capField: "max_tokens" } },
    { providerName: "first", priority: 2 },
  ]);
  expect(await withServer(`model route ${model} --remove ${routes[0].id}`, admin)).toMatchObject({ code: 0 });
  expect((await withServer(`model route ${model} --change ${routes[0].id} --priority 1`, admin)).err).toContain(
    `no route ${routes[0].id}`,
  );
  expect((await withServer("model set m-none --disable", admin)).err).toContain("no model m-none");
  const tokens = await shop.world.sql`
    select distinct token_id from audit_entries where account_id = ${b.accountId} and actor_id is not null`;
  expect(tokens.map(({ token_id: id }) => Number(id))).toEqual([admin.tokenId]);
});

test("providers and their keys are managed through a server as with the database, without a SECRET_KEY on this machine", async () => {
  const KEY = "sk-upstream-7f3e";
  const run = async (words: string) => {
    const done = await withServer(words, admin);
    expect({ words, code: done.code, err: done.err }).toEqual({ words, code: 0, err: "" });
    expect(done.out).not.toContain(KEY);
    return done.out;
  };
  await run(`provider add --name far --url http://127.0.0.1:${shop.provider.port}/v1 --dialect vllm --key ${KEY}`);
  await run("provider set far --fact capField=max_tokens");
  await run(`provider key add far --name second --weight 3 --key ${KEY}2`);
  expect(await run("provider key set far second --rename spare --disable")).toMatch(/spare\s+3\s+no/);
  // The replica asks, which can decrypt the keys; the provider knows only the first one's.
  expect(await run("provider test first")).toMatch(/first\s+answers/);
  const wrongKey = await withServer("provider test far", admin);
  expect({ code: wrongKey.code, err: wrongKey.err }).toEqual({ code: 1, err: "" });
  expect(wrongKey.out).toContain("refuses the key");
  expect(wrongKey.out).not.toContain(KEY);
  for (const words of ["provider list", "provider show far", "provider key list far"])
    expect({ words, out: (await withDatabase(words)).out }).toEqual({ words, out: await run(words) });
  expect(await run("provider key remove far spare")).not.toContain("spare");
  expect((await withServer("provider show nowhere", admin)).err).toBe('There is no provider "nowhere".\n');
});

test("an account that a server adds has an invitation and no password; a price list of one's own is read with the database only", async () => {
  const made = await withServer("account add --role reseller --email invited@ours.test --name Invited --json", admin);
  expect(JSON.parse(made.out)).toMatchObject({ hasPassword: false, link: { kind: "invitation" } });
  const password = await withServer("account add --email p@ours.test --name P --password correct-horse-7", admin);
  expect(password).toMatchObject({ code: 1, err: expect.stringContaining("makes an invitation instead") });
  const file = await withServer("model import --provider openai --file none.json", admin);
  expect(file).toMatchObject({ code: 1, err: expect.stringContaining("leave out --file") });
});

test("what is there already is told in the same words by both doors, and is a success with --if-missing", async () => {
  const commands = [
    "account add --email there@ours.test --name There",
    `provider add --name there --url http://127.0.0.1:${shop.provider.port}/v1 --key sk-there-9d1c`,
    "model add there --input 1 --output 2",
    "model route there --provider there --upstream up",
    "offering add --name There --kind custom --daily 5 --days 2 --wholesale 1",
    "provider key add there --name second --key sk-there-8a2b",
  ];
  const doors = [withDatabase, (words: string) => withServer(words, admin)];
  for (const words of commands) {
    expect({ words, ...(await withDatabase(words)) }).toMatchObject({ code: 0 });
    const told = [];
    for (const door of doors) told.push(await door(words));
    expect(told[1]).toEqual(told[0]);
    expect(told[0]).toMatchObject({ code: 1, out: "", err: expect.stringContaining("already") });
    if (!HAS_IF_MISSING.test(words)) continue;
    const kept = [];
    for (const door of doors) kept.push(await door(`${words} --if-missing`));
    expect(kept[1]).toEqual(kept[0]);
    expect(kept[0]).toMatchObject({ code: 0, out: expect.stringContaining("Nothing is changed."), err: "" });
  }
});

test("an account of another seller, or of another role, is not the account that should be added", async () => {
  const theirs = await shop.world.addCustomer(reseller.accountId);
  const [row] = await shop.world.sql`select email from accounts where id = ${theirs.accountId}`;
  const other = await shop.world.addReseller("ai.third.test");
  const add = `account add --email ${row?.email} --name Same --if-missing --json`;
  const ofOperator = await withDatabase(add);
  expect(JSON.parse(ofOperator.out)).toMatchObject({ resellerId: null });
  const ofOther = await withServer(`${add} --reseller ${other.accountId}`, admin);
  expect(JSON.parse(ofOther.out)).toMatchObject({ resellerId: other.accountId });
  for (const again of [add, `${add} --reseller ${other.accountId}`, `${add} --reseller ${reseller.accountId}`])
    for (const door of [withDatabase, (words: string) => withServer(words, admin)])
      expect(JSON.parse((await door(again)).out)).toMatchObject({ exists: true });
  const asReseller = await withServer(`${add} --role reseller`, admin);
  expect(asReseller).toMatchObject({ code: 1, err: expect.stringContaining("already in use") });
  expect(await shop.world.sql`select from accounts where email = ${row?.email}`).toHaveLength(3);
});

test("a receipt is the same by both doors, for its reseller without route and provider, and for nobody else", async () => {
  const customer = await shop.world.addCustomer(reseller.accountId);
  await shop.world.setBalance(customer, 10_000_000_000n);
  const { secret } = await shop.world.addKey(customer, { mode: "payg" });
  const id = (await shop.chat(secret)).headers.get("x-request-id");
  for (const words of [`receipt ${id}`, `receipt req_${id} --json`]) {
    const byServer = await withServer(words, admin);
    expect({ words, ...byServer }).toEqual({ words, ...(await withDatabase(words)) });
    expect({ code: byServer.code, err: byServer.err }).toEqual({ code: 0, err: "" });
  }
  const { receipt, isExact } = JSON.parse((await withServer(`receipt ${id} --json`, admin)).out);
  expect({ isExact, ofAccount: receipt.accountId, isAnswered: receipt.answeredBy !== null }).toEqual({
    isExact: true,
    ofAccount: customer.accountId,
    isAnswered: true,
  });
  expect(receipt.recomputed.lines.length).toBeGreaterThan(0);
  const ofSeller = JSON.parse((await withServer(`receipt ${id} --json`, seller)).out);
  expect(ofSeller).toMatchObject({
    isExact: true,
    receipt: { answeredBy: null, tried: null, recomputed: { isExact: true } },
  });
  const other = await managementOf(shop, await shop.world.addReseller("ai.fourth.test"), "reseller");
  const unknown = await withServer(`receipt ${crypto.randomUUID()}`, other);
  const foreign = await withServer(`receipt ${id}`, other);
  const plain = ({ code, err }: typeof unknown) => ({ code, err: err.replace(/\(request .*\)/, "") });
  expect(plain(foreign)).toEqual(plain(unknown));
  expect(plain(foreign)).toEqual({ code: 1, err: expect.stringContaining("No request here has this id") });
});

test("losses are listed page by page and forgotten by both doors, and the audit log has who ended the hour", async () => {
  const customers = [];
  for (let i = 0; i < 3; i++) customers.push(await shop.world.addCustomer(reseller.accountId));
  const db = shop.world.openDb(1);
  const loss = { tenantId: reseller.accountId, kind: "shortfall", amount: 40_000_000_000_000n, times: 2 };
  await addLosses(
    { db },
    customers.map(({ accountId }) => ({ accountId, ...loss })),
    [{ kind: "shortfall", account: 1n, tenant: 1n }],
  );
  await db.close();
  for (const words of [
    "account losses",
    "account losses --limit 2",
    `account losses ${customers[0]?.accountId} --json`,
  ])
    expect({ words, ...(await withServer(words, admin)) }).toEqual({ words, ...(await withDatabase(words)) });
  const there = (who: Management, path: string) => who.call("GET", path, undefined, { host: "localhost" });
  const seen: string[] = [];
  for (let cursor = ""; ; ) {
    const { json } = await there(admin, `/losses?limit=1${cursor}`);
    seen.push(
      ...json.data.map(({ holder, holderId }: { holder: string; holderId: number }) => `${holder} ${holderId}`),
    );
    if (json.nextCursor === null) break;
    cursor = `&cursor=${json.nextCursor}`;
  }
  const holders = customers.map(({ accountId }) => `account ${accountId}`);
  expect(seen.toSorted()).toEqual([...holders, `reseller ${reseller.accountId}`].toSorted());
  expect((await there(seller, "/losses")).status).toBe(404);
  const shown = async (words: string) => JSON.parse((await withServer(`${words} --json`, admin)).out).losses;
  const [{ stopped, amount }] = await shown(`account losses ${customers[0]?.accountId}`);
  expect({ stopped, amount }).toEqual({ stopped: true, amount: "40000000000000" });
  const [after] = await shown(`account losses ${customers[0]?.accountId} --forget`);
  expect(after).toMatchObject({ stopped: false, hourAmount: "0", amount: "40000000000000" });
  const [other] = await shown(`account losses ${customers[1]?.accountId}`);
  expect(other.stopped).toBe(true);
  const notes = await shop.world.sql`select token_id, subject_id from audit_entries where subject = 'losses'`;
  expect(notes.map(({ token_id, subject_id }) => [Number(token_id), Number(subject_id)])).toEqual([
    [admin.tokenId, Number(customers[0]?.accountId)],
  ]);
});

test("the prices of made-to-measure packages keep what is left out, by the seller's token and by the operator's", async () => {
  const bounds = "--days-min 2 --days-max 9 --daily-min 10 --daily-max 90";
  expect((await withServer(`measured set --wholesale --open ${bounds} --step 0=1`, admin)).code).toBe(0);
  const set = JSON.parse(
    (await withServer(`measured set --open ${bounds} --step 0=2 --step 5000=1.5 --json`, seller)).out,
  );
  expect(set.prices).toMatchObject({ isOpen: true, daysMax: 9, steps: [{ fromRequests: 0 }, { fromRequests: 5000 }] });
  const changed = await withDatabase(`measured set --seller ${reseller.accountId} --days-max 8 --json`);
  expect(JSON.parse(changed.out).prices).toEqual({ ...set.prices, daysMax: 8 });
  expect((await withServer("measured set --open", admin)).err).toContain("Nothing is set yet");
  expect((await withServer("measured set --wholesale --open", seller)).code).toBe(1);
});

test("a reseller's token does a reseller's commands, and gets a sentence for all others", async () => {
  const made = await withServer("voucher create --name Fair --amount 5 --codes 2 --ends 2029-06-30", seller);
  expect(made).toMatchObject({ code: 0, err: "" });
  // The head, and a line for each code.
  expect(made.out.trim().split("\n").length).toBe(3);
  const [batch] = await shop.world.sql`select seller_id from voucher_batches where name = 'Fair'`;
  expect(Number(batch?.seller_id)).toBe(reseller.accountId);
  const stranger = await shop.world.addCustomer();
  const refused = await withServer(`balance add ${stranger.accountId} 5`, seller);
  expect({ code: refused.code, err: refused.err }).toEqual({
    code: 1,
    err: `There is no account ${stranger.accountId}.\n`,
  });
});

test("without a token, with a wrong one, and without a server that answers, a command says what to do", async () => {
  const ask = (words: string, env: Record<string, string> = {}) => runCli(words, { env });
  expect(await ask(`account list --server ${shop.origin}`)).toMatchObject({ code: 1 });
  expect((await ask(`account list --server ${shop.origin}`)).err).toContain("TOLLGATE_TOKEN");
  const wrong = await withServer("account list", { ...admin, secret: `mt-${"x".repeat(49)}` });
  expect(wrong.err).toContain("The token is missing, invalid");
  const silent = await ask("account list --server http://127.0.0.1:1", { TOLLGATE_TOKEN: admin.secret });
  expect(silent.err).toContain("The server does not answer");
});

describe("every operation, through the command line's door to a server", () => {
  const ROLES = ["admin", "reseller"] as const;
  for (const operation of SERVED)
    for (const role of ROLES.filter((one) => operation.roles.includes(one)))
      test(`${operation.name} for ${role}: done or refused as in the management API, with a result that can be read`, async () => {
        const who = role === "admin" ? admin : seller;
        const { method, path, body } = requestFor(operation, {});
        const { status, json } = await who.call(method, path, unique(body), { host: "localhost" });
        const { input } = requestFor(operation, {});
        const server = { server: shop.origin.replace("127.0.0.1", "localhost"), token: who.secret };
        const asked = askServer(server, operation, unique(input)).then(
          (found) => ({ code: null, isRead: Value.Check(operation.output, found) }),
          (error: unknown) => ({ code: error instanceof Refusal ? error.code : error, isRead: null }),
        );
        const isDone = status < 300;
        expect(await asked).toEqual({ code: isDone ? null : json.error.code, isRead: isDone ? true : null });
      });
});

/** What must be unique is made so: each door adds its own. */
function unique<Given extends object | undefined>(given: Given): Given {
  const replaced = Object.entries(given ?? {}).map(([name, value]) => {
    if (name === "email") return [name, `${crypto.randomUUID()}@example.test`];
    if (name === "host") return [name, `${crypto.randomUUID().slice(0, 8)}.${value}`];
    return [
      name,
      name === "name" || (name === "id" && typeof value === "string") ? crypto.randomUUID().slice(0, 20) : value,
    ];
  });
  return given && Object.fromEntries(replaced);
}
