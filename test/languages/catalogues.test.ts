// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the samples are source text.
import { expect, test } from "bun:test";
import { catalogues, compiledTexts, faultOf, faultsOf, idOf } from "../../scripts/catalogues.ts";
import { collectTexts } from "../../scripts/languages.ts";
import { uncollectedIn, uncollectedTexts } from "../../scripts/uncollected_texts.ts";

/** Every text of the panel is collected, and each language has a right translation of it. Source: LNG-1, LNG-6. */

test("no text of the panel is left out of the macros", async () => {
  expect(await uncollectedTexts()).toEqual([]);
});

test("the finder of such texts finds them in JSX, attributes and strings, and not in macros, class names and comparisons", async () => {
  const find = async (source: string) => (await uncollectedIn("a.tsx", source)).map(({ text }) => text);
  expect(await find("const a = <p title='Save it'>Hello you</p>;")).toEqual(["Save it", "Hello you"]);
  expect(await find("const a = `Hello ${name}, you`;")).toEqual(["Hello"]);
  expect(
    await find("const a = <Trans>Hello <b>you</b></Trans>, b = t`Save it`, c = plural(n, { other: '# keys of it' });"),
  ).toEqual([]);
  expect(
    await find("const a = <p className='flex gap-2' />; if (key === 'Some key') throw new Error('It failed here');"),
  ).toEqual([]);
  expect(await find("const a = /* not a text */ 'Content-Type is';")).toEqual([]);
});

test("the catalogues have the texts of the sources, no more and no fewer", async () => {
  expect((await collectTexts({ write: false })).stale).toEqual([]);
});

test("every text has a right translation in every language", async () => {
  const read = await catalogues();
  expect(read).toHaveLength(8);
  for (const catalogue of read) {
    expect(faultsOf(catalogue)).toEqual([]);
    const ids = new Set([...catalogue.texts].map(([id, text]) => idOf(id, text)));
    expect(new Set(Object.keys(compiledTexts(catalogue)))).toEqual(ids);
  }
});

test("a translation must have the English text's placeholders, tags and choices", () => {
  const english = "<0>{name}</0> has {count, plural, one {# key} other {# keys}}";
  const right = "<0>{name}</0> hat {count, plural, one {# Schlüssel} other {# Schlüssel}}";
  expect(faultOf("de", english, right)).toBeNull();
  expect(faultOf("de", english, "")).toBe("no translation");
  expect(faultOf("de", english, right.replace("{name}", "{nam}"))).toBe("{nam} is not in the English text");
  expect(faultOf("de", english, right.replace("{name}", "Anna"))).toBe("{name} is missing");
  expect(faultOf("de", english, right.replace("</0>", ""))).toBe("</0> is missing");
  expect(faultOf("de", english, right.replace("<0>", "<1>"))).toBe("<1> is not in the English text");
  expect(faultOf("de", english, right.replace("hat {count", "hat {count"))).toBeNull();
  expect(faultOf("de", english, right.replace("}}", "}"))).toStartWith("it does not parse");
  const choice = "{kind, select, key {The key} other {It}}";
  expect(faultOf("de", choice, "{kind, select, token {Das Token} other {Es}}")).toBe(
    "kind = token is not in the English text",
  );
});

test("a plural must have each form of its language, and no other", () => {
  const english = "{count, plural, one {# key} other {# keys}}";
  expect(faultOf("ar", english, "{count, plural, one {# مفتاح} other {# مفاتيح}}")).toBe(
    "the plural of {count} lacks zero, two, few, many",
  );
  expect(faultOf("zh", english, "{count, plural, other {# 个密钥}}")).toBeNull();
  expect(faultOf("zh", english, "{count, plural, one {# 个密钥} other {# 个密钥}}")).toBe(
    "the plural of {count} has one, which zh does not use",
  );
  expect(
    faultOf("de", english, "{count, plural, =0 {kein Schlüssel} one {# Schlüssel} other {# Schlüssel}}"),
  ).toBeNull();
});

test("a translation has no markup and no signs that turn text around", () => {
  expect(faultOf("de", "Save", "<b>Sichern</b>")).toBe("it has markup");
  expect(faultOf("de", "Save", "Sichern &nbsp;")).toBe("it has markup");
  expect(faultOf("de", "Save", "<script>alert(1)</script>")).toBe("it has markup");
  expect(faultOf("ar", "Save", "\u202eحفظ")).toBe("it has control characters");
  expect(faultOf("de", "at least < 5", "mindestens < 5")).toBeNull();
});
