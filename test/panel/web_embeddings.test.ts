import { expect, test } from "bun:test";
import { similarityOf } from "../../src/panel/web/pages/playground/similarity.ts";

/** The playground's embeddings. Source: EMB-1. */

test("the similarity of two embeddings is the cosine of their angle, whatever their lengths; it is 0 for a zero vector", () => {
  expect(similarityOf([1, 2, 2], [2, 4, 4])).toBeCloseTo(1, 12);
  expect(similarityOf([1, 0], [0, 5])).toBe(0);
  expect(similarityOf([1, 1], [-3, -3])).toBeCloseTo(-1, 12);
  expect(similarityOf([3, 4], [4, 3])).toBeCloseTo(24 / 25, 12);
  expect(similarityOf([0, 0], [1, 1])).toBe(0);
});
