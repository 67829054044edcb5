import type { Cost } from "../usage/receipts.ts";

/** A conversation: each message with its answers, and the requests that they were sent as. */

/** The endpoint of the API that a conversation is sent to. */
export const ENDPOINTS = ["chat", "responses"] as const;
export type Endpoint = (typeof ENDPOINTS)[number];

/** An image that a message has. `src`: a data URL. */
export type Attachment = { name: string; src: string; bytes: number };

/** How an answer ended. `left`: the page was closed or reloaded before the end. */
export type End = "complete" | "stopped" | "broke_off" | "left" | "refused";

/** The settings that an answer was requested with. */
export type Sent = { endpoint: Endpoint; model: string; system: string; temperature?: number; maxTokens?: number };

export type Answer = {
  sent: Sent;
  text: string;
  /** The reasoning text of a reasoning model. */
  thoughts: string;
  requestId: string | null;
  /** null: still streaming. */
  end: End | null;
  /** From its receipt; null while unknown. */
  cost: Cost | null;
  /** Why it was refused; null after a reload, too. */
  error: unknown;
};

/** A message and its answers: one, or two of models side by side. */
export type Exchange = { text: string; images: readonly Attachment[]; answers: readonly Answer[] };

/** Which answer: its exchange, and the side it stands on. */
export type Place = { index: number; side: number };

export function newAnswer(sent: Sent): Answer {
  return { sent, text: "", thoughts: "", requestId: null, end: null, cost: null, error: null };
}

/** Roughly its characters, without writing it as JSON. */
export function sizeOf(exchanges: readonly Exchange[]): number {
  const sum = (sizes: number[]) => sizes.reduce((total, size) => total + size, 0);
  return sum(
    exchanges.map(
      ({ text, images, answers }) =>
        text.length +
        sum(images.map(({ src }) => src.length)) +
        sum(answers.map((answer) => answer.text.length + answer.thoughts.length + answer.sent.system.length)),
    ),
  );
}

/** The body of an answer's request, exactly as it was sent to its endpoint, without the key. */
export function bodyOf(exchanges: readonly Exchange[], { index, side }: Place): object {
  const sent = exchanges[index]?.answers[side]?.sent;
  if (sent === undefined) return {};
  const { endpoint, model, system, temperature, maxTokens } = sent;
  const messages = [
    ...(system.trim() === "" ? [] : [{ role: "system", content: system.trim() }]),
    ...exchanges.slice(0, index + 1).flatMap((exchange, i) => {
      const question = { role: "user", content: contentOf(endpoint, exchange) };
      // A model that joined later continues the first one's conversation. Providers refuse empty answers.
      const said = i < index ? (exchange.answers[side] ?? exchange.answers[0])?.text : "";
      return said ? [question, { role: "assistant", content: said }] : [question];
    }),
  ];
  const shared = { ...(temperature !== undefined && { temperature }), stream: true };
  return endpoint === "chat"
    ? { model, messages, ...(maxTokens !== undefined && { max_tokens: maxTokens }), ...shared }
    : {
        model,
        input: messages,
        ...(maxTokens !== undefined && { max_output_tokens: maxTokens }),
        store: false,
        ...shared,
      };
}

function contentOf(endpoint: Endpoint, { text, images }: Exchange): string | object[] {
  if (images.length === 0) return text;
  return endpoint === "chat"
    ? [
        ...(text === "" ? [] : [{ type: "text", text }]),
        ...images.map(({ src }) => ({ type: "image_url", image_url: { url: src } })),
      ]
    : [
        ...(text === "" ? [] : [{ type: "input_text", text }]),
        ...images.map(({ src }) => ({ type: "input_image", image_url: src })),
      ];
}

/** What the database keeps of a conversation: all but errors, which it cannot store. */
export function toKept(exchanges: readonly Exchange[]): object[] {
  return exchanges.map((exchange) => ({
    ...exchange,
    answers: exchange.answers.map((answer) => ({ ...answer, error: null })),
  }));
}

/** Reads a stored exchange, which an older version may have written. null: it does not fit. */
export function toExchange(kept: unknown): Exchange | null {
  const [text, images, answers] = [at(kept, "text"), at(kept, "images"), at(kept, "answers")];
  if (typeof text !== "string" || !Array.isArray(images) || !Array.isArray(answers)) return null;
  const read = answers.flatMap((answer) => toAnswer(answer) ?? []);
  if (read.length === 0) return null;
  return { text, images: images.flatMap((image) => toAttachment(image) ?? []), answers: read };
}

function toAttachment(kept: unknown): Attachment | null {
  const [name, src, bytes] = [at(kept, "name"), at(kept, "src"), at(kept, "bytes")];
  if (typeof name !== "string" || typeof src !== "string" || typeof bytes !== "number") return null;
  return src.startsWith("data:image/") ? { name, src, bytes } : null;
}

const ENDS: readonly End[] = ["complete", "stopped", "broke_off", "refused"];

function toAnswer(kept: unknown): Answer | null {
  const text = (...path: string[]) => {
    const value = at(kept, ...path);
    return typeof value === "string" ? value : "";
  };
  const number = (name: string) => {
    const value = at(kept, "sent", name);
    return typeof value === "number" ? value : undefined;
  };
  if (text("sent", "model") === "") return null;
  const [temperature, maxTokens] = [number("temperature"), number("maxTokens")];
  return {
    sent: {
      endpoint: text("sent", "endpoint") === "responses" ? "responses" : "chat",
      model: text("sent", "model"),
      system: text("sent", "system"),
      ...(temperature !== undefined && { temperature }),
      ...(maxTokens !== undefined && { maxTokens }),
    },
    text: text("text"),
    thoughts: text("thoughts"),
    requestId: text("requestId") || null,
    end: ENDS.find((end) => end === text("end")) ?? "left",
    cost: toCost(at(kept, "cost")),
    error: null,
  };
}

function toCost(kept: unknown): Cost | null {
  const number = (name: keyof Cost) => Number(at(kept, name)) || 0;
  const words = at(kept, "words");
  if (typeof words !== "string") return null;
  return {
    isCharged: at(kept, "isCharged") === true,
    promptTokens: number("promptTokens"),
    completionTokens: number("completionTokens"),
    durationMs: number("durationMs"),
    words,
  };
}

/** A nested field of a value of unknown shape; undefined if there is none. */
export function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  let here = value;
  for (const name of path) here = typeof here === "object" && here !== null ? Reflect.get(here, name) : undefined;
  return here;
}
