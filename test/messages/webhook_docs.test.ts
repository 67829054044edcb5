import { expect, test } from "bun:test";
import { OWN_WEBHOOK_KINDS, SELLER_WEBHOOK_KINDS, WEBHOOK_KINDS } from "../../src/messages/kinds.ts";
import type { MessageKind } from "../../src/platform/outbox_store.ts";
import { EXAMPLES } from "./examples.ts";

/** docs/webhooks.md. Source: MSG-9. */

const guide = await Bun.file(`${import.meta.dir}/../../docs/webhooks.md`).text();
const rows = [...guide.matchAll(/^\| `(\w+)` +\| [^|]+\| ([^|]+?) +\| (.+?) +\|$/gm)].map(
  ([, kind = "", whose = "", fields = ""]) => ({
    kind,
    whose,
    fields,
  }),
);
const namesIn = (text: string) =>
  [...text.replaceAll(/\([^)]*\)/g, "").matchAll(/`(\w+)`/g)].map(([, name = ""]) => name);

/** The fields of a row; "as `kind` without `field`, and …" stands for those of another row. */
function fieldsOf(kind: string): string[] {
  const text = rows.find((row) => row.kind === kind)?.fields ?? "";
  const [, like, without, more = ""] = /^as `(\w+)`(?: without `(\w+)`)?(.*)$/.exec(text) ?? [];
  if (like === undefined) return namesIn(text);
  return [...fieldsOf(like).filter((name) => name !== without), ...namesIn(more)];
}

test("the guide lists every kind of event, with its recipients and all its fields", () => {
  expect(rows.map(({ kind }) => kind)).toEqual([...WEBHOOK_KINDS]);
  for (const { kind, whose } of rows) {
    const [own, seller] = [OWN_WEBHOOK_KINDS, SELLER_WEBHOOK_KINDS].map((list) => list.some((one) => one === kind));
    expect([kind, whose]).toEqual([kind, [own && "you", seller && "your customers"].filter(Boolean).join(", ")]);
    expect([kind, fieldsOf(kind).sort()]).toEqual([kind, Object.keys(EXAMPLES[kind as MessageKind]).sort()]);
  }
});

test("the guide's example equals a real call", () => {
  const [, json = ""] = /```json\n([^`]+)```/.exec(guide) ?? [];
  const { type, data } = JSON.parse(json);
  const { accountId, ...rest } = data;
  expect(accountId).toBeNumber();
  expect(rest).toEqual(EXAMPLES[type as MessageKind] as typeof rest);
});
