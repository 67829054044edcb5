import { Trans } from "@lingui/react/macro";
import { LoaderCircle } from "lucide-react";
import { type ReactNode, Suspense } from "react";

/**
 * Around dialogs whose script loads when they open: on a slow line it shows that one opens.
 *
 *   <Later>{dialog.what && <InviteDialog key={dialog.times} open={dialog.isOpen} onClose={dialog.close} />}</Later>
 */
export function Later({ children }: { children: ReactNode }) {
  return <Suspense fallback={<Opening />}>{children}</Suspense>;
}

/** It takes no focus, so that the dialog can give it back to the button that opened it. Drawn after 150 ms. */
function Opening() {
  return (
    <div role="status" className="overlay-back animate-late z-50 grid place-content-center">
      <span className="flex items-center gap-3 rounded-lg bg-raised px-6 py-4 text-14 text-ink shadow-overlay">
        <LoaderCircle size={16} aria-hidden className="animate-spin" />
        <Trans>Opening…</Trans>
      </span>
    </div>
  );
}
