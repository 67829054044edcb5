import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useEffect, useState } from "react";
import { formatCount, parseUsd } from "../format.ts";
import { Problem } from "../ui/states.tsx";
import { focusInvalid, useErrors } from "./forms.ts";

/**
 * The forms of the admin's dialogs. What the page finds wrong is said once somebody tried to send, what the server finds
 * wrong lands on its field, and the first of them gets the focus.
 *
 *   const form = useForm({ wrong: { days: checkCount(days, { min: 1, max: 30 }) }, send: () => ask(…), onSent: close });
 *   <Dialog … onSubmit={form.submit}><Field label="Days" error={form.errorOf("days")}>…</Field>{form.problem}</Dialog>
 *
 * Numbers and money are kept as they are typed, so that a typing error is told apart from an empty field.
 */

/** By the server's names of the fields; every field that has a place in the form is in it. */
type Wrong<Name extends string> = Record<Name, string | null>;

export function useForm<Name extends string, Sent>({
  wrong,
  send,
  onSent,
}: {
  wrong: Wrong<Name>;
  send: () => Promise<Sent>;
  onSent: (sent: Sent) => void;
}): { submit: () => void; errorOf: (name: Name) => string | null; problem: ReactNode; isPending: boolean } {
  const [tries, setTries] = useState(0);
  const { mutate, error, isPending } = useMutation({ mutationFn: send, onSuccess: onSent });
  const { at, rest } = useErrors(error, Object.keys(wrong));
  useEffect(() => {
    if (tries > 0) focusInvalid();
  }, [tries]);
  return {
    submit() {
      setTries(tries + 1);
      if (!isPending && Object.values(wrong).every((each) => each === null)) mutate();
    },
    errorOf: (name) => (tries > 0 && wrong[name]) || at(name),
    problem: rest !== null && <Problem error={rest} />,
    isPending,
  };
}

type Bounds = { min: number; max: number; optional?: boolean };

/** "15,000" → 15000; NaN for what is no whole number, null for nothing. */
export function readCount(typed: string): number | null {
  const plain = typed.trim().replaceAll(",", "");
  if (plain === "") return null;
  return /^-?\d{1,15}$/.test(plain) ? Number(plain) : Number.NaN;
}

/** What is wrong with a typed whole number; null: nothing. */
export function checkCount(typed: string, { min, max, optional = false }: Bounds): string | null {
  const count = readCount(typed);
  if (count === null && optional) return null;
  return count !== null && count >= min && count <= max
    ? null
    : `A whole number from ${formatCount(min)} to ${formatCount(max)}.`;
}

const NANO_PER_MICRO = 1_000n;
const NANO_PER_USD = 1_000_000_000n;

/** Typed dollars → micro-USD, the unit of prices; null for nothing, NaN for what is none. */
export function readMicroUsd(typed: string): number | null {
  if (typed.trim() === "") return null;
  const nano = parseUsd(typed);
  return nano === null || BigInt(nano) % NANO_PER_MICRO !== 0n ? Number.NaN : Number(BigInt(nano) / NANO_PER_MICRO);
}

/** What is wrong with typed dollars, at most `maxUsd`, with `decimals` at most; null: nothing. */
export function checkUsd(
  typed: string,
  { maxUsd, decimals, optional = false }: { maxUsd: number; decimals: 6 | 9; optional?: boolean },
): string | null {
  if (typed.trim() === "" && optional) return null;
  const nano = parseUsd(typed);
  if (nano === null) return `Dollars, with up to ${decimals} decimals.`;
  const amount = BigInt(nano);
  if (amount < 0n || amount > BigInt(maxUsd) * NANO_PER_USD) return `From $0 to $${formatCount(maxUsd)}.`;
  return decimals === 6 && amount % NANO_PER_MICRO !== 0n ? "Dollars, with up to 6 decimals." : null;
}
