import { t } from "@lingui/core/macro";
import { Fingerprint } from "lucide-react";
import { Button } from "../../ui/buttons.tsx";

/** The other way to sign in, below the password. */
export function PasskeyChoice({ isPending = false, onChoose }: { isPending?: boolean; onChoose?: () => void }) {
  return (
    <>
      <p className="flex items-center gap-3 text-13 text-ink-3">
        <span aria-hidden className="h-px flex-1 bg-line" />
        {t({ message: "or", context: "between two ways to sign in" })}
        <span aria-hidden className="h-px flex-1 bg-line" />
      </p>
      <Button icon={Fingerprint} pending={isPending} onClick={() => onChoose?.()}>
        {t`Sign in with a passkey`}
      </Button>
    </>
  );
}
