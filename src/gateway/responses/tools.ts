import { isRecord } from "../../platform/records.ts";
import { sha256Hex } from "../../platform/runtime.ts";
import { isHostedTool } from "./hosted.ts";
import { invalid, refusal, required } from "./refusals.ts";
import { placeOf, type ResponsesBody, TOOLS_MAX, type Tool } from "./request.ts";
import { checkSchema } from "./schema_check.ts";

/**
 * The tools of a request, as functions for chat completions, and the way back from a function's name to the client's tool.
 * A custom tool becomes a function with one string, `input`. The tools of a namespace become functions with flat names. Source: RSP-4.
 */

const NAME_CHARS_MAX = 128;
/** The length that providers allow for a function's name. */
const FLAT_NAME_CHARS_MAX = 64;
const HASH_CHARS = 8;
const CHOICES = ["auto", "none", "required"];
/** The one argument of a custom tool's function. */
const CUSTOM_INPUT = "input";

/** A tool as the client knows it. */
export type ToolName = { name: string; namespace: string | undefined; isCustom: boolean };

/** A tool for chat completions. */
type ChatFunction = { type: "function"; function: Record<string, unknown> & { name: string } };

export type Tools = {
  /** The tools that can be sent to every route, each with its path in the request. */
  functions: readonly { tool: ChatFunction; place: string }[];
  /** The client's tools, by the name that is sent to the provider. */
  names: ToolNames;
  /** The paths of hosted tools, by their type. */
  hosted: ReadonlyMap<string, string>;
};

/** The names of functions, in both directions. Kept as long as the stream is open, without the tools' schemas. */
export class ToolNames {
  readonly #tools = new Map<string, ToolName>();
  readonly #flat = new Map<string, string>();

  /** The client's tool for a function that the model called. An unknown name is taken as a function's. */
  toolOf(name: string): ToolName {
    return this.#tools.get(name) ?? { name, namespace: undefined, isCustom: false };
  }

  /** The name that is sent to the provider for a tool, also for one that occurs only in past calls. */
  flatOf(name: string, namespace: string | null | undefined): string {
    return this.#flat.get(keyOf(name, namespace)) ?? flatten(name, namespace ?? undefined);
  }

  has(name: string, namespace: string | undefined): boolean {
    return this.#flat.has(keyOf(name, namespace));
  }

  /** Adds a tool and returns the name for the provider. */
  add(tool: ToolName): string {
    const plain = flatten(tool.name, tool.namespace);
    const flat = this.#tools.has(plain) ? withHash(plain, keyOf(tool.name, tool.namespace)) : plain;
    this.#tools.set(flat, tool);
    this.#flat.set(keyOf(tool.name, tool.namespace), flat);
    return flat;
  }
}

function keyOf(name: string, namespace: string | null | undefined): string {
  return `${namespace ?? ""}\0${name}`;
}

/** `namespace__name`, within what providers allow. A function without a namespace keeps its name. */
function flatten(name: string, namespace: string | undefined): string {
  if (namespace === undefined) return name;
  const flat = `${namespace}${namespace.endsWith("__") ? "" : "__"}${name}`.replace(/[^\w-]/g, "_");
  return flat.length <= FLAT_NAME_CHARS_MAX ? flat : withHash(flat, keyOf(name, namespace));
}

function withHash(flat: string, key: string): string {
  return `${flat.slice(0, FLAT_NAME_CHARS_MAX - HASH_CHARS - 1)}_${sha256Hex(key).slice(0, HASH_CHARS)}`;
}

/** Checks and translates the tools of a request, those in `additional_tools` items included. Throws invalid_request. */
export function readTools(body: ResponsesBody): Tools {
  const { tools, input } = body;
  const functions: { tool: ChatFunction; place: string }[] = [];
  const names = new ToolNames();
  const hosted = new Map<string, string>();
  const read = (list: readonly Tool[], path: string, namespace?: string): void => {
    for (const [i, tool] of list.entries()) {
      const place = `${path}.${i}`;
      if (tool.type === "function" || tool.type === "custom") {
        if (functions.length >= TOOLS_MAX) throw refusal(place, `A request has at most ${TOOLS_MAX} tools.`);
        functions.push({ tool: readTool(tool, place, { names, namespace }), place });
      } else if (tool.type === "namespace" && namespace === undefined) {
        const { name, tools: inner } = tool as Record<string, unknown>;
        if (!isName(name)) throw invalid(`${place}.name`, `must be a string of 1 to ${NAME_CHARS_MAX} characters`);
        if (!Array.isArray(inner) || !inner.every(isTool)) throw invalid(`${place}.tools`, "must be an array of tools");
        read(inner, `${place}.tools`, name);
      } else if (namespace === undefined && isHostedTool(tool.type)) {
        hosted.set(place, tool.type);
      } else {
        const known = namespace === undefined ? "function, custom, namespace or a hosted tool" : "function or custom";
        throw invalid(`${place}.type`, `must be ${known}`);
      }
    }
  };
  read(tools ?? [], "tools");
  if (typeof input !== "string")
    for (const [i, item] of input.entries())
      if (item.type === "additional_tools") read((item as { tools: Tool[] }).tools, `${placeOf(body, i)}.tools`);
  return { functions, names, hosted };
}

