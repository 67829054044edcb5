import { useSyncExternalStore } from "react";
import { send, toApiError } from "../api.ts";
import { announce } from "../ui/announce.ts";
import { type Piece, readAnswer } from "./chat_stream.ts";
import { type Answer, playground, setPlayground, type Turn } from "./playground_state.ts";
import { costOf } from "./receipts.ts";

/**
 * The conversation under way: sending, stopping, and what each answer cost. It belongs to the tab, not to the page: an
 * answer goes on coming while another page is looked at.
 */

const ANNOUNCED_CHARS_MAX = 4_000;

export type ChatRequest = {
  model: string;
  messages: { role: "system" | "user" | "assistant"; content: string }[];
  temperature?: number;
  max_tokens?: number;
  api_key_id?: string;
};

export type ChatStatus = {
  /** A request is under way, since this moment of the page's own clock. */
  sendingSince: number | null;
  /** Why the last message was turned down; it is back in the composer. */
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
 * Sends what is in the composer and follows the answer to its end. A message that is turned down comes back into the
 * composer. `onEnd` is called when something may have been charged.
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
  await learnCost(asked.length);
  onEnd();
}

/** Sends it, and hands on each piece. Throws ApiError if it was turned down before the first. */
async function answerTo(
  request: ChatRequest,
  {
    signal,
    onStart,
    onPiece,
  }: { signal: AbortSignal; onStart: (requestId: string | null) => void; onPiece: (piece: Piece) => void },
): Promise<"complete" | "stopped" | "broke_off"> {
  try {
    const body = { ...request, stream: true };
    const response = await send("/api/panel/ai/chat", { method: "POST", body, signal });
    if (!response.ok || response.body === null) throw await toApiError(response);
    onStart(response.headers.get("x-request-id"));
    return await readAnswer(response.body, onPiece);
  } catch (error) {
    if (signal.aborted) return "stopped";
    throw error;
  }
}

/** Everything said so far. An answer of which nothing arrived is left out, as providers refuse empty ones. */
function messagesOf(system: string, turns: readonly Turn[]): ChatRequest["messages"] {
  const said = turns
    .filter(({ role, text }) => role === "user" || text !== "")
    .map(({ role, text }) => ({ role, content: text }));
  return system.trim() === "" ? said : [{ role: "system", content: system.trim() }, ...said];
}

/** Collects the pieces of the answer at this place, and shows them once a frame. */
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

/** What the answer at this place cost, by its receipt. */
export async function learnCost(index: number): Promise<void> {
  const turn = playground().turns[index];
  if (turn?.role !== "assistant" || turn.requestId === null || turn.cost !== null) return;
  const { requestId } = turn;
  const cost = await costOf(requestId);
  // The conversation may have been cleared, or begun anew, in the meantime.
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
