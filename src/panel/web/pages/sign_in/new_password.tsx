import { t } from "@lingui/core/macro";
import { cx } from "../../ui/cx.ts";
import { Field, PasswordInput } from "../../ui/fields.tsx";
import type { FieldState } from "../../ui/form.tsx";
import { PASSWORD_RULES, type Strength, strengthOf } from "./password_strength.ts";

/**
 * The field for a new password, with its rules and an estimate of its strength.
 *
 *   <NewPassword label="Password" value={password} onValue={setPassword} error={…} about={[email, name, brand]} />
 */
export function NewPassword({
  label,
  value,
  onValue,
  error,
  about,
}: FieldState & {
  label: string;
  /** Text that others know about the owner. */
  about: readonly string[];
}) {
  return (
    <Field label={label} hint={PASSWORD_RULES} error={error}>
      <PasswordInput value={value} onValue={onValue} autoComplete="new-password" />
      {value !== "" && <StrengthLine strength={strengthOf(value, about)} />}
    </Field>
  );
}

/** The error of a new password, or null. */
export function checkPassword(password: string): string | null {
  const { level, words } = strengthOf(password, []);
  if (password === "") return t`Enter a new password.`;
  return level === 0 ? t`Not yet: ${words}` : null;
}

const FILLS: Record<Strength["level"], string> = { 0: "bg-edge", 1: "bg-bad", 2: "bg-warn", 3: "bg-ok" };
const WORDS: Record<Strength["level"], string> = { 0: "text-ink-2", 1: "text-bad", 2: "text-warn", 3: "text-ok" };

function StrengthLine({ strength: { level, words } }: { strength: Strength }) {
  return (
    <div className="grid gap-1 pt-1">
      <div aria-hidden className="grid grid-cols-3 gap-1">
        {[1, 2, 3].map((step) => (
          <span key={step} className={cx("h-1 rounded-full", step <= level ? FILLS[level] : "bg-line")} />
        ))}
      </div>
      <p className={cx("text-12", WORDS[level])}>{words}</p>
    </div>
  );
}
