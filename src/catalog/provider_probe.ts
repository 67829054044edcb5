import { isRecord } from "../platform/records.ts";
import type { Upstream } from "./catalog.ts";
import {
  contradictionOf,
  DIALECTS,
  type Dialect,
  type DialectName,
  dialectOfOwners,
  FACT_CHOICES,
  type FactChoice,
  type Facts,
  type FactsOverride,
  PROBE_CALLS_MAX,
} from "./dialects.ts";
import type { ProviderClient } from "./provider_client.ts";
import { ProviderFailure, ProviderRejection } from "./provider_errors.ts";

/**
 * Finds out what a provider takes: tiny requests, one for each fact in the form in which it would be sent, and the other forms only if that
 * one is refused. It proposes facts, and changes none. Source: DIA-13.
 */

/** Output tokens that each of them may cost. OpenAI's reasoning models refuse fewer than 16. */
const PROBE_CAP_TOKENS = 16;
/** Time for one of them. */
export const PROBE_CALL_MS_MAX = 15_000;
const PROBE_BYTES_MAX = 256 * 1024;

export type ProbeResult = {
  /** Facts that differ from those that apply now. */
  proposed: FactsOverride;
  /** For each fact that was probed and holds in none of its forms: nothing is proposed for it. */
  unknown: FactChoice[];
  calls: number;
  /** The dialect that its list of models shows; null: it shows none. */
  recognised: DialectName | null;
};

export type ToProbe = {
  client: ProviderClient;
  upstream: Upstream;
  /** Names of models at the provider; undefined: it has none of this kind. */
  chatModel: string | undefined;
  embeddingModel: string | undefined;
  /** Who owns the models that it lists. */
  owners: ReadonlySet<string>;
  /** The facts that apply now. */
  facts: Facts;
  /** Time for one request. */
  callMs: number;
  signal: AbortSignal;
};

type Fields = Readonly<Record<string, unknown>>;

const HI = { role: "user", content: "Hi" };
const SYSTEM = { role: "system", content: "Answer briefly." };
const FUNCTION = { name: "lookup", description: "Looks a word up.", parameters: { type: "object", properties: {} } };
const TOOLS = [{ type: "function", function: FUNCTION }];

/** A conversation whose assistant called a tool, with this content beside the call. */
function talk(...contents: readonly unknown[]): Fields {
  const turns = contents.flatMap((content, i) => {
    const id = `call0000${i}`;
    const call = { id, type: "function", function: { name: FUNCTION.name, arguments: "{}" } };
    return [
      HI,
      { role: "assistant", content, tool_calls: [call] },
      { role: "tool", tool_call_id: id, content: "A word." },
    ];
  });
  return { messages: turns, tools: TOOLS };
}

/** What of a request each value of a fact stands for. Images are not probed: they would cost. */
const FORMS: { readonly [Name in FactChoice]?: Readonly<Record<Facts[Name], Fields>> } = {
  developerRole: {
    system: { messages: [SYSTEM, HI] },
    developer: { messages: [{ ...SYSTEM, role: "developer" }, HI] },
  },
  systemMessages: {
    several: { messages: [SYSTEM, { ...SYSTEM, content: "Answer in English." }, HI] },
    merged: { messages: [SYSTEM, HI] },
  },
  contentForm: {
    list: { messages: [{ role: "user", content: [{ type: "text", text: "Hi" }] }] },
    text: { messages: [HI] },
  },
  toolCallContent: { any: talk(null, ""), null: talk(null), empty: talk("") },
  functions: {
    kept: { messages: [HI], functions: [FUNCTION], function_call: "auto" },
    tools: { messages: [HI], tools: TOOLS, tool_choice: "auto" },
  },
};

/**
 * Probes a provider. Throws ProviderFailure or ProviderRejection if it does not answer a plain request, whatever the reason: then nothing
 * can be told from what it refuses.
 */
