import { expect, test } from "bun:test";
import { compatibilityPage, withoutWidths, writtenPage } from "../../scripts/compatibility_page.ts";

test("docs/compatibility.md is what the script draws from the dialects, the corpus and the clients", async () => {
  expect(withoutWidths(writtenPage())).toBe(withoutWidths(await compatibilityPage()));
});
