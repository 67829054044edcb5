import { useSyncExternalStore } from "react";
import type { Cost } from "../usage/receipts.ts";

/**
 * The playground's state: settings, drafts and the conversation. It belongs to this tab: in memory, so that an answer continues while
 * another page is open; in sessionStorage, so that a reload loses nothing.
 *
 *   const draft = usePlayground((state) => state.draft);
 *   setPlayground({ draft: "" });
 */

/** Delay of writing after a change, so that a stream is not written word by word. */
const WRITE_AFTER_MS = 400;
/** The size kept across a reload; the oldest turns are dropped first. Browsers allow about five times that. */
const KEPT_CHARS_MAX = 1_000_000;
const TURNS_MAX = 400;
const STORAGE_PREFIX = "playground:";

/** How an answer ended. `left`: the page was closed or reloaded before the end. */
export type End = "complete" | "stopped" | "broke_off" | "left";

export type Answer = {
  role: "assistant";
  text: string;
  /** The reasoning text of a reasoning model. */
  thoughts: string;
  model: string;
  requestId: string | null;
  /** null: still streaming. */
  end: End | null;
  /** From its receipt; null while unknown. */
  cost: Cost | null;
};
export type Turn = { role: "user"; text: string } | Answer;

/** The endpoint of the API that a conversation is sent to. */
export const ENDPOINTS = ["chat", "responses"] as const;
export type Endpoint = (typeof ENDPOINTS)[number];

const TABS = ["chat", "images", "embeddings"] as const;
type Tab = (typeof TABS)[number];

export type PlaygroundState = {
  tab: Tab;
  endpoint: Endpoint;
  chatModel: string;
  imageModel: string;
  embeddingModel: string;
  /** "": the server chooses. */
  keyId: string;
  /** As typed; "": the model's default. */
  temperature: string;
  maxTokens: string;
  system: string;
  draft: string;
  prompt: string;
  size: string;
  /** The texts to embed, one a line. */
  texts: string;
  turns: readonly Turn[];
};

const EMPTY_STATE: PlaygroundState = {
  tab: "chat",
  endpoint: "chat",
  chatModel: "",
  imageModel: "",
  embeddingModel: "",
  keyId: "",
  temperature: "",
  maxTokens: "",
  system: "",
  draft: "",
  prompt: "",
  size: "1024x1024",
  texts: "",
  turns: [],
};

let state = EMPTY_STATE;
let owner: number | null = null;
let writing: ReturnType<typeof setTimeout> | undefined;
const listeners = new Set<() => void>();

export function playground(): PlaygroundState {
  return state;
}

export function setPlayground(change: Partial<PlaygroundState>): void {
  state = { ...state, ...change };
  for (const listener of listeners) listener();
  writing ??= setTimeout(() => write(), WRITE_AFTER_MS);
}

export function usePlayground<Part>(pick: (state: PlaygroundState) => Part): Part {
  return useSyncExternalStore(subscribe, () => pick(state));
}

/** Restores this account's state in this tab. Once per load of the panel; signing in reloads it. */
export function openPlayground(accountId: number): void {
  if (owner === accountId) return;
  if (owner === null) addEventListener("pagehide", () => write());
  else write();
  owner = accountId;
  state = readKept(accountId);
  write({ isFirst: true });
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function write({ isFirst = false } = {}): void {
  clearTimeout(writing);
  writing = undefined;
  const name = `${STORAGE_PREFIX}${owner}`;
  const { turns } = state;
  let kept = turns.slice(-TURNS_MAX);
  let text = JSON.stringify({ ...state, turns: kept });
  while (text.length > KEPT_CHARS_MAX && kept.length > 0) {
    kept = kept.slice(Math.ceil(kept.length / 4));
    text = JSON.stringify({ ...state, turns: kept });
  }
  try {
    // Signing out clears the storage; a page that is about to close must not write the conversation back.
    if (isFirst || sessionStorage.getItem(name) !== null) sessionStorage.setItem(name, text);
  } catch {
    // Storage is full or forbidden: a reload then loses the conversation.
  }
}

function readKept(accountId: number): PlaygroundState {
  try {
    return toState(JSON.parse(sessionStorage.getItem(`${STORAGE_PREFIX}${accountId}`) ?? "null"));
  } catch {
    return EMPTY_STATE;
  }
}

/** Reads stored state, which an older version may have written: fields that do not fit are dropped. */
function toState(kept: unknown): PlaygroundState {
  const text = (name: keyof PlaygroundState) => {
    const [value, fallback] = [at(kept, name), EMPTY_STATE[name]];
    return typeof value === "string" ? value : typeof fallback === "string" ? fallback : "";
  };
  const turns = at(kept, "turns");
  return {
    tab: TABS.find((tab) => tab === at(kept, "tab")) ?? "chat",
    endpoint: ENDPOINTS.find((endpoint) => endpoint === at(kept, "endpoint")) ?? "chat",
    chatModel: text("chatModel"),
    imageModel: text("imageModel"),
    embeddingModel: text("embeddingModel"),
    keyId: text("keyId"),
    temperature: text("temperature"),
    maxTokens: text("maxTokens"),
    system: text("system"),
    draft: text("draft"),
    prompt: text("prompt"),
    size: text("size"),
    texts: text("texts"),
    turns: Array.isArray(turns) ? turns.flatMap((turn) => toTurn(turn) ?? []) : [],
  };
}

function toTurn(kept: unknown): Turn | null {
  const [role, text] = [at(kept, "role"), at(kept, "text")];
  if (typeof text !== "string") return null;
  if (role === "user") return { role, text };
  if (role !== "assistant") return null;
  const [thoughts, model, requestId, end] = [
    at(kept, "thoughts"),
    at(kept, "model"),
    at(kept, "requestId"),
    at(kept, "end"),
  ];
  return {
    role,
    text,
    thoughts: typeof thoughts === "string" ? thoughts : "",
    model: typeof model === "string" ? model : "",
    requestId: typeof requestId === "string" ? requestId : null,
    end: ENDS.find((each) => each === end) ?? "left",
    cost: toCost(at(kept, "cost")),
  };
}

const ENDS: readonly End[] = ["complete", "stopped", "broke_off"];

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
