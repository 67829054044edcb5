/** Slices of one run; what is left waits for the next. */
const SLICES_MAX = 20;

/** Deletes in slices, each a transaction of its own, until one is not full. `slice` returns how many rows it deleted; returns their sum. */
export async function inSlices(rowsMax: number, slice: () => Promise<number>): Promise<number> {
  let sum = 0;
  for (let i = 0; i < SLICES_MAX; i++) {
    const deleted = await slice();
    sum += deleted;
    if (deleted < rowsMax) break;
  }
  return sum;
}