/** Checks the tool choice, except for hosted tools. Throws invalid_request for a tool that does not exist. */
export function checkChoice({ tool_choice: choice }: ResponsesBody, { names }: Tools): void {
  if (choice === undefined || choice === null) return;
  if (!isRecord(choice)) {
    if (!CHOICES.includes(choice)) throw invalid("tool_choice", `must be ${CHOICES.join(", ")} or an object`);
    return;
  }
  const check = (tool: unknown, path: string) => {
    if (!isRecord(tool) || (tool.type !== "function" && tool.type !== "custom")) return;
    const { name, namespace } = tool;
    if (typeof name !== "string" || !names.has(name, typeof namespace === "string" ? namespace : undefined))
      throw invalid(`${path}.name`, "must be the name of one of tools");
  };
  check(choice, "tool_choice");
  if (choice.type === "allowed_tools" && Array.isArray(choice.tools))
    for (const [i, tool] of choice.tools.entries()) check(tool, `tool_choice.tools.${i}`);
}

function readTool(
  tool: Readonly<Record<string, unknown>>,
  path: string,
  { names, namespace }: { names: ToolNames; namespace: string | undefined },
): ChatFunction {
  const { type, name, description, parameters, strict } = tool;
  if (name === undefined) throw required(`${path}.name`);
  if (!isName(name)) throw invalid(`${path}.name`, `must be a string of 1 to ${NAME_CHARS_MAX} characters`);
  if (names.has(name, namespace)) throw refusal(`${path}.name`, `Two tools have the name ${name}.`);
  if (parameters !== undefined && parameters !== null) {
    if (!isRecord(parameters)) throw invalid(`${path}.parameters`, "must be a JSON schema");
    checkSchema(parameters, `${path}.parameters`);
  }
  const isCustom = type === "custom";
  const flat = names.add({ name, namespace, isCustom });
  const about = typeof description === "string" ? description : undefined;
  if (isCustom) return customFunction(flat, about, tool.format);
  const more = { ...(about && { description: about }), ...(isRecord(parameters) && { parameters }) };
  return { type: "function", function: { name: flat, ...more, ...(typeof strict === "boolean" && { strict }) } };
}

/** A function that takes the one text of a custom tool. */
function customFunction(name: string, description: string | undefined, format: unknown): ChatFunction {
  const grammar =
    isRecord(format) && format.type === "grammar" && typeof format.definition === "string"
      ? `The ${CUSTOM_INPUT} must follow this ${typeof format.syntax === "string" ? format.syntax : ""} grammar:\n${format.definition}`
      : undefined;
  const about = [description, grammar].filter((text) => text !== undefined).join("\n\n");
  const parameters = {
    type: "object",
    properties: { [CUSTOM_INPUT]: { type: "string" } },
    required: [CUSTOM_INPUT],
    additionalProperties: false,
  };
  return { type: "function", function: { name, ...(about !== "" && { description: about }), parameters } };
}

/** The arguments of the function that stands for a custom tool. */
export function customArguments(input: string): string {
  return JSON.stringify({ [CUSTOM_INPUT]: input });
}

/**
 * The input of a custom tool's call. If a model does not follow the function's schema, it is everything that the model
 * wrote.
 */
export function customInput(args: string): string {
  try {
    const parsed: unknown = JSON.parse(args);
    if (isRecord(parsed) && typeof parsed[CUSTOM_INPUT] === "string") return parsed[CUSTOM_INPUT];
  } catch {
    // Not JSON: the text itself.
  }
  return args;
}

function isName(value: unknown): value is string {
  return typeof value === "string" && value !== "" && value.length <= NAME_CHARS_MAX;
}

function isTool(value: unknown): value is Tool {
  return isRecord(value) && typeof value.type === "string";
}
