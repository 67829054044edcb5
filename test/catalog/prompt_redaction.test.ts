import { expect, test } from "bun:test";
import { redactPrompt } from "../../src/catalog/prompt_redaction.ts";

const PROMPT = "My mother's maiden name is Featherstonehaugh, and my PIN is 4711. Is that safe?";
const sent = JSON.stringify({ model: "up-1", messages: [{ role: "user", content: PROMPT }] });

test("quotes of the request, whole or in part, are removed from a provider's message", () => {
  expect(redactPrompt(`Your text "${PROMPT}" breaks our rules.`, sent)).toBe('Your text "[quoted]" breaks our rules.');
  expect(redactPrompt(`${PROMPT} ${PROMPT}`, sent)).toBe("[quoted] [quoted]");
  for (let from = 0; from + 31 <= PROMPT.length; from++) {
    const part = PROMPT.slice(from, from + 31);
    expect(redactPrompt(`Bad: <${part}>`, sent)).toBe("Bad: <[quoted]>");
  }
});

test("the JSON around a quote stays valid, even if the whole request is quoted", () => {
  const text = JSON.stringify({
    error: { message: `Cannot read: ${PROMPT}`, param: "messages" },
    input: JSON.parse(sent),
  });
  const words = JSON.parse(redactPrompt(text, sent));
  expect(words.error).toEqual({ message: "Cannot read: [quoted]", param: "messages" });
  expect(JSON.stringify(words)).not.toContain("Featherstonehaugh");
  expect(redactPrompt(`Cannot parse ${JSON.stringify(sent)}`, sent)).not.toContain("Featherstonehaugh");
});

test("ordinary words and short quotes are kept", () => {
  for (const words of [
    "The model up-1 does not exist.",
    "This model's maximum context length is 8192 tokens.",
    "My mother's",
    "",
    PROMPT.toUpperCase(),
  ]) {
    expect(redactPrompt(words, sent)).toBe(words);
  }
  expect(redactPrompt(PROMPT, "")).toBe(PROMPT);
});

test("names of fields are kept, wherever they stand in the request; the same words in a prompt are removed", () => {
  const said = 'Unsupported parameter: "max_completion_tokens" (max_completion_tokens).';
  for (let shift = 0; shift < 32; shift++) {
    const body = { model: "m".repeat(shift), max_completion_tokens: 5, parallel_tool_calls: true };
    expect(redactPrompt(said, JSON.stringify(body))).toBe(said);
  }
  const asked = JSON.stringify({ content: "Is patient_name_Featherstonehaugh_4711 a max_completion_tokens?" });
  expect(redactPrompt("patient_name_Featherstonehaugh_4711", asked)).toBe("[quoted]");
  const nested = JSON.stringify({ arguments: JSON.stringify({ Featherstonehaugh_of_the_manor_house: 1 }) });
  expect(redactPrompt("Featherstonehaugh_of_the_manor_house", nested)).toBe("[quoted]");
});

// Comparing each of these in quadratic time would take hours: the runner ends such a test.
test("hostile texts are compared in linear time; only both ends of a long request are compared", () => {
  redactPrompt("a".repeat(65_536), "a".repeat(20_000_000));
  redactPrompt("ab".repeat(32_768), "ba".repeat(10_000_000));
  redactPrompt('"'.repeat(65_536), '"'.repeat(20_000_000));
  const noise = Array.from({ length: 100_000 }, (_, i) => `word${i} `).join("");
  for (const long of [PROMPT + noise, noise + PROMPT])
    expect(redactPrompt(`So: ${PROMPT}`, long)).toMatch(/^So: ?\[quoted\]$/);
});
