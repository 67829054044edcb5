import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { CODEX } from "./clients_tried.ts";
import { installOnDemand } from "./on_demand.ts";

/** Codex CLI for tests. */

/** Installs it, and returns its program. */
export async function installCodex(): Promise<string> {
  const platform = `${process.platform}-${process.arch}`;
  const folder = await installOnDemand({
    name: `codex-${CODEX}`,
    dependencies: { "@openai/codex": CODEX, [`@openai/codex-${platform}`]: `npm:@openai/codex@${CODEX}-${platform}` },
    options: ["--omit=optional"],
  });
  return join(folder, "node_modules/@openai/codex/bin/codex.js");
}

/** A new home whose configuration names this origin and the model chat-a. Its key is read from SHOP_KEY. The caller deletes it. */
export function codexHome(origin: string): string {
  // Codex refuses a home below the folder for temporary files.
  const parent = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "tollgate");
  mkdirSync(parent, { recursive: true });
  const home = mkdtempSync(join(parent, "codex-home-"));
  const provider = { name: "shop", base_url: `${origin}/v1`, env_key: "SHOP_KEY", wire_api: "responses" };
  const lines = Object.entries(provider).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
  const retries = ["request_max_retries = 0", "stream_max_retries = 0"];
  const config = ['model = "chat-a"', 'model_provider = "shop"', "[model_providers.shop]", ...lines, ...retries];
  writeFileSync(join(home, "config.toml"), `${config.join("\n")}\n`);
  return home;
}
