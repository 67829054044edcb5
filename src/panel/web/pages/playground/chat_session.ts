import { useSyncExternalStore } from "react";
import { send, toApiError } from "../../api.ts";
import { announce } from "../../ui/announce.ts";
import { costOf } from "../usage/receipts.ts";
import { type Piece, readAnswer } from "./chat_stream.ts";
import { type Answer, type Endpoint, playground, setPlayground, type Turn } from "./state.ts";

/**
 * The current conversation: sending, stopping, and the cost of each answer. It belongs to the tab, not to the page: an answer
 * continues while another page is open.
 */

const ANNOUNCED_CHARS_MAX = 4_000;

export type ChatRequest = {
  model: string;
  messages: { role: "system" | "user" | "assistant"; content: string }[];
  temperature?: number;
  max_tokens?: number;
  api_key_id?: string;
};

/** Where the conversation is sent, and as what. Both endpoints answer as a stream. */
const REQUESTS: Readonly<Record<Endpoint, { path: string; bodyOf: (request: ChatRequest) => object }>> = {
  chat: { path: "/api/panel/ai/chat", bodyOf: (request) => ({ ...request, stream: true }) },
  responses: {
    path: "/api/panel/ai/responses",
    bodyOf: ({ messages, max_tokens, ...request }) => ({
      ...request,
      input: messages,
      ...(max_tokens !== undefined && { max_output_tokens: max_tokens }),
      store: false,
      stream: true,
    }),
  },
};

export type ChatStatus = {
  /** When the running request was sent, by `performance.now()`; null: none is running. */
  sendingSince: number | null;
  /** Why the last message was refused. The message is back in the composer. */
  error: unknown;
};

let status: ChatStatus = { sendingSince: null, error: null };
let abort: AbortController | null = null;
const listeners = new Set<() => void>();

export function useChatStatus(): ChatStatus {
  return useSyncExternalStore(subscribe, () => status);
}

export function stopChat(): void {
  abort?.abort();
}

export function clearChatError(): void {
  if (status.error !== null) setStatus({ ...status, error: null });
}

/**
 * Sends the composer's text and follows the answer to its end. A refused message goes back into the composer. `onEnd` is called when
 * something may have been charged.
 */
export async function sendChat(
  settings: Omit<ChatRequest, "messages"> & { system: string },
  onEnd: () => void,
): Promise<void> {
  const text = playground().draft.trim();
  if (text === "" || status.sendingSince !== null) return;
  const before = playground().turns;
  const answer: Answer = {
    role: "assistant",
    text: "",
    thoughts: "",
    model: settings.model,
    requestId: null,
    end: null,
    cost: null,
  };
  const asked: Turn[] = [...before, { role: "user", text }];
  setPlayground({ draft: "", turns: [...asked, answer] });
  abort = new AbortController();
  setStatus({ sendingSince: performance.now(), error: null });
  const live = followAnswer(asked.length);
  try {
    const { system, ...rest } = settings;
    const end = await answerTo(
      { ...rest, messages: messagesOf(system, asked) },
      { signal: abort.signal, onStart: (requestId) => live.set({ requestId }), onPiece: live.add },
    );
    live.finish({ end });
    setStatus({ sendingSince: null, error: null });
  } catch (error) {
    live.drop();
    const { draft } = playground();
    setPlayground({ draft: draft === "" ? text : `${text}\n\n${draft}`, turns: before });
    setStatus({ sendingSince: null, error });
    return;
  }
  await loadCost(asked.length);
  onEnd();
}

/** Sends the request and passes on each piece of the answer. Throws ApiError if it was refused. */
async function answerTo(
  request: ChatRequest,
  {
    signal,
    onStart,
    onPiece,
  }: { signal: AbortSignal; onStart: (requestId: string | null) => void; onPiece: (piece: Piece) => void },
): Promise<"complete" | "stopped" | "broke_off"> {
  try {
    const { path, bodyOf } = REQUESTS[playground().endpoint];
    const response = await send(path, { method: "POST", body: bodyOf(request), signal });
    if (!response.ok || response.body === null) throw await toApiError(response);
    onStart(response.headers.get("x-request-id"));
    return await readAnswer(response.body, onPiece);
  } catch (error) {
    if (signal.aborted) return "stopped";
    throw error;
  }
}

/** The conversation so far. Empty answers are left out, because providers refuse them. */
function messagesOf(system: string, turns: readonly Turn[]): ChatRequest["messages"] {
  const said = turns
    .filter(({ role, text }) => role === "user" || text !== "")
    .map(({ role, text }) => ({ role, content: text }));
  return system.trim() === "" ? said : [{ role: "system", content: system.trim() }, ...said];
}

/** Collects the pieces of the answer at this index, and shows them once per animation frame. */
function followAnswer(index: number) {
  let text = "";
  let thoughts = "";
  let frame: number | undefined;
  const set = (change: Partial<Answer>) => changeAnswer(index, change);
  const show = () => {
    frame = undefined;
    set({ text, thoughts });
  };
  const drop = () => {
    if (frame !== undefined) cancelAnimationFrame(frame);
  };
  return {
    set,
    drop,
    add(piece: Piece) {
      text += piece.text;
      thoughts += piece.thoughts;
      frame ??= requestAnimationFrame(show);
    },
    finish(change: Pick<Answer, "end">) {
      drop();
      set({ ...change, text, thoughts });
      announce(text === "" ? "The answer is empty." : text.slice(0, ANNOUNCED_CHARS_MAX));
    },
  };
}

function changeAnswer(index: number, change: Partial<Answer>): void {
  const { turns } = playground();
  const turn = turns[index];
  if (turn?.role === "assistant") setPlayground({ turns: turns.with(index, { ...turn, ...change }) });
}

/** Loads the cost of the answer at this index from its receipt. */
export async function loadCost(index: number): Promise<void> {
  const turn = playground().turns[index];
  if (turn?.role !== "assistant" || turn.requestId === null || turn.cost !== null) return;
  const { requestId } = turn;
  const cost = await costOf(requestId);
  // The conversation may have been cleared or restarted in the meantime.
  const now = playground().turns[index];
  if (cost !== null && now?.role === "assistant" && now.requestId === requestId) changeAnswer(index, { cost });
}

function setStatus(next: ChatStatus): void {
  status = next;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
