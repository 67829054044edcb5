import { expect, setDefaultTimeout, test } from "bun:test";
import { startChecks } from "./checker.ts";
import { FAULTS, SIZES } from "./sizes.ts";

/** Small sizes of the escrow protocol, in every order of events, and the same with faults put in. */

/** The last test waits for all checks: they run in turns. */
setDefaultTimeout(5 * 60_000);

const verdictOf = startChecks([...SIZES, ...FAULTS]);

for (const size of SIZES) {
  test(`the escrow protocol holds: ${size.name}`, async () => {
    const { errors, failed } = await verdictOf(size);
    expect({ errors, failed }).toEqual({ errors: 0, failed: null });
  });
}

for (const fault of FAULTS) {
  test(`the model finds the fault: ${fault.name}`, async () => {
    const { errors, failed } = await verdictOf(fault);
    expect({ errors, failed }).toEqual({ errors: 1, failed: expect.any(String) });
  });
}
