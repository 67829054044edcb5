import { type SchemaOptions, type Static, type TSchema, Type } from "@sinclair/typebox";
import { TypeCompiler } from "@sinclair/typebox/compiler";
import type { Body } from "../../http/body.ts";
import { checker } from "../../http/checks.ts";
import { isRecord } from "../../platform/records.ts";
import { UsageOptions } from "../request_shapes.ts";
import { HOSTED_ITEMS } from "./hosted.ts";
import { CALL_ID_CHARS_MAX, KEEPING_ID_CHARS_MAX, readCallId } from "./kept_in_ids.ts";
import { invalid, refusal, required } from "./refusals.ts";
import { checkSchema } from "./schema_check.ts";

/**
 * The shape of a request for POST /v1/responses, and the fields that are refused because they need more than stored responses. A
 * request that passes can be sent to every kind of route. Source: RSP-1, RSP-3.
 */

export const ITEMS_MAX = 10_000;
const PARTS_MAX = 1_000;
/** The limit of one list, and of all functions of a request. Their names are kept as long as the stream is open. */
export const TOOLS_MAX = 1_000;
const INCLUDES_MAX = 50;
const NAME_CHARS_MAX = 128;
/** The limit of a word such as an effort. A response repeats these words, so a stream keeps them; longer ones are refused. */
const WORD_CHARS_MAX = 64;
/** OpenAI's limits of the metadata, which every response object repeats. */
const METADATA_MAX = 16;
const METADATA_KEY_CHARS_MAX = 64;
const METADATA_VALUE_CHARS_MAX = 512;

/** Optional or null: SDKs send null for options that were not set. */
const Optional = <T extends TSchema>(schema: T, words: SchemaOptions = {}) =>
  Type.Optional(Type.Union([schema, Type.Null()], words));
const open = { additionalProperties: true };
const oneOf = (...values: string[]) => Type.Union(values.map((value) => Type.Literal(value)));
const typed = <T extends string>(type: T) => Type.Literal(type);
/** An object whose type is the only thing checked here. */
const Typed = Type.Unsafe<{ type: string } & Record<string, unknown>>(Type.Object({ type: Type.String() }, open));

const Content = Type.Union([Type.String(), Type.Array(Typed, { maxItems: PARTS_MAX })]);
const Name = Type.String({ minLength: 1, maxLength: NAME_CHARS_MAX });
const Word = Type.String({ maxLength: WORD_CHARS_MAX });
const CallId = Type.String({ minLength: 1, maxLength: KEEPING_ID_CHARS_MAX });

const Message = Type.Object(
  { type: Type.Optional(typed("message")), role: oneOf("user", "assistant", "system", "developer"), content: Content },
  open,
);
const FunctionCall = Type.Object(
  { type: typed("function_call"), call_id: CallId, name: Name, namespace: Optional(Name), arguments: Type.String() },
  open,
);
const CustomToolCall = Type.Object(
  { type: typed("custom_tool_call"), call_id: CallId, name: Name, namespace: Optional(Name), input: Type.String() },
  open,
);
const FunctionCallOutput = Type.Object({ type: typed("function_call_output"), call_id: CallId, output: Content }, open);
const CustomToolCallOutput = Type.Object(
  { type: typed("custom_tool_call_output"), call_id: CallId, output: Content },
  open,
);
const Texts = Type.Array(Type.Object({ type: Type.String(), text: Type.String() }, open), { maxItems: PARTS_MAX });
const Reasoning = Type.Object(
  {
    type: typed("reasoning"),
    summary: Optional(Texts),
    content: Optional(Texts),
    encrypted_content: Optional(Type.String()),
  },
  open,
);
const ItemReference = Type.Object({ type: typed("item_reference"), id: Type.String() }, open);
const AdditionalTools = Type.Object(
  { type: typed("additional_tools"), tools: Type.Array(Typed, { maxItems: TOOLS_MAX }) },
  open,
);

const ITEMS = {
  message: Message,
  function_call: FunctionCall,
  function_call_output: FunctionCallOutput,
  custom_tool_call: CustomToolCall,
  custom_tool_call_output: CustomToolCallOutput,
  reasoning: Reasoning,
  item_reference: ItemReference,
  additional_tools: AdditionalTools,
} as const;

const Hosted = Type.Object({ type: oneOf(...HOSTED_ITEMS) }, open);
const Item = Type.Union([...Object.values(ITEMS), Hosted]);

/** An item of the input, of any type. */
export type InputItem = Static<typeof Item>;
/** An item of the input that does not come from a hosted tool. */
export type Item = Static<(typeof ITEMS)[keyof typeof ITEMS]>;
/** A part of a content, or a tool. */
export type Part = Static<typeof Typed>;
export type Tool = Static<typeof Typed>;

