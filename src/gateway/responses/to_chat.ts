import { isRecord } from "../../platform/records.ts";
import { checkSent } from "../filtering.ts";
import { IMAGE_FOLLOWS } from "../message_repairs.ts";
import { readCallId } from "./kept_in_ids.ts";
import { type Item, isMessage, type Part, placeOf, type ResponsesBody } from "./request.ts";
import { isSealedHere, openReasoning, type Seal } from "./sealed_reasoning.ts";
import { customArguments, type Tools } from "./tools.ts";

/**
 * Translates a request into one for chat completions. The translation adds no parameter that the request does not have,
 * so that basic providers can serve it. Source: RSP-4, RSP-6, RSP-7.
 */

/** Fields that are translated, or that have no effect when left out. They are not named as dropped: clients always send some. */
const SILENT: ReadonlySet<string> = new Set(
  `model input instructions stream stream_options max_output_tokens tools tool_choice parallel_tool_calls text reasoning include
  metadata store client_metadata previous_response_id conversation prompt background truncation usage`.split(/\s+/),
);
/** Fields that are dropped and named: chat completions has no such field, or another meaning for it. All others are sent on as they are. */
const NOT_SENT: ReadonlySet<string> = new Set(
  `messages n max_tokens max_completion_tokens functions function_call logprobs top_logprobs max_tool_calls`.split(" "),
);
/** The path of the system message, even if it was made from messages. */
export const INSTRUCTIONS = "instructions";

type Fields = Record<string, unknown>;

/** A chat request that stands for a responses request. */
export type ChatRequest = {
  body: Fields & { model: string; messages: Fields[] };
  /** The path of the item from which each message was made. */
  places: readonly string[];
  /** By message: the path of the item with its reasoning; undefined if it has none. */
  reasoningPlaces: readonly (string | undefined)[];
  /** By tool: the path of the tool from which it was made. */
  toolPlaces: readonly string[];
  /** The paths that have no counterpart. */
  dropped: readonly string[];
};

/** Translates a request. Throws invalid_request for errors that only the translation finds. */
export function toChat(request: ResponsesBody, { tools, seal }: { tools: Tools; seal: Seal }): ChatRequest {
  const { model, input, instructions, stream, temperature, top_p, text, reasoning } = request;
  const talk = new Conversation(tools, seal);
  if (instructions) talk.addSystem(instructions);
  if (typeof input === "string") talk.addUser(input, "input");
  else for (const [i, item] of input.entries()) talk.add(item as Item, placeOf(request, i));
  const { messages, places, reasoningPlaces } = talk.messages();
  const others = Object.entries(request).filter(
    ([name, value]) => !SILENT.has(name) && value !== null && value !== undefined && !isUsualTier(name, value),
  );
  const [left, sent] = [others.filter(([name]) => NOT_SENT.has(name)), others.filter(([name]) => !NOT_SENT.has(name))];
  const dropped = [...tools.hosted.keys(), ...talk.dropped, ...left.map(([name]) => name)];
  // Not by assignment: a field named __proto__ would become the prototype, and no list checks what that has.
  const body: ChatRequest["body"] = { ...Object.fromEntries(sent), model, messages };
  if (stream) body.stream = true;
  if (typeof temperature === "number") body.temperature = temperature;
  if (typeof top_p === "number") body.top_p = top_p;
  if (reasoning?.effort) body.reasoning_effort = reasoning.effort;
  if (text?.verbosity) body.verbosity = text.verbosity;
  const format = responseFormat(text?.format);
  if (format !== undefined) body.response_format = format;
  const toolPlaces = addTools(body, request, { tools, dropped });
  return { body, places, reasoningPlaces, toolPlaces, dropped };
}

/**
 * Clients always send the default tier. Another tier changes the price, and is named as dropped unless a route allows
 * it.
 */
function isUsualTier(name: string, value: unknown): boolean {
  return name === "service_tier" && (value === "auto" || value === "default");
}

function responseFormat(format: unknown): unknown {
  if (!isRecord(format) || format.type === "text") return undefined;
  if (format.type !== "json_schema") return { type: format.type };
  const { name, schema, description, strict } = format;
  const more = {
    ...(typeof description === "string" && { description }),
    ...(typeof strict === "boolean" && { strict }),
  };
  return { type: "json_schema", json_schema: { name, schema, ...more } };
}