export async function probeFacts(probe: ToProbe): Promise<ProbeResult> {
  const asker = new Asker(probe);
  const { chatModel, embeddingModel } = probe;
  if (chatModel !== undefined) {
    await asker.probeCap();
    for (const name of Object.keys(FORMS) as (keyof typeof FORMS)[]) await asker.probe(name);
    await asker.probeStream();
  }
  if (embeddingModel !== undefined) await asker.probeEmbeddings(embeddingModel);
  return asker.result();
}

class Asker {
  readonly #probe: ToProbe;
  readonly #proposed: Record<string, unknown> = {};
  readonly #unknown: FactChoice[] = [];
  #calls = 0;
  /** The field of the output cap in all further requests. */
  #capField: Facts["capField"];

  constructor(probe: ToProbe) {
    this.#probe = probe;
    this.#capField = probe.facts.capField;
  }

  result(): ProbeResult {
    const { facts, owners } = this.#probe;
    const recognised = dialectOfOwners(owners) ?? null;
    if (recognised !== null) this.#proposeKnown(DIALECTS[recognised], facts);
    // Of two facts that hang together only one was probed.
    if (this.#proposed.contentForm === "text" && facts.toolImages === "kept") this.#proposed.toolImages = "moved";
    const proposed = this.#proposed as FactsOverride;
    const problem = contradictionOf({ ...facts, ...proposed });
    if (problem !== undefined) throw new ProviderFailure("not_json", `Its answers contradict each other: ${problem}`);
    return { proposed, unknown: this.#unknown, calls: this.#calls, recognised };
  }

  /** What is known of servers of its kind, and no refusal shows: they ignore what they do not know. Source: DIA-14. */
  #proposeKnown({ known }: Dialect, facts: Facts): void {
    for (const [name, { is }] of Object.entries(known)) {
      const isShown = name in this.#proposed || this.#unknown.some((one) => one === name);
      if (!isShown && String(facts[name as keyof Facts]) !== String(is)) this.#proposed[name] = is;
    }
  }

  /** The plain request: if it is refused under both names of the cap, no other answer would say anything. */
  async probeCap(): Promise<void> {
    const { capField: first } = this.#probe.facts;
    const other = first === "max_tokens" ? "max_completion_tokens" : "max_tokens";
    const refused = await this.#refusalOf({ messages: [HI] }, first);
    if (refused === undefined) return;
    if ((await this.#refusalOf({ messages: [HI] }, other)) !== undefined) throw refused;
    this.#proposed.capField = other;
    this.#capField = other;
  }

  /** The value that applies now is tried first. */
  async probe(name: FactChoice): Promise<void> {
    const forms: Readonly<Record<string, Fields>> = FORMS[name] ?? {};
    const now: string = this.#probe.facts[name];
    for (const value of [now, ...FACT_CHOICES[name].values.filter((one) => one !== now)]) {
      if ((await this.#refusalOf(forms[value] ?? {})) !== undefined) continue;
      if (value !== now) this.#proposed[name] = value;
      return;
    }
    this.#unknown.push(name);
  }

  /** Whether it takes `stream_options`, and whether usage comes without them. */
  async probeStream(): Promise<void> {
    const { streamOptions, usage } = this.#probe.facts;
    const asked = { messages: [HI], stream: true, stream_options: { include_usage: true } };
    if (streamOptions === "sent" && (await this.#streamOf(asked)) !== undefined) return;
    const plain = await this.#streamOf({ messages: [HI], stream: true });
    if (plain === undefined) {
      this.#unknown.push("streamOptions");
      return;
    }
    if (streamOptions === "sent") this.#proposed.streamOptions = "left_out";
    if (usage === "asked" || usage === "none") {
      const found = plain.includes('"usage":{') ? "last_chunk" : "none";
      if (found !== usage) this.#proposed.usage = found;
    }
  }

  async probeEmbeddings(model: string): Promise<void> {
    const { embeddings } = this.#probe.facts;
    const ask = (fields: Fields) =>
      this.#refusedBy(() => this.#whole("/embeddings", { model, input: "Hi", ...fields }, "data"));
    if (embeddings === "float" || (await ask({ encoding_format: "base64" })) === undefined) return;
    if ((await ask({})) === undefined) this.#proposed.embeddings = "float";
    else this.#unknown.push("embeddings");
  }

  #body(fields: Fields, capField: string): Fields {
    return { model: this.#probe.chatModel, ...fields, [capField]: PROBE_CAP_TOKENS };
  }

  #refusalOf(fields: Fields, capField: string = this.#capField): Promise<unknown> {
    return this.#refusedBy(() => this.#whole("/chat/completions", this.#body(fields, capField), "choices"));
  }

  /** The events of a stream; undefined if it was refused. */
  async #streamOf(fields: Fields): Promise<string | undefined> {
    let text = "";
    const refused = await this.#refusedBy(async () => {
      text = await this.#stream(this.#body(fields, this.#capField));
    });
    return refused === undefined ? text.replaceAll(" ", "") : undefined;
  }

  /** The refusal of a request. Throws what says nothing about the request: no connection, no credit, a limit, silence. */
  async #refusedBy(ask: () => Promise<void>): Promise<unknown> {
    if (this.#calls >= PROBE_CALLS_MAX) throw new ProviderFailure("not_json", "The probe took too many requests.");
    this.#calls += 1;
    try {
      await ask();
      return undefined;
    } catch (thrown) {
      this.#probe.signal.throwIfAborted();
      // Servers answer 500 when a chat template refuses a message.
      const isRefusal =
        thrown instanceof ProviderRejection || (thrown instanceof ProviderFailure && thrown.kind === "status");
      if (isRefusal) return thrown;
      throw thrown;
    }
  }

  async #whole(path: string, body: Fields, list: "choices" | "data"): Promise<void> {
    const { client, upstream, signal, callMs } = this.#probe;
    const limits = { signal, totalMs: callMs, bytesMax: PROBE_BYTES_MAX };
    const text = await client.postWhole(upstream, path, JSON.stringify(body), limits);
    if (!hasList(text, list)) throw new ProviderFailure("not_json", "Its answer is neither one nor an error.");
  }

  async #stream(body: Fields): Promise<string> {
    const { client, upstream, signal, callMs } = this.#probe;
    const own = AbortSignal.any([signal, AbortSignal.timeout(callMs)]);
    const options = { signal: own, firstByteMs: callMs, accept: "text/event-stream" as const };
    const response = await client.post(upstream, "/chat/completions", JSON.stringify(body), options);
    const text = await readText(response, own);
    if (!text.includes('"choices"')) throw new ProviderFailure("not_json", "Its stream has no chunk.");
    return text;
  }
}

/** A body up to its end, or up to as many bytes as a probe reads. */
async function readText(response: { body: ReadableStream<Uint8Array> | null }, signal: AbortSignal): Promise<string> {
  const reader = response.body?.getReader();
  if (reader === undefined) return "";
  const decoder = new TextDecoder();
  const stop = () => void reader.cancel().catch(() => {});
  signal.addEventListener("abort", stop, { once: true });
  let text = "";
  try {
    while (text.length < PROBE_BYTES_MAX) {
      const { done, value } = await reader.read();
      if (done) break;
      text += decoder.decode(value, { stream: true });
    }
  } finally {
    signal.removeEventListener("abort", stop);
    stop();
  }
  if (signal.aborted) throw new ProviderFailure("timeout", "Its stream did not end in time.");
  return text;
}

export function hasList(text: string, field: "choices" | "data"): boolean {
  try {
    const parsed: unknown = JSON.parse(text);
    return isRecord(parsed) && Array.isArray(parsed[field]);
  } catch {
    return false; // The caller reports it.
  }
}