export const ResponsesBody = Type.Object(
  {
    model: Type.String({ minLength: 1, maxLength: 200, description: "The id of a model, as GET /models lists it." }),
    input: Type.Union([Type.String({ minLength: 1 }), Type.Array(Item, { minItems: 1, maxItems: ITEMS_MAX })], {
      description: "Text, or the whole conversation as items: messages, tool calls with their outputs, reasoning.",
    }),
    instructions: Optional(Type.String(), { description: "The system prompt." }),
    stream: Optional(Type.Boolean(), { default: false, description: "Send the answer as server-sent events." }),
    temperature: Optional(Type.Number({ minimum: 0, maximum: 2 })),
    top_p: Optional(Type.Number({ minimum: 0, maximum: 1 })),
    max_output_tokens: Optional(Type.Integer({ minimum: 1, maximum: 2_000_000_000 }), {
      description: "Maximum number of tokens in the answer, reasoning included.",
    }),
    tools: Optional(Type.Array(Typed, { maxItems: TOOLS_MAX }), {
      description: "Tools of type function, custom and namespace. Hosted tools are dropped.",
    }),
    tool_choice: Optional(Type.Union([Type.String(), Typed])),
    parallel_tool_calls: Optional(Type.Boolean()),
    text: Optional(Type.Object({ format: Optional(Typed), verbosity: Optional(Word) }, open)),
    reasoning: Optional(Type.Object({ effort: Optional(Word), summary: Optional(Word) }, open)),
    include: Optional(Type.Array(Type.String(), { maxItems: INCLUDES_MAX })),
    metadata: Optional(Type.Object({}, open), { description: "Sent back in the response." }),
    store: Optional(Type.Boolean(), {
      default: true,
      description: "Whether later requests can refer to the response, by previous_response_id or item_reference.",
    }),
    previous_response_id: Optional(Type.String({ minLength: 1 }), {
      description: "The id of a stored response: its whole conversation comes before input, without its instructions.",
    }),
    usage: UsageOptions,
  },
  {
    title: "CreateResponse",
    description:
      "Refused are conversation, prompt and background. Other fields are accepted. Supported ones are passed on to the model; the others are dropped, and named in the response header X-Dropped-Params.",
    additionalProperties: true,
  },
);
/** How many items at the beginning of the input are those of `previous_response_id`. */
const CONTEXT = Symbol("context");
export type ResponsesBody = Static<typeof ResponsesBody> & { readonly [CONTEXT]?: number };

const checkBody = checker(ResponsesBody);
const knownItem = TypeCompiler.Compile(Item);

/**
 * Checks the body by every rule that needs neither the model nor the tools. If it refers to stored items, the rules of its input are
 * left to `checkInput`. Throws invalid_request.
 */
export function readResponses(raw: Body): ResponsesBody {
  checkItemTypes(raw.value);
  const body = checkBody(raw.value);
  checkUnsupported(body);
  checkFormats(body);
  checkMetadata(body.metadata);
  if (!refersBack(body)) checkInput(body);
  return body;
}

/** Whether a request refers to something that is stored. */
export function refersBack({ previous_response_id: previous, input }: ResponsesBody): boolean {
  if (previous !== undefined && previous !== null) return true;
  return typeof input !== "string" && input.some(({ type }) => type === "item_reference");
}

/** The request with its whole conversation: `context` is that of `previous_response_id`, `own` are its own items. */
export function withContext(
  body: ResponsesBody,
  context: readonly InputItem[],
  own: readonly InputItem[],
): ResponsesBody {
  return { ...body, input: [...context, ...own], [CONTEXT]: context.length };
}

/** The path in the client's request of an item of the input. */
export function placeOf({ [CONTEXT]: context = 0 }: ResponsesBody, index: number): string {
  return index < context ? "previous_response_id" : `input.${index - context}`;
}

/** Whether an item can be in an input: a provider's own output may have items of other types. */
export function isKnownItem(item: unknown): item is InputItem {
  return knownItem.Check(item);
}

/** Names the unknown type. The shape alone would list what is missing for each known type. */
function checkItemTypes(value: unknown): void {
  const input = isRecord(value) ? value.input : undefined;
  if (!Array.isArray(input)) return;
  for (const [i, item] of input.entries()) {
    if (!isRecord(item) || item.type === undefined) continue;
    if (typeof item.type === "string" && (Object.hasOwn(ITEMS, item.type) || HOSTED_ITEMS.has(item.type))) continue;
    throw invalid(`input.${i}.type`, `must be one of ${Object.keys(ITEMS).join(", ")}`);
  }
}

/** Source: RSP-3. */
function checkUnsupported(body: Readonly<Record<string, unknown>>): void {
  const insteads = {
    conversation: "Send the whole conversation in input, or the last response's id as previous_response_id.",
    prompt: "Send the prompt's text in instructions and input.",
  };
  for (const [name, instead] of Object.entries(insteads)) {
    if (body[name] === undefined || body[name] === null) continue;
    throw refusal(name, `The field ${name} is not supported here. ${instead}`);
  }
  if (body.background !== undefined && body.background !== null && body.background !== false)
    throw refusal("background", "The field background is not supported here. Use stream: true instead.");
}