/** Adds the tools and the tool choice. Returns the tools' paths in the request. */
function addTools(
  body: Fields,
  { tool_choice: choice, parallel_tool_calls }: ResponsesBody,
  { tools, dropped }: { tools: Tools; dropped: string[] },
): readonly string[] {
  let { functions } = tools;
  let wanted: unknown = choice ?? undefined;
  if (isRecord(choice)) {
    if (choice.type === "function" || choice.type === "custom") {
      wanted = { type: "function", function: { name: chosen(choice, tools) } };
    } else if (choice.type === "allowed_tools") {
      const list: unknown[] = Array.isArray(choice.tools) ? choice.tools : [];
      const allowed = new Set(list.map((tool) => chosen(tool, tools)));
      functions = functions.filter(({ tool }) => allowed.has(tool.function.name));
      wanted = choice.mode === "required" ? "required" : "auto";
    } else {
      wanted = undefined;
      dropped.push("tool_choice");
    }
  }
  if (functions.length === 0) return [];
  body.tools = functions.map(({ tool }) => tool);
  if (wanted !== undefined) body.tool_choice = wanted;
  // `true` is every provider's default, and some do not know the field.
  if (parallel_tool_calls === false) body.parallel_tool_calls = false;
  return functions.map(({ place }) => place);
}

/** The function's name of a chosen tool. A hosted tool has none. */
function chosen(tool: unknown, { names }: Tools): string | undefined {
  if (!isRecord(tool) || (tool.type !== "function" && tool.type !== "custom")) return undefined;
  if (typeof tool.name !== "string") return undefined;
  return names.flatOf(tool.name, typeof tool.namespace === "string" ? tool.namespace : undefined);
}

/** A message, with what must follow it: the outputs of its calls, then the images among them. */
type Turn = {
  message: Fields;
  calls: Fields[];
  place: string;
  reasoningPlace: string | undefined;
  outputs: { message: Fields; place: string }[];
  images: Fields[];
};

/** Builds the chat messages for the items of an input. */
class Conversation {
  readonly dropped: string[] = [];
  readonly #tools: Tools;
  readonly #seal: Seal;
  /**
   * The text of the instructions and of all system and developer messages: many chat templates accept only one such
   * message, at the beginning.
   */
  readonly #system: string[] = [];
  readonly #turns: Turn[] = [];
  /** The assistant's turn with each call, by call id. */
  readonly #callers = new Map<string, Turn>();
  /** The assistant's turn that further items of the assistant belong to. */
  #open: Turn | undefined;
  /** Reasoning that the next item of the assistant belongs to. */
  #reasoning = "";
  /** Of its last item. */
  #reasoningPlace = "";

  constructor(tools: Tools, seal: Seal) {
    this.#tools = tools;
    this.#seal = seal;
  }

  add(item: Item, place: string): void {
    if (isMessage(item)) {
      if (item.role === "assistant") this.#addAssistant(item.content, place);
      else if (item.role === "user") this.addUser(item.content, place);
      else this.addSystem(this.#textOf(item.content, `${place}.content`));
      return;
    }
    switch (item.type) {
      case "function_call":
        this.#addCall(item, item.arguments, place);
        break;
      case "custom_tool_call":
        this.#addCall(item, customArguments(item.input), place);
        break;
      case "function_call_output":
      case "custom_tool_call_output":
        this.#addOutput(item, place);
        break;
      case "reasoning":
        this.#addReasoning(item, place);
        break;
      case "item_reference":
      case "additional_tools":
        break;
      default:
        this.dropped.push(place);
    }
  }

  addSystem(text: string): void {
    if (text !== "") this.#system.push(text);
  }

  addUser(content: string | readonly Part[], place: string): void {
    this.#open = undefined;
    this.#reasoning = "";
    this.#turns.push(turnOf({ role: "user", content: userContent(content) }, place));
  }

  /** A message after calls of the same turn is joined with them, because the outputs must directly follow the calls. */
  #addAssistant(content: string | readonly Part[], place: string): void {
    const text = this.#textOf(content, `${place}.content`);
    const open = this.#open;
    const turn = open !== undefined && open.calls.length > 0 ? open : this.#begin(place);
    const before = turn.message.content;
    turn.message.content = typeof before === "string" && before !== "" ? `${before}\n\n${text}` : text;
  }

