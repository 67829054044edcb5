import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { openShop, type Shop } from "../gateway/shop.ts";
import { PANEL } from "../panel/panel_client.ts";
import { managementOf } from "./management_client.ts";

/** A client that is generated from the published document with openapi-typescript compiles, and works with openapi-fetch. Source: MGT-7. */

const modules = join(dirname(dirname(import.meta.dirname)), "node_modules");
const SLOW_MS = 300_000;

/** What a program of a reseller might be. The compiler checks names and types of fields against the document. */
const PROGRAM = `
import createClient from "openapi-fetch";
import type { components, paths } from "./management.d.ts";

const client = createClient<paths>({
  baseUrl: process.env.BASE ?? "",
  headers: { authorization: \`Bearer \${process.env.TOKEN}\`, host: "${PANEL}" },
});
const must = <T>({ data, error }: { data?: T; error?: components["schemas"]["ErrorEnvelope"] }): T => {
  if (data === undefined) throw new Error(error?.error.message);
  return data;
};

const once = (key: string) => ({ header: { "Idempotency-Key": key } });
const { account } = must(
  await client.POST("/accounts", { params: once("1"), body: { email: "ann@shop.test", name: "Ann" } }),
);
const { balance } = must(
  await client.POST("/accounts/{accountId}/balance", {
    params: { path: { accountId: account.accountId }, ...once("2") },
    body: { kind: "top_up", amountNanoUsd: "2500000000" },
  }),
);
const emails: string[] = [];
let cursor: string | undefined;
do {
  const page = must(await client.GET("/accounts", { params: { query: { limit: 1, ...(cursor && { cursor }) } } }));
  emails.push(...page.data.map(({ email }) => email));
  cursor = page.nextCursor ?? undefined;
} while (cursor !== undefined);
const { error } = await client.GET("/accounts/{accountId}", { params: { path: { accountId: 999999999 } } });
console.log(JSON.stringify({ free: balance.freeNanoUsd, emails, code: error?.error.code }));
`;
/** The same with a field that does not exist. */
const MISTYPED = PROGRAM.replace("amountNanoUsd", "amountNanoUSD");

let shop: Shop;
let folder: string;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  folder = mkdtempSync(join(tmpdir(), "tollgate-client-"));
});
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await shop.close();
});

/** The generator needs TypeScript's own API, which TypeScript 7 does not have: so it gets a folder with TypeScript 5. */
function installGenerator(): void {
  const own = join(folder, "node_modules");
  mkdirSync(own);
  cpSync(join(modules, "openapi-typescript"), join(own, "openapi-typescript"), { recursive: true });
  const { dependencies } = JSON.parse(readFileSync(join(own, "openapi-typescript/package.json"), "utf8"));
  for (const name of [...Object.keys(dependencies), "openapi-fetch"]) {
    mkdirSync(dirname(join(own, name)), { recursive: true });
    symlinkSync(join(modules, name), join(own, name));
  }
  symlinkSync(join(modules, "typescript-5"), join(own, "typescript"));
  symlinkSync(join(modules, "bun-types"), join(own, "bun-types"));
}

async function run(command: string[], env: Record<string, string> = {}) {
  const child = Bun.spawn(command, { cwd: folder, env: { ...process.env, ...env }, stdout: "pipe", stderr: "pipe" });
  const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  return { code: await child.exited, out, err };
}

test(
  "a generated client adds a customer, tops it up and pages its customers; a mistyped field does not compile",
  async () => {
    const document = await shop.call("/api/v1/openapi.json", { host: PANEL });
    writeFileSync(join(folder, "openapi.json"), document.text);
    installGenerator();
    const generate = ["node_modules/openapi-typescript/bin/cli.js", "openapi.json", "-o", "management.d.ts"];
    expect(await run(["node", ...generate])).toMatchObject({ code: 0 });

    const options = { module: "esnext", moduleResolution: "bundler", target: "esnext", strict: true, noEmit: true };
    const compilerOptions = { ...options, allowImportingTsExtensions: true, skipLibCheck: true, types: ["bun-types"] };
    const compile = async (program: string) => {
      writeFileSync(join(folder, "program.ts"), program);
      writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["program.ts"] }));
      return await run([join(modules, ".bin/tsc"), "-p", "."]);
    };
    expect((await compile(MISTYPED)).out).toContain("amountNanoUSD");
    expect(await compile(PROGRAM)).toMatchObject({ code: 0, out: "" });

    const reseller = await shop.world.addReseller("ai.shop.test");
    await shop.world.setBalance(reseller, 5_000_000_000n);
    const { secret } = await managementOf(shop, reseller, "reseller");
    const done = await run([process.execPath, "program.ts"], { BASE: `${shop.origin}/api/v1`, TOKEN: secret });
    expect(done).toMatchObject({ code: 0, err: "" });
    expect(JSON.parse(done.out)).toEqual({ free: "2500000000", emails: ["ann@shop.test"], code: "not_found" });
    expect(await shop.world.unbalanced()).toEqual([]);
  },
  SLOW_MS,
);
