/** The cosine similarity of two vectors; 0 if one of them has no direction. */
export function similarityOf(a: readonly number[], b: readonly number[]): number {
  const lengths = Math.hypot(...a) * Math.hypot(...b);
  return lengths === 0 ? 0 : a.reduce((sum, number, i) => sum + number * (b[i] ?? 0), 0) / lengths;
}
