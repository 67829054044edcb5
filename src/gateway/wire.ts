import { type SchemaOptions, type Static, type TSchema, Type } from "@sinclair/typebox";
import { TypeCompiler, ValueErrorType } from "@sinclair/typebox/compiler";
import { Refusal } from "../errors.ts";

/** The shapes of the contract, and how a body that breaks one is refused. Source: contract › Resources, rulings › Streams. */

/** SDKs send null for options that were not set. */
const Optional = <T extends TSchema>(schema: T, words: SchemaOptions = {}) =>
  Type.Optional(Type.Union([schema, Type.Null()], words));

/** Parts of one message's content. */
const CONTENT_PARTS_MAX = 1_000;
const ContentParts = Type.Array(Type.Object({}, { additionalProperties: true }), { maxItems: CONTENT_PARTS_MAX });

/** What only the published description says of a shape, and the check leaves to flow.ts: a message without content is an assistant's. */
const CONTENT_UNLESS_ASSISTANT = {
  if: { properties: { role: { const: "assistant" } } },
  else: { required: ["content"], properties: { content: { type: ["string", "array"] } } },
};

export const ChatMessage = Type.Object(
  {
    role: Type.Union(["system", "user", "assistant", "tool", "developer"].map((role) => Type.Literal(role))),
    content: Optional(Type.Union([Type.String(), ContentParts]), {
      description:
        "Text, or parts of text and images. Only an assistant's message may do without, as one of tool calls alone does.",
    }),
  },
  { title: "ChatMessage", additionalProperties: true, ...CONTENT_UNLESS_ASSISTANT },
);

export const ChatBody = Type.Object(
  {
    model: Type.String({ minLength: 1, maxLength: 200, description: "The id of a model, as GET /models lists it." }),
    messages: Type.Array(ChatMessage, { minItems: 1, maxItems: 10_000 }),
    stream: Optional(Type.Boolean(), { default: false, description: "Send the answer as server-sent events." }),
    stream_options: Optional(
      Type.Object(
        { include_usage: Optional(Type.Boolean(), { description: "Send the usage in a chunk before [DONE]." }) },
        { additionalProperties: true },
      ),
    ),
    temperature: Optional(Type.Number({ minimum: 0, maximum: 2 })),
    max_tokens: Optional(Type.Integer({ minimum: 1, maximum: 2_000_000_000 }), {
      description: "The most tokens to answer with.",
    }),
    max_completion_tokens: Optional(Type.Integer({ minimum: 1, maximum: 2_000_000_000 }), {
      description: "The newer name of max_tokens; it wins where both are sent.",
    }),
    n: Optional(Type.Integer({ minimum: 1, maximum: 128 }), { description: "How many choices to answer with." }),
  },
  {
    title: "ChatCompletionRequest",
    description: "Fields that are not named here go on to the model as they came.",
    additionalProperties: true,
  },
);
export type ChatBody = Static<typeof ChatBody>;
export type ChatMessage = Static<typeof ChatMessage>;

export const IMAGE_SIZES = ["512x512", "1024x1024", "1024x1536", "1536x1024"] as const;
export const IMAGE_SIZE_DEFAULT = "1024x1024";
/** In code points, which TypeBox does not count. */
export const PROMPT_CHARS = { min: 3, max: 4000 } as const;

export const ImageBody = Type.Object(
  {
    model: Type.String({ minLength: 1, maxLength: 200, description: "The id of a model that makes images." }),
    prompt: Type.String({ codePoints: PROMPT_CHARS }),
    size: Optional(Type.Union(IMAGE_SIZES.map((size) => Type.Literal(size))), { default: IMAGE_SIZE_DEFAULT }),
    n: Optional(Type.Literal(1), { default: 1 }),
    response_format: Optional(Type.Union([Type.Literal("url"), Type.Literal("b64_json")]), {
      default: "url",
      description: "Met whatever the model returns: a URL may be a data: URL.",
    }),
  },
  {
    title: "ImageGenerationRequest",
    description: "Fields that are not named here go on to the model as they came.",
    additionalProperties: true,
  },
);
export type ImageBody = Static<typeof ImageBody>;

export const USAGE_LIMIT_DEFAULT = 100;

export const UsageQuery = Type.Object({
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 1000, default: USAGE_LIMIT_DEFAULT, description: "Records a page." }),
  ),
  after: Type.Optional(
    Type.String({
      pattern: "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$",
      description: "The requestId that the page before ended with.",
    }),
  ),
  start: Type.Optional(
    Type.String({
      minLength: 10,
      maxLength: 35,
      description: "From then on: a date, or an ISO 8601 moment with its zone.",
    }),
  ),
  end: Type.Optional(
    Type.String({
      minLength: 10,
      maxLength: 35,
      description: "Before then: a date, or an ISO 8601 moment with its zone.",
    }),
  ),
  // A query can bring NUL, which Postgres takes in no text.
  model: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 200,
      pattern: "^[^\\u0000]*$",
      description: "Records of this model alone.",
    }),
  ),
});
export type UsageQuery = Static<typeof UsageQuery>;

/** A compiled check that returns the value with its type, or throws invalid_request naming the first bad field. */
export function checker<T extends TSchema>(schema: T): (value: unknown) => Static<T> {
  const compiled = TypeCompiler.Compile(schema);
  return (value) => {
    if (compiled.Check(value)) return value;
    const error = deepest(compiled.Errors(value).First());
    const param = error ? error.path.slice(1).replaceAll("/", ".").replaceAll("~1", "/").replaceAll("~0", "~") : "";
    throw new Refusal("invalid_request", { message: messageOf(error, param), param: param || null });
  };
}

type FieldError = {
  path: string;
  message: string;
  type: ValueErrorType;
  schema: TSchema;
  errors: Iterable<{ First(): FieldError | undefined }>;
};

/** A union fails as a whole; what is wrong inside the variant that was meant says more: the one that fails furthest in, or what may be null. */
function deepest(error: FieldError | undefined): FieldError | undefined {
  if (error?.type !== ValueErrorType.Union) return error;
  const inner = [...error.errors].map((variant) => deepest(variant.First())).filter((one) => one !== undefined);
  const further = inner.find((one) => one.path.length > error.path.length || one.type === ValueErrorType.ArrayMaxItems);
  return further ?? (error.schema.anyOf.length === 2 ? inner[0] : error);
}

function messageOf(error: FieldError | undefined, param: string): string {
  if (error === undefined) return "The request is invalid.";
  if (error.type === ValueErrorType.ObjectRequiredProperty) return `The field ${param} is required.`;
  if (error.type === ValueErrorType.StringPattern) return `The field ${param} is malformed.`;
  if (error.type === ValueErrorType.ArrayMaxItems)
    return `The field ${param} may have at most ${error.schema.maxItems} items.`;
  const literals = literalsOf(error.schema);
  if (literals.length > 0) return `The field ${param} must be one of ${literals.join(", ")}.`;
  const words = error.message
    .replace(/^Expected /, "")
    .replace("greater or equal to", "at least")
    .replace("less or equal to", "at most");
  return param === "" ? `The body must be a JSON ${words}.` : `The field ${param} must be ${words}.`;
}

function literalsOf(schema: TSchema): string[] {
  if ("const" in schema) return [String(schema.const)];
  const variants: TSchema[] = Array.isArray(schema.anyOf) ? schema.anyOf : [];
  return variants.every((variant) => "const" in variant || variant.type === "null")
    ? variants.filter((v) => "const" in v).map((v) => String(v.const))
    : [];
}
