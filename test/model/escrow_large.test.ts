import { expect, setDefaultTimeout, test } from "bun:test";
import { startChecks } from "./checker.ts";
import { LARGE_SIZES } from "./sizes.ts";

/** Larger sizes of the escrow protocol; see escrow_model.test.ts. */

setDefaultTimeout(7 * 60_000);

const verdictOf = startChecks(LARGE_SIZES);

for (const size of LARGE_SIZES) {
  test(`the escrow protocol holds: ${size.name}`, async () => {
    const { errors, failed } = await verdictOf(size);
    expect({ errors, failed }).toEqual({ errors: 0, failed: null });
  });
}
