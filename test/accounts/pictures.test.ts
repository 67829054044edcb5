import { expect, test } from "bun:test";
import sharp from "sharp";
import { inTurn, toIcon } from "../../src/accounts/pictures.ts";
import { Refusal } from "../../src/errors.ts";

/** Whose pictures are converted when many arrive. Source: PAN-8, ADM-13. */

test("of one account two pictures are converted at once and eight wait; the others get 429, and another account is served", async () => {
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  const refused: unknown[] = [];
  const flood = Array.from({ length: 30 }, () =>
    inTurn(1, () => ended).catch((error: unknown) => {
      refused.push(error);
    }),
  );
  const picture = await sharp({ create: { width: 8, height: 8, channels: 4, background: "#0a7d5c" } })
    .png()
    .toBuffer();
  for (const other of [2, 3, 4])
    expect((await inTurn(other, (turn) => toIcon(turn, picture))).length).toBeGreaterThan(0);
  expect(refused.map((error) => error instanceof Refusal && error.code)).toEqual(Array(20).fill("too_many_requests"));
  end();
  await Promise.all(flood);
  expect(refused.length).toBe(20);
});

test("when four accounts have taken all places, another one waits for its turn", async () => {
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  const busy = [1, 2, 3, 4].flatMap((account) => [inTurn(account, () => ended), inTurn(account, () => ended)]);
  let isServed = false;
  const waits = inTurn(9, async () => {
    isServed = true;
  });
  await Promise.resolve();
  expect(isServed).toBe(false);
  end();
  await Promise.all([...busy, waits]);
  expect(isServed).toBe(true);
});
