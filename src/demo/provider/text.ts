/** A JSON object whose values were not checked yet. */
export type JsonRecord = Readonly<Record<string, unknown>>;

const EXCERPT_CODE_POINTS_MAX = 80;
const SCHEMA_DEPTH_MAX = 8;
const ARRAY_ITEMS_MAX = 16;

const WHEN = [
  "At dawn",
  "Before the rain",
  "In the third winter",
  "On market day",
  "After the bells",
  "Late that night",
  "By the old bridge",
  "One quiet morning",
];
const WHO = [
  "the keeper",
  "a young surveyor",
  "the ferryman",
  "her sister Zoë",
  "the clockmaker",
  "a tired courier",
  "the baker of Łódź",
  "an old cartographer",
];
const DID = [
  "counted the lanterns",
  "crossed the river",
  "opened the gate",
  "wrote down every name",
  "followed the lights",
  "mended the great wheel",
  "read the letter twice",
  "sold the last café table",
];
const THEN = [
  "and said nothing",
  "while the town slept 🌙",
  "as if it were easy",
  "for a single coin",
  "with steady hands",
  "and the road grew shorter",
  "– no more and no less –",
  "until the water stilled",
];

/** Story sentences, split into tokens once, so that an answer only selects from them. */
const SENTENCES: readonly (readonly string[])[] = Array.from({ length: 256 }, (_, i) => {
  const pick = (words: readonly string[], shift: number) => words[(i >> shift) % words.length];
  return tokensOf(` ${pick(WHEN, 0)} ${pick(WHO, 3)} ${pick(DID, 5)}, ${pick(THEN, 1)}.`);
});

/** Splits text into this provider's "tokens": a word of at most 12 characters with the space before it. Joined, they give the text. */
export function tokensOf(text: string): string[] {
  return text.match(/\s*\S{1,12}|\s+/gu) ?? [];
}

/** A story of exactly `count` tokens that begins by quoting the prompt. The same prompt and seed give the same story. */
export function storyTokens(prompt: string, seed: number, count: number): string[] {
  const excerpt = [
    ...prompt
      .slice(0, 4 * EXCERPT_CODE_POINTS_MAX)
      .replace(/\s+/gu, " ")
      .trim(),
  ]
    .slice(0, EXCERPT_CODE_POINTS_MAX)
    .join("");
  const end = /[.!?…]$/.test(excerpt) ? "" : ".";
  const tokens = tokensOf(`You asked: “${excerpt}”${end} Here is a story.`);
  // The choices of one request have consecutive seeds and must tell different stories.
  for (let state = Math.imul(seed, 0x9e3779b1); tokens.length < count; ) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    tokens.push(...(SENTENCES[state >>> 24] ?? []));
  }
  tokens.length = count;
  const last = tokens.at(-1);
  if (last !== undefined) tokens[count - 1] = last.replace(/[,.]?$/u, ".");
  return tokens;
}

/** The seed of a prompt: FNV-1a, 32 bits. */
export function seedOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}

/** Guesses what a prompt is about: its last capitalised word after the first word, otherwise its longest word. */
export function subjectOf(prompt: string): string {
  const words = prompt.slice(0, 2_000).match(/[\p{L}\p{N}]+/gu) ?? [];
  const named = words.slice(1).filter((word) => /^\p{Lu}\p{L}/u.test(word));
  return named.at(-1) ?? words.reduce((longest, word) => (word.length > longest.length ? word : longest), "example");
}

/**
 * A value that matches a JSON schema, with every property set: the arguments of a tool call, or a structured answer.
 * Supports type, enum, const, default, allOf, anyOf, oneOf, ranges, lengths, common formats and local $ref, but not `pattern`.
 */
