import { expect, test } from "bun:test";
import { makerWords } from "../../src/panel/web/pages/members/maker_words.ts";

/** What the panel says of the members of an account. Source: MEM-7. */

test("who made a key is said where several people work: their name, and whether they were removed", () => {
  const nina = { personId: 1, name: "Nina New", isMember: true };
  expect(makerWords(nina, 2)).toBe("Nina New");
  expect(makerWords({ ...nina, isMember: false }, 2)).toBe("Nina New (removed member)");
  expect(makerWords(null, 2)).toBeNull();
  expect(makerWords(nina, 1)).toBeNull();
});
