import { t } from "@lingui/core/macro";
import { useSyncExternalStore } from "react";
import { ApiError, send, toApiError } from "../../api.ts";
import { announce } from "../../ui/announce.ts";
import { type Cost, costOf } from "../usage/receipts.ts";
import { at } from "./exchanges.ts";

/**
 * Images made in this tab. They are too large for sessionStorage: a reload loses them. A request continues while another page is open,
 * since it is charged in any case.
 */

const PICTURES_MAX = 12;

export type Picture = {
  id: number;
  src: string;
  fileName: string;
  prompt: string;
  /** The prompt as the model revised it; null: unchanged. */
  revised: string | null;
  model: string;
  size: string;
  requestId: string | null;
  cost: Cost | null;
};

type ImageState = { pictures: readonly Picture[]; sendingSince: number | null; error: unknown };

let state: ImageState = { pictures: [], sendingSince: null, error: null };
let lastId = 0;
const listeners = new Set<() => void>();

export function useImages(): ImageState {
  return useSyncExternalStore(subscribe, () => state);
}

export function clearImageError(): void {
  if (state.error !== null) set({ error: null });
}

export type ImageRequest = { model: string; prompt: string; size: string; api_key_id: string };

/** The body of an image's request, without the key. */
export function imageBody({ model, prompt, size }: Omit<ImageRequest, "api_key_id">): object {
  return { model, prompt, size, n: 1, response_format: "b64_json" };
}

/** Requests one image. `onEnd` is called when it is charged. */
export async function makeImage(request: ImageRequest, onEnd: () => void): Promise<void> {
  if (state.sendingSince !== null) return;
  set({ sendingSince: performance.now(), error: null });
  addEventListener("beforeunload", guard);
  try {
    const body = { ...imageBody(request), api_key_id: request.api_key_id };
    const response = await send("/api/panel/ai/image", { method: "POST", body });
    if (!response.ok) throw await toApiError(response);
    const requestId = response.headers.get("x-request-id");
    const picture = pictureOf(request, requestId, await response.json());
    set({ sendingSince: null, pictures: [picture, ...state.pictures].slice(0, PICTURES_MAX) });
    announce(t`The image is ready.`);
    onEnd();
    if (requestId !== null) void loadCost(picture.id, requestId);
  } catch (error) {
    set({ sendingSince: null, error });
  } finally {
    removeEventListener("beforeunload", guard);
  }
}

/** Asks before a reload: the running request is charged, and its image would be lost. */
function guard(event: BeforeUnloadEvent): void {
  event.preventDefault();
}

/** Throws ApiError if the answer has no image. */
function pictureOf({ model, prompt, size }: ImageRequest, requestId: string | null, answer: unknown): Picture {
  const base64 = at(answer, "data", 0, "b64_json");
  if (typeof base64 !== "string") {
    throw new ApiError(t`The answer has no image. Its receipt shows what it cost.`, {
      status: 200,
      code: "no_picture",
      requestId,
    });
  }
  const revised = at(answer, "data", 0, "revised_prompt");
  const [type, extension] = typeOf(base64);
  lastId += 1;
  return {
    id: lastId,
    src: `data:${type};base64,${base64}`,
    fileName: `image-${requestId?.slice(0, 8) ?? lastId}.${extension}`,
    prompt,
    revised: typeof revised === "string" && revised !== prompt ? revised : null,
    model,
    size,
    requestId,
    cost: null,
  };
}

/** The type by the first bytes, in base64. */
function typeOf(base64: string): [type: string, extension: string] {
  if (base64.startsWith("/9j/")) return ["image/jpeg", "jpg"];
  if (base64.startsWith("UklGR")) return ["image/webp", "webp"];
  return ["image/png", "png"];
}

async function loadCost(id: number, requestId: string): Promise<void> {
  const cost = await costOf(requestId);
  set({ pictures: state.pictures.map((picture) => (picture.id === id ? { ...picture, cost } : picture)) });
}

function set(change: Partial<ImageState>): void {
  state = { ...state, ...change };
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
