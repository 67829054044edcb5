import { useSyncExternalStore } from "react";
import { randomKey } from "../../api.ts";
import { type Attachment, at, ENDPOINTS, type Endpoint, type Exchange, sizeOf, toExchange } from "./exchanges.ts";
import { KeptChats, titleOf } from "./kept_chats.ts";

/**
 * The playground's state: settings, drafts and the conversation. It is in memory, so that an answer continues while another page is open.
 * Settings and the draft are also in this tab's sessionStorage, and the conversation in this browser's database (kept_chats.ts), so that a
 * reload loses only images that were not sent, and what an answer that still arrives had in the last moment.
 *
 *   const draft = usePlayground((state) => state.draft);
 *   setPlayground({ draft: "" });
 */

/** Delay of writing after a change, so that a stream is not written word by word. */
const WRITE_AFTER_MS = 400;
const STORAGE_PREFIX = "playground:";

/** The longest conversation: each message is sent with all earlier ones. */
const EXCHANGES_MAX = 100;
const CHAT_CHARS_MAX = 20_000_000;

const TABS = ["chat", "images", "embeddings"] as const;
type Tab = (typeof TABS)[number];

type Settings = {
  tab: Tab;
  endpoint: Endpoint;
  chatModel: string;
  /** The model whose answers stand beside those of `chatModel`; "": none. */
  otherModel: string;
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
};

export type PlaygroundState = Settings & {
  /** Of the message that is being written. */
  images: readonly Attachment[];
  /** The conversation's id in this browser's database; "": it has none yet. */
  chatId: string;
  exchanges: readonly Exchange[];
  /** The conversation is being read. */
  isOpening: boolean;
};

const NO_SETTINGS: Settings = {
  tab: "chat",
  endpoint: "chat",
  chatModel: "",
  otherModel: "",
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
};
const NO_CHAT = { images: [], chatId: "", exchanges: [], isOpening: false } as const;

let state: PlaygroundState = { ...NO_SETTINGS, ...NO_CHAT };
let owner: number | null = null;
/** null: nothing is kept, as while an admin views another person's panel. */
let chats: KeptChats | null = null;
/** The conversation in the database: its id, its version, and the exchanges that it has. */
let kept = { id: "", version: 0, exchanges: state.exchanges };
let writing: ReturnType<typeof setTimeout> | undefined;
/** Writes follow each other: each needs the id and the version of the one before. */
let lastWrite: Promise<unknown> = Promise.resolve();
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

/** The conversations of this browser; null: none are kept. */
export function keptChats(): KeptChats | null {
  return chats;
}

/** No message can follow. */
export function isFull({ exchanges }: PlaygroundState): boolean {
  return exchanges.length >= EXCHANGES_MAX || sizeOf(exchanges) >= CHAT_CHARS_MAX;
}

/** Restores this account's state in this tab. Once per load of the panel; signing in reloads it. `isOwn` false: a viewed person's. */
export function openPlayground(accountId: number, { isOwn }: { isOwn: boolean }): void {
  if (owner === accountId) return;
  if (owner === null) addEventListener("pagehide", () => write());
  else write();
  owner = accountId;
  chats = isOwn ? new KeptChats(accountId) : null;
  const stored = readStored(accountId);
  const chatId = textOf(stored, "chatId");
  state = { ...toSettings(stored), ...NO_CHAT };
  write({ isFirst: true });
  if (chats !== null && chatId !== "") void openChat(chatId);
}

/** Begins a new conversation. The current one is kept. */
export function newChat(): void {
  write();
  kept = { id: "", version: 0, exchanges: [] };
  setPlayground({ chatId: "", exchanges: kept.exchanges });
}

/** Continues a conversation of this browser. */
export async function openChat(id: string): Promise<void> {
  newChat();
  setPlayground({ isOpening: true });
  await lastWrite;
  const found = await chats?.read(id).catch(() => null);
  const exchanges = Array.isArray(found?.exchanges) ? found.exchanges.flatMap((each) => toExchange(each) ?? []) : [];
  kept = { id: found ? id : "", version: found?.version ?? 0, exchanges };
  setPlayground({ isOpening: false, chatId: kept.id, exchanges });
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Writes everything now, not after a while: a reload may follow. */
export function write({ isFirst = false } = {}): void {
  clearTimeout(writing);
  writing = undefined;
  const name = `${STORAGE_PREFIX}${owner}`;
  try {
    // Signing out clears the storage; a page that is about to close must not write anything back.
    if (!isFirst && sessionStorage.getItem(name) === null) return;
    writeChat();
    const { images: _, exchanges: __, isOpening: ___, ...rest } = state;
    sessionStorage.setItem(name, JSON.stringify(rest));
  } catch {
    // Storage is full or forbidden: a reload then loses the draft.
  }
}

/** Writes the conversation if it has changed. */
function writeChat(): void {
  const { exchanges } = state;
  if (chats === null || exchanges.length === 0 || exchanges === kept.exchanges) return;
  if (kept.id === "") {
    kept.id = randomKey();
    state = { ...state, chatId: kept.id };
  }
  const [into, here] = [chats, kept];
  here.exchanges = exchanges;
  lastWrite = lastWrite.then(async () => {
    const { id, version } = here;
    const written = await into.write({ id, version, title: titleOf(exchanges), exchanges });
    if (written === null) return;
    // Another id if it was changed in another tab as well: this tab's is now a conversation of its own.
    Object.assign(here, { id: written.id, version: written.version });
    if (written.id !== id && kept === here) setPlayground({ chatId: written.id });
  });
}

function readStored(accountId: number): unknown {
  try {
    return JSON.parse(sessionStorage.getItem(`${STORAGE_PREFIX}${accountId}`) ?? "null");
  } catch {
    return null;
  }
}

function textOf(stored: unknown, name: string): string {
  const value = at(stored, name);
  return typeof value === "string" ? value : "";
}

/** Reads stored settings, which an older version may have written: fields that do not fit are dropped. */
function toSettings(stored: unknown): Settings {
  const text = (name: keyof Settings) => textOf(stored, name);
  return {
    tab: TABS.find((tab) => tab === text("tab")) ?? "chat",
    endpoint: ENDPOINTS.find((endpoint) => endpoint === text("endpoint")) ?? "chat",
    chatModel: text("chatModel"),
    otherModel: text("otherModel"),
    imageModel: text("imageModel"),
    embeddingModel: text("embeddingModel"),
    keyId: text("keyId"),
    temperature: text("temperature"),
    maxTokens: text("maxTokens"),
    system: text("system"),
    draft: text("draft"),
    prompt: text("prompt"),
    size: text("size") || NO_SETTINGS.size,
    texts: text("texts"),
  };
}
