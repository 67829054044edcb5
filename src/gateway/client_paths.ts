import type { Route } from "../catalog/catalog.ts";
import { ProviderRejection } from "../catalog/provider_errors.ts";
import { isRecord } from "../platform/records.ts";
import { type ChatToSend, filteredFor } from "./chat_payload.ts";
import type { Origin } from "./filtering.ts";
import { readsLegacyCalls } from "./legacy_functions.ts";
import { repairedFrom } from "./message_repairs.ts";

/**
 * A provider names places in the body that it was sent, in which messages may have been merged, moved or divided, and fields renamed.
 * Clients are told the places in the body that they sent. Source: PRV-32.
 */

/** A message, with what follows it: a part of its content or one of its calls, and a member. */
const IN_MESSAGE =
  /\bmessages(?:\.|\.?\[)(\d+)\]?(?:\.content(?:\.|\.?\[)(\d+)\]?|\.tool_calls(?:\.|\.?\[)(\d+)\]?(\.function)?)?(\.\w+)?/g;
const IN_TOOLS = /\btools(?:\.|\.?\[)(\d+)\]?(\.function)?/g;
/** The members of Anthropic's blocks, by those of a chat's calls and results. */
const BLOCK_MEMBERS: ReadonlyMap<string, string> = new Map([
  [".arguments", ".input"],
  [".tool_call_id", ".tool_use_id"],
]);
const CAPS: readonly string[] = ["max_tokens", "max_completion_tokens"];

/** A provider's rejection of a chat, with the paths of the client's body. Another error is returned as it is. */
export function rejectionInRequest(error: unknown, request: ChatToSend, route: Route): unknown {
  if (!(error instanceof ProviderRejection)) return error;
  const paths = new ClientPaths(request, route);
  const param = error.param === null ? null : paths.nameOf(error.param);
  return new ProviderRejection(paths.within(error.message), { status: error.status, param });
}

class ClientPaths {
  readonly #body: ChatToSend["body"];
  /** Legacy functions were sent as tools. */
  readonly #hasFunctions: boolean;
  readonly #messages: readonly Origin[];
  readonly #tools: readonly Origin[];

  constructor(request: ChatToSend, route: Route) {
    const { changed, origins } = filteredFor(request, route);
    const filtered = changed.get("messages") ?? request.body.messages;
    const originOf = (at: number): Origin => origins?.get("messages")?.[at] ?? { path: `messages.${at}` };
    this.#body = request.body;
    this.#hasFunctions = route.facts.functions === "tools" && readsLegacyCalls(request.body);
    this.#messages = repairedFrom(Array.isArray(filtered) ? filtered : [], route.facts).map(({ at, parts }) => {
      const origin = originOf(at);
      return parts === undefined
        ? origin
        : { ...origin, parts: parts.map(([message, part]) => partOf(originOf(message), part)) };
    });
    this.#tools = origins?.get("tools") ?? [];
  }

  /** The client's name of a field, or its path. */
  nameOf(param: string): string {
    const other = CAPS.find((name) => name !== param && name in this.#body);
    if (CAPS.includes(param)) return param in this.#body ? param : (other ?? param);
    if (!this.#hasFunctions) return this.within(param);
    return param === "tools" ? "functions" : param === "tool_choice" ? "function_call" : this.within(param);
  }

  /** The paths in a text. One that is right already stays as it is written. */
  within(text: string): string {
    return text
      .replace(IN_MESSAGE, (path, i: string, part?: string, call?: string, inner = "", member = "") => {
        const origin = this.#messages[Number(i)];
        if (origin === undefined) return path;
        if (part !== undefined) return written(path, partOf(origin, Number(part)), member);
        if (call !== undefined) return written(path, this.#callOf(origin, Number(call), inner), member);
        return written(path, origin.path, member);
      })
      .replace(IN_TOOLS, (path, i: string, inner = "") => {
        if (this.#hasFunctions) return `functions.${i}`;
        const origin = this.#tools[Number(i)];
        return origin === undefined ? path : written(path, origin.path, inner);
      });
  }

  /** `inner`: the member of a chat's call that has its name and arguments. */
  #callOf(origin: Origin, index: number, inner: string): string {
    const call = origin.calls?.[index];
    if (call !== undefined) return call.includes(".content.") ? call : call + inner;
    const message: unknown = this.#body.messages[Number(origin.path.split(".")[1])];
    const isLegacy = isRecord(message) && message.function_call !== undefined && !Array.isArray(message.tool_calls);
    return isLegacy ? `${origin.path}.function_call` : `${origin.path}.tool_calls.${index}${inner}`;
  }
}

/** The client's path of a place, or the provider's `path` if they differ only in how they are written. */
function written(path: string, place: string, member: string): string {
  const own = place + (place.includes(".content.") ? (BLOCK_MEMBERS.get(member) ?? member) : member);
  return path.replace(/\.?\[(\d+)\]/g, ".$1") === own ? path : own;
}

/** The path of a part of a message's content. */
function partOf({ path, parts }: Origin, index: number): string {
  return parts === undefined ? `${path}.content.${index}` : (parts[index] ?? `${path}.content`);
}