  /** All calls of a turn belong to one message: in several messages they would be separate answers. */
  #addCall(call: { call_id: string; name: string; namespace?: string | null }, args: string, place: string): void {
    const turn = this.#open ?? this.#begin(place);
    const name = this.#tools.names.flatOf(call.name, call.namespace);
    const { id, kept, ofMessage } = readCallId(call.call_id);
    Object.assign(turn.message, ofMessage);
    turn.calls.push({ id, type: "function", function: { name, arguments: args }, ...kept });
    this.#callers.set(id, turn);
  }

  #addOutput({ call_id, output }: { call_id: string; output: string | readonly Part[] }, place: string): void {
    this.#open = undefined;
    const { id } = readCallId(call_id);
    const turn = this.#callers.get(id);
    if (turn === undefined) return;
    const images = typeof output === "string" ? [] : output.filter((part) => part.type === "input_image");
    const text = this.#textOf(output, `${place}.output`, "input_image");
    const content = text === "" && images.length > 0 ? IMAGE_FOLLOWS : text;
    turn.outputs.push({ message: { role: "tool", tool_call_id: id, content }, place });
    turn.images.push(...images.map(chatPart));
  }

  /** The text of a content. Refuses its other parts, unless they are `kept` elsewhere: nothing else can be there in a chat. Source: PRV-29. */
  #textOf(content: string | readonly Part[], path: string, kept?: Part["type"]): string {
    if (typeof content === "string") return content;
    const texts = content.map(({ type, text, refusal }, j) => {
      const said = [text, refusal].find((words) => typeof words === "string");
      if (said === undefined && type !== kept) checkSent(`${path}.${j}`);
      return said;
    });
    return texts.join("");
  }

  #addReasoning(item: Extract<Item, { type: "reasoning" }>, place: string): void {
    const { encrypted_content: sealed, summary, content } = item;
    const texts = content?.length ? content : (summary ?? []);
    const text = isSealedHere(sealed)
      ? openReasoning(this.#seal, sealed, `${place}.encrypted_content`)
      : texts.map((part) => part.text).join("\n\n");
    this.#open = undefined;
    this.#reasoning = this.#reasoning === "" ? text : `${this.#reasoning}\n\n${text}`;
    this.#reasoningPlace = place;
  }

  #begin(place: string): Turn {
    const message: Fields = { role: "assistant", content: null };
    const turn = turnOf(message, place);
    if (this.#reasoning !== "") {
      message.reasoning_content = this.#reasoning;
      turn.reasoningPlace = this.#reasoningPlace;
    }
    this.#reasoning = "";
    this.#turns.push(turn);
    this.#open = turn;
    return turn;
  }

  messages(): { messages: Fields[]; places: string[]; reasoningPlaces: (string | undefined)[] } {
    const messages: Fields[] = [];
    const places: string[] = [];
    const reasoningPlaces: (string | undefined)[] = [];
    const add = (message: Fields, place: string, reasoningPlace?: string) => {
      messages.push(message);
      places.push(place);
      reasoningPlaces.push(reasoningPlace);
    };
    if (this.#system.length > 0) add({ role: "system", content: this.#system.join("\n\n") }, INSTRUCTIONS);
    for (const { message, calls, place, reasoningPlace, outputs, images } of this.#turns) {
      add(calls.length === 0 ? message : { ...message, tool_calls: calls }, place, reasoningPlace);
      for (const output of outputs) add(output.message, output.place);
      if (images.length > 0) add({ role: "user", content: images }, outputs.at(-1)?.place ?? place);
    }
    return { messages, places, reasoningPlaces };
  }
}

function turnOf(message: Fields, place: string): Turn {
  return { message, calls: [], place, reasoningPlace: undefined, outputs: [], images: [] };
}

/** A single text is sent as a string, which every provider accepts. */
function userContent(content: string | readonly Part[]): unknown {
  if (typeof content === "string") return content;
  const [only] = content;
  if (content.length === 1 && only?.type === "input_text") return only.text;
  return content.map(chatPart);
}

/** A part for chat completions. The list of parameters decides whether files and audio are sent on. */
function chatPart(part: Part): Fields {
  const { type, text, refusal, image_url, detail, filename, file_data, file_url, ...rest } = part;
  if (type === "input_image")
    return { type: "image_url", image_url: { url: image_url, ...(detail ? { detail } : {}) } };
  if (type === "input_file") {
    const file = { filename, file_data, file_url };
    return { type: "file", file };
  }
  if (type === "input_audio") return { type, ...rest };
  return { type: "text", text: text ?? refusal };
}
