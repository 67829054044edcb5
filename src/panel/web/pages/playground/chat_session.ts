import { t } from "@lingui/core/macro";
import { useSyncExternalStore } from "react";
import { send, toApiError } from "../../api.ts";
import { announce } from "../../ui/announce.ts";
import { costOf } from "../usage/receipts.ts";
import { type Piece, readAnswer } from "./chat_stream.ts";
import {
  type Answer,
  bodyOf,
  type End,
  type Endpoint,
  type Exchange,
  newAnswer,
  type Place,
  type Sent,
} from "./exchanges.ts";
import { playground, setPlayground, write } from "./state.ts";

/**
 * The current conversation: sending, stopping, and the cost of each answer. It belongs to the tab, not to the page: an answer
 * continues while another page is open.
 */

const ANNOUNCED_CHARS_MAX = 4_000;

const PATHS: Readonly<Record<Endpoint, string>> = {
  chat: "/api/panel/ai/chat",
  responses: "/api/panel/ai/responses",
};

/** One answer that is wanted: of which model, how, and with which key. */
export type Wanted = Sent & { keyId: string };
export type Refused = { model: string; error: unknown };

export type ChatStatus = {
  /** When the running requests were sent, by `performance.now()`; null: none is running. */
  sendingSince: number | null;
  /** Why the last message was refused. The message is back in the composer. */
  refused: readonly Refused[];
};

let status: ChatStatus = { sendingSince: null, refused: [] };
/** Of the running answers, by their side. */
let aborts: ReadonlyMap<number, AbortController> = new Map();
const listeners = new Set<() => void>();

export function useChatStatus(): ChatStatus {
  return useSyncExternalStore(subscribe, () => status);
}

/** Stops one answer; without a side, all. */
export function stopChat(side?: number): void {
  for (const [each, abort] of aborts) if (side === undefined || side === each) abort.abort();
}

export function clearChatError(): void {
  if (status.refused.length > 0) setStatus({ ...status, refused: [] });
}

/**
 * Sends the composer's message to each model, and follows the answers to their ends. A message that all refuse goes back into the
 * composer. `onEnd` is called when something may have been charged.
 */
export async function sendChat(wanted: readonly Wanted[], onEnd: () => void): Promise<void> {
  const { draft, images, exchanges: before } = playground();
  const text = draft.trim();
  if ((text === "" && images.length === 0) || wanted.length === 0 || status.sendingSince !== null) return;
  const asked = { text, images, answers: wanted.map(({ keyId: _, ...sent }) => newAnswer(sent)) };
  setPlayground({ draft: "", images: [], exchanges: [...before, asked] });
  const refused = await answerAll(
    wanted.map(({ keyId }, side) => ({ keyId, place: { index: before.length, side } })),
    onEnd,
  );
  if (refused.length < wanted.length) return;
  const now = playground();
  setPlayground({
    draft: now.draft === "" ? text : `${text}\n\n${now.draft}`,
    images: [...images, ...now.images],
    exchanges: before,
  });
  setStatus({ ...status, refused });
}

/** Requests one answer of the last message again. The old answer comes back if that is refused. */
export async function regenerate(side: number, { keyId, ...sent }: Wanted, onEnd: () => void): Promise<void> {
  const index = playground().exchanges.length - 1;
  const before = playground().exchanges[index]?.answers[side];
  if (before === undefined || status.sendingSince !== null) return;
  changeAnswer({ index, side }, newAnswer(sent));
  const refused = await answerAll([{ keyId, place: { index, side } }], onEnd);
  if (refused.length === 0) return;
  changeAnswer({ index, side }, before);
  setStatus({ ...status, refused });
}

/** Takes the message at this index, and all after it, out of the conversation, and its text back into the composer. Returns what undoes it. */
export function editFrom(index: number): () => void {
  const before = playground();
  const exchange = before.exchanges[index];
  if (exchange === undefined || status.sendingSince !== null) return () => undefined;
  const after = before.exchanges.slice(0, index);
  setPlayground({ draft: exchange.text, images: exchange.images, exchanges: after });
  return () => {
    // Something may have been sent, or another conversation opened, since.
    if (playground().exchanges !== after || status.sendingSince !== null) return;
    setPlayground({ draft: before.draft, images: before.images, exchanges: before.exchanges });
  };
}

