import { formatMoney } from "../format.ts";

/** Incoming money is green with a plus, outgoing money has a minus. */
export function Amount({ nanoUsd }: { nanoUsd: string }) {
  const isIn = BigInt(nanoUsd) > 0n;
  return <span className={isIn ? "font-medium text-ok" : undefined}>{formatMoney(nanoUsd, { sign: true })}</span>;
}
