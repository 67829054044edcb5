import { describe, expect, test } from "bun:test";
import { Prompt } from "../../src/gateway/prompt.ts";
import { randomOf } from "../random.ts";

/** What is kept of a prompt while its stream is open: a small sample, enough to count it. */

const promptOf = (...texts: string[]) => new Prompt(texts, { overheadTokens: 9, imageTokens: 70, fileTokens: 5 });
const KEPT_BYTES_MAX = 40 * 1024;

describe("the sample of a prompt", () => {
  test("is the whole prompt if the prompt is small", () => {
    for (const texts of [[], [""], ["hello"], ["x".repeat(2_000), "世".repeat(6_000)]]) {
      const prompt = promptOf(...texts);
      expect(prompt.sample()).toEqual({
        text: texts.join("\n"),
        textBytes: prompt.textBytes,
        ids: 0,
        textTokens: prompt.textTokens,
        overheadTokens: 9,
        imageTokens: 70,
        fileTokens: 5,
      });
    }
  });

  test("is small for a large prompt of any content, and has the length of the whole prompt", () => {
    for (const texts of [
      ["x".repeat(20_000_000)],
      ["世界".repeat(1_000_000)],
      Array.from({ length: 100_000 }, () => "🚦é"),
      ["", "a".repeat(8_192), ""],
    ]) {
      const prompt = promptOf(...texts);
      for (const random of [() => 0, Math.random, () => 0.999_999]) {
        const { text, textBytes } = prompt.sample(random);
        expect(textBytes).toBe(prompt.textBytes);
        expect(Buffer.byteLength(text)).toBeLessThan(KEPT_BYTES_MAX);
        expect(text.length).toBeGreaterThan(7_000);
      }
    }
  });

  test("stands in for the text of a prompt that nothing could hold: a query of 4 MB with each of 1,000 documents", () => {
    const query = "Which gate? ".repeat(350_000);
    const prompt = promptOf(...Array.from({ length: 1_000 }, (_, n) => [query, `gate ${n}`]).flat());
    expect(prompt.textBytes).toBeGreaterThan(4_000_000_000);
    expect(prompt.text.length).toBeGreaterThan(30_000);
    expect(prompt.text.length).toBeLessThan(KEPT_BYTES_MAX);
  });

  test("is taken at random places: nobody knows which parts of a prompt are counted", () => {
    const prompt = promptOf(Array.from({ length: 20_000 }, (_, i) => String(i)).join(" "));
    const places = [() => 0, () => 0.5, () => 0.999_999].map((random) => prompt.sample(random).text.slice(0, 20));
    expect(new Set(places).size).toBe(3);
    const samples = Array.from({ length: 10 }, () => prompt.sample().text);
    expect(new Set(samples).size).toBe(10);
  });

  test("takes from each text in proportion to its length", () => {
    const prompt = promptOf("a".repeat(300_000), "b".repeat(100_000));
    let [a, b] = [0, 0];
    const random = randomOf(1);
    for (let i = 0; i < 500; i++) {
      const { text } = prompt.sample(random.next);
      a += text.split("a").length - 1;
      b += text.split("b").length - 1;
    }
    expect(a / b).toBeGreaterThan(2.8);
    expect(a / b).toBeLessThan(3.2);
  });
});