type Running = { keyId: string; place: Place };

/** Follows each answer to its end, and loads its cost. Returns those that were refused. */
async function answerAll(running: readonly Running[], onEnd: () => void): Promise<Refused[]> {
  aborts = new Map(running.map(({ place }) => [place.side, new AbortController()]));
  setStatus({ sendingSince: performance.now(), refused: [] });
  write();
  const ended = await Promise.all(
    running.map(({ keyId, place }) => follow(place, { keyId, signal: aborts.get(place.side)?.signal, onEnd })),
  );
  setStatus({ ...status, sendingSince: null });
  return ended.flatMap((refused) => refused ?? []);
}

type Following = { keyId: string; signal: AbortSignal | undefined; onEnd: () => void };

/** Shows an answer as it arrives. Returns why it was refused; null if it was not. */
async function follow(place: Place, { keyId, signal, onEnd }: Following): Promise<Refused | null> {
  const live = liveAnswer(place);
  try {
    live.finish(await answerTo(place, { keyId, signal, live }));
  } catch (error) {
    live.drop();
    changeAnswer(place, { end: "refused", error });
    return { model: answerAt(place)?.sent.model ?? "", error };
  }
  // The others go on in the meantime.
  void loadCost(place).then(onEnd);
  return null;
}

/** Sends the request and passes on each piece of the answer. Throws ApiError if it was refused. */
async function answerTo(
  place: Place,
  { keyId, signal, live }: Pick<Following, "keyId" | "signal"> & { live: ReturnType<typeof liveAnswer> },
): Promise<End> {
  const { exchanges } = playground();
  const endpoint = exchanges[place.index]?.answers[place.side]?.sent.endpoint ?? "chat";
  try {
    const body = { ...bodyOf(exchanges, place), api_key_id: keyId };
    const response = await send(PATHS[endpoint], { method: "POST", body, ...(signal && { signal }) });
    if (!response.ok || response.body === null) throw await toApiError(response);
    changeAnswer(place, { requestId: response.headers.get("x-request-id") });
    return await readAnswer(response.body, live.add);
  } catch (error) {
    if (signal?.aborted) return "stopped";
    throw error;
  }
}

/** Collects the pieces of an answer, and shows them once per animation frame. */
function liveAnswer(place: Place) {
  let text = "";
  let thoughts = "";
  let frame: number | undefined;
  const show = () => {
    frame = undefined;
    changeAnswer(place, { text, thoughts });
  };
  const drop = () => {
    if (frame !== undefined) cancelAnimationFrame(frame);
  };
  return {
    drop,
    add(piece: Piece) {
      text += piece.text;
      thoughts += piece.thoughts;
      frame ??= requestAnimationFrame(show);
    },
    finish(end: End) {
      drop();
      changeAnswer(place, { end, text, thoughts });
      write();
      announce(text === "" ? t`The answer is empty.` : text.slice(0, ANNOUNCED_CHARS_MAX));
    },
  };
}

function answerAt({ index, side }: Place): Answer | undefined {
  return playground().exchanges[index]?.answers[side];
}

function changeAnswer({ index, side }: Place, change: Partial<Answer>): void {
  const { exchanges } = playground();
  const exchange: Exchange | undefined = exchanges[index];
  const answer = exchange?.answers[side];
  if (exchange === undefined || answer === undefined) return;
  const answers = exchange.answers.with(side, { ...answer, ...change });
  setPlayground({ exchanges: exchanges.with(index, { ...exchange, answers }) });
}

/** Loads the cost of an answer from its receipt. */
export async function loadCost(place: Place): Promise<void> {
  const { requestId = null, cost: known = null } = answerAt(place) ?? {};
  if (requestId === null || known !== null) return;
  const cost = await costOf(requestId);
  // Another conversation may have been opened in the meantime.
  if (cost !== null && answerAt(place)?.requestId === requestId) changeAnswer(place, { cost });
}

function setStatus(next: ChatStatus): void {
  status = next;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