function checkFormats({ text, ...body }: Readonly<ResponsesBody & Record<string, unknown>>): void {
  const format = text?.format ?? undefined;
  const isSet = body.response_format !== undefined && body.response_format !== null;
  if (isSet && format !== undefined)
    throw refusal("response_format", "Send text.format alone: response_format is its name in chat completions.");
  if (isSet) throw refusal("response_format", "In this API the field is called text.format.");
  if (body.messages !== undefined && body.messages !== null)
    throw refusal("messages", "In this API the field is called input.");
  if (format === undefined || format.type === "text" || format.type === "json_object") return;
  if (format.type !== "json_schema") throw invalid("text.format.type", "must be text, json_schema or json_object");
  if (typeof format.name !== "string" || format.name === "") throw required("text.format.name");
  if (!isRecord(format.schema)) throw required("text.format.schema");
  checkSchema(format.schema, "text.format.schema");
}

function checkMetadata(metadata: ResponsesBody["metadata"]): void {
  if (metadata === undefined || metadata === null) return;
  const entries = Object.entries(metadata);
  if (entries.length > METADATA_MAX) throw invalid("metadata", `must have at most ${METADATA_MAX} fields`);
  for (const [key, value] of entries) {
    if (key.length > METADATA_KEY_CHARS_MAX)
      throw invalid("metadata", `must have names of at most ${METADATA_KEY_CHARS_MAX} characters`);
    if (typeof value !== "string" || value.length > METADATA_VALUE_CHARS_MAX)
      throw invalid(`metadata.${key}`, `must be a string of at most ${METADATA_VALUE_CHARS_MAX} characters`);
  }
}

/** Checks the rules for items that their shapes cannot express. Throws invalid_request. */
export function checkInput(body: ResponsesBody): void {
  if (typeof body.input === "string") return;
  const calls = new Set<string>();
  for (const [i, item] of body.input.entries()) {
    const path = placeOf(body, i);
    if (isMessage(item)) {
      checkContent(item.content, `${path}.content`);
      continue;
    }
    // Only messages have a role, but it is read of any item.
    const { role }: Readonly<Record<string, unknown>> = item;
    if (role !== undefined && role !== null && typeof role !== "string")
      throw invalid(`${path}.role`, "must be a string");
    if (item.type === "function_call" || item.type === "custom_tool_call") {
      calls.add(ownCallId(item as { call_id: string }, path));
    } else if (item.type === "function_call_output" || item.type === "custom_tool_call_output") {
      const { call_id, output } = item as Static<typeof FunctionCallOutput>;
      if (!calls.has(ownCallId({ call_id }, path)))
        throw refusal(`${path}.call_id`, `No tool call before ${path} has the call_id of this output.`);
      checkContent(output, `${path}.output`);
    }
  }
}

function ownCallId({ call_id }: { call_id: string }, path: string): string {
  const { id } = readCallId(call_id);
  if (id.length <= CALL_ID_CHARS_MAX) return id;
  throw invalid(`${path}.call_id`, `must have at most ${CALL_ID_CHARS_MAX} characters`);
}

/** Whether an item is a message, whose type may be left out. */
export function isMessage(item: InputItem): item is Static<typeof Message> {
  return isMessageType(item.type);
}

/** The same by the type of any item: one without is a message. */
export function isMessageType(type: unknown): boolean {
  return type === undefined || type === "message";
}

/**
 * Whether an id is that of a reasoning item. A reference to one may be dropped, because the answer's text does not
 * depend on it.
 */
export function isReasoningId(id: string): boolean {
  return id.startsWith("rs_");
}

/** The member of a content part that has its content, by type. */
const PARTS: ReadonlyMap<string, string> = new Map([
  ["input_text", "text"],
  ["output_text", "text"],
  ["refusal", "refusal"],
  ["input_image", "image_url"],
  ["input_file", ""],
  ["input_audio", ""],
]);

function checkContent(content: Static<typeof Content>, path: string): void {
  if (typeof content === "string") return;
  for (const [j, part] of content.entries()) {
    const member = PARTS.get(part.type);
    if (member === undefined) throw invalid(`${path}.${j}.type`, `must be one of ${[...PARTS.keys()].join(", ")}`);
    const { file_id } = part;
    if (file_id !== undefined && file_id !== null)
      throw refusal(
        `${path}.${j}.file_id`,
        "Files are not stored here. Send the image or file itself, as a data: URL.",
      );
    if (member !== "" && typeof part[member] !== "string") throw required(`${path}.${j}.${member}`);
  }
}
