import { expect, test } from "bun:test";
import { ArrivedItems } from "../../src/gateway/responses/arrived_items.ts";

/** The output of a provider's own response that has arrived when the stream breaks off. Source: RSP-9, RSP-10. */

const event = (type: string, index: number, fields: Record<string, unknown>) => ({
  type: `response.${type}`,
  output_index: index,
  ...fields,
});

function arrived(...events: ReturnType<typeof event>[]): unknown[] {
  const items = new ArrivedItems();
  for (const one of events) items.take(one, JSON.stringify(one).length);
  return items.json().map((item) => JSON.parse(item));
}

test("finished items are complete; others (reasoning, message, calls) are incomplete, with the text that arrived", () => {
  const done = { id: "fc_1", type: "function_call", status: "completed", call_id: "c1", name: "a", arguments: "{}" };
  const message = { id: "msg_1", type: "message", role: "assistant", status: "in_progress", content: [] };
  const text = { type: "output_text", text: "", annotations: [] };
  const at = (part: number) => ({ content_index: part });
  expect(
    arrived(
      event("output_item.added", 0, { item: { id: "rs_1", type: "reasoning", summary: [] } }),
      event("reasoning_summary_part.added", 0, { summary_index: 0, part: { type: "summary_text", text: "" } }),
      event("reasoning_summary_text.delta", 0, { summary_index: 0, delta: "Hm" }),
      event("reasoning_summary_text.delta", 0, { summary_index: 0, delta: "." }),
      event("output_item.added", 1, { item: { ...done, arguments: "", status: "in_progress" } }),
      event("function_call_arguments.delta", 1, { delta: "{" }),
      event("output_item.done", 1, { item: done }),
      event("output_item.added", 2, { item: message }),
      event("content_part.added", 2, { ...at(0), part: text }),
      event("output_text.delta", 2, { ...at(0), delta: "One" }),
      event("content_part.added", 2, { ...at(1), part: { type: "refusal", refusal: "" } }),
      event("refusal.delta", 2, { ...at(1), delta: "No" }),
      event("output_item.added", 3, { item: { id: "ctc_1", type: "custom_tool_call", name: "b", input: "" } }),
      event("custom_tool_call_input.delta", 3, { delta: "x" }),
      event("unheard_of.delta", 3, { delta: "y" }),
    ),
  ).toEqual([
    { id: "rs_1", type: "reasoning", summary: [{ type: "summary_text", text: "Hm." }], status: "incomplete" },
    done,
    {
      ...message,
      status: "incomplete",
      content: [
        { ...text, text: "One" },
        { type: "refusal", refusal: "No" },
      ],
    },
    { id: "ctc_1", type: "custom_tool_call", name: "b", input: "x", status: "incomplete" },
  ]);
});

test("events that have no index, or no part or item before them, are ignored", () => {
  expect(
    arrived(
      event("output_text.delta", 0, { content_index: 0, delta: "One" }),
      event("output_item.added", 1, { item: "none" }),
      event("output_item.added", 2, { item: { id: "msg_1", type: "message" } }),
      event("output_text.delta", 2, { content_index: 0, delta: "One" }),
      { type: "response.output_item.done", output_index: "0" } as never,
    ),
  ).toEqual([{ id: "msg_1", type: "message", status: "incomplete" }]);
});

test("nothing is kept beyond 4 Mi characters, rather than a part", () => {
  const item = { id: "ctc_1", type: "custom_tool_call", input: "" };
  const delta = event("custom_tool_call_input.delta", 0, { delta: "x".repeat(1024 * 1024) });
  const begun = [event("output_item.added", 0, { item }), delta, delta, delta];
  expect(arrived(...begun)).toEqual([{ ...item, input: "x".repeat(3 * 1024 * 1024), status: "incomplete" }]);
  expect(arrived(...begun, delta)).toEqual([]);
  expect(arrived(...begun, delta, event("output_item.added", 1, { item }))).toEqual([]);
});