export function sampleOf(schema: unknown, subject: string, root: unknown = schema, depth = 0): unknown {
  if (!isRecord(schema) || depth > SCHEMA_DEPTH_MAX) return {};
  const inner = (part: unknown) => sampleOf(part, subject, root, depth + 1);
  if ("const" in schema) return schema.const;
  if (Array.isArray(schema.enum)) return schema.enum[0];
  if ("default" in schema) return schema.default;
  if (typeof schema.$ref === "string") return inner(resolveRef(root, schema.$ref));
  if (Array.isArray(schema.allOf)) return inner(Object.assign({}, schema, { allOf: undefined }, ...schema.allOf));
  const options = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(options)) return inner(options[0]);

  const type = Array.isArray(schema.type) ? schema.type[0] : (schema.type ?? (schema.properties ? "object" : "string"));
  switch (type) {
    case "object":
      return sampleObject(schema, inner, depth);
    case "array": {
      const length = Math.min(
        Math.max(numberOr(schema.minItems, 1), Math.min(1, numberOr(schema.maxItems, 1))),
        ARRAY_ITEMS_MAX,
      );
      return Array.from({ length }, () => inner(schema.items ?? { type: "string" }));
    }
    case "integer":
    case "number":
      return sampleNumber(schema, type === "integer" ? 1 : 0);
    case "boolean":
      return true;
    case "null":
      return null;
    default:
      return sampleString(schema, subject);
  }
}

function sampleObject(schema: JsonRecord, inner: (part: unknown) => unknown, depth: number): JsonRecord {
  const properties = isRecord(schema.properties) ? schema.properties : {};
  const required: readonly unknown[] = Array.isArray(schema.required) ? schema.required : [];
  // Optional properties end at depth 2, because a recursive schema would never end.
  const names = Object.keys(properties).filter((name) => depth < 2 || required.includes(name));
  return Object.fromEntries(names.map((name) => [name, inner(properties[name])]));
}

function sampleNumber(schema: JsonRecord, smallestStep: number): number {
  const step = numberOr(schema.multipleOf, smallestStep);
  const above = numberOr(schema.exclusiveMinimum, Number.NEGATIVE_INFINITY);
  const lowest = Math.max(numberOr(schema.minimum, Number.NEGATIVE_INFINITY), above);
  const highest = Math.min(
    numberOr(schema.maximum, Number.POSITIVE_INFINITY),
    numberOr(schema.exclusiveMaximum, Number.POSITIVE_INFINITY),
  );
  if (lowest < 1 && highest > 1 && (step === 0 || Number.isInteger(1 / step))) return 1;
  if (step === 0)
    return Number.isFinite(lowest)
      ? Number.isFinite(highest)
        ? (lowest + highest) / 2
        : lowest + 1
      : Number.isFinite(highest)
        ? highest - 1
        : 1;
  if (!Number.isFinite(lowest)) {
    const top = Math.floor(Math.min(highest, step) / step) * step;
    return top === schema.exclusiveMaximum ? top - step : top;
  }
  const first = Math.ceil(lowest / step) * step;
  return first === above ? first + step : first;
}

function sampleString(schema: JsonRecord, subject: string): string {
  const formats: Record<string, string> = {
    "date-time": "2030-01-31T12:00:00Z",
    date: "2030-01-31",
    time: "12:00:00Z",
    email: "someone@example.com",
    uri: "https://example.com/",
    uuid: "00000000-0000-4000-8000-000000000000",
    ipv4: "192.0.2.1",
  };
  const text = formats[String(schema.format)] ?? subject;
  return text.padEnd(numberOr(schema.minLength, 0), ".").slice(0, numberOr(schema.maxLength, 4_096));
}

function resolveRef(root: unknown, ref: string): unknown {
  if (!ref.startsWith("#")) return {};
  const steps = ref.slice(1).split("/").filter(Boolean);
  return steps.reduce<unknown>(
    (at, step) => (isRecord(at) ? at[decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~")] : undefined),
    root,
  );
}

export function isRecord(value: unknown): value is JsonRecord {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function numberOr(value: unknown, otherwise: number): number {
  return typeof value === "number" && Number.isFinite(value) ? value : otherwise;
}
