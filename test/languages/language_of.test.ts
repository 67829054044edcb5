import { describe, expect, test } from "bun:test";
import { languageOf, languageTag } from "../../src/languages/languages.ts";

/** Source: LNG-2. */

const none = { cookie: null, brand: null, accepts: null };

describe("the language of a page", () => {
  test("the cookie goes before the brand, the brand before the browser, and English is last", () => {
    const all = { cookie: "a=b; panel_language=ar; c=d", brand: "es", accepts: "de,en;q=0.5" };
    expect(languageOf(all)).toBe("ar");
    expect(languageOf({ ...all, cookie: null })).toBe("es");
    expect(languageOf({ ...all, cookie: null, brand: null })).toBe("de");
    expect(languageOf(none)).toBe("en");
  });

  test("a cookie with an unknown language, or with something else, is as none", () => {
    for (const value of ["fr", "de-AT", "<script>", "de%0d%0a", "", "toString", "DE"])
      expect(languageOf({ ...none, cookie: `panel_language=${value}`, brand: "es" })).toBe("es");
    expect(languageOf({ ...none, cookie: "x_panel_language=de", brand: "es" })).toBe("es");
  });

  test("of the browser's languages the one with the highest quality that there is", () => {
    const accepts = (header: string) => languageOf({ ...none, accepts: header });
    expect(accepts("de-AT,de;q=0.9,en;q=0.5")).toBe("de");
    expect(accepts("fr-FR, zh-Hant-TW;q=0.4, es ; q=0.7")).toBe("es");
    expect(accepts("en;q=0.1, ar;q=0.2")).toBe("ar");
    expect(accepts("de;q=0, *;q=0.5")).toBe("en");
    expect(accepts("de;q=2, es;q=x")).toBe("de");
    expect(accepts(`${"fr,".repeat(500)}de`)).toBe("en");
    expect(accepts(";;;,,,=")).toBe("en");
  });

  test("only names of languages are tags", () => {
    for (const text of ["__proto__", "constructor", "", "de ", null, undefined])
      expect(languageTag(text)).toBeUndefined();
  });
});
