import { t } from "@lingui/core/macro";
import type { ReactNode } from "react";
import { Confirm } from "../../ui/dialog.tsx";
import type { DialogState } from "../../ui/form.tsx";

/** Asks before a domain is removed: whoever does it types its name. `children`: what happens then. */
export function ConfirmRemoval({
  host,
  open,
  onClose,
  onConfirm,
  children,
}: DialogState & { host: string; onConfirm: () => Promise<void>; children: ReactNode }) {
  return (
    <Confirm
      open={open}
      onOpenChange={onClose}
      title={t`Remove ${host}?`}
      confirmLabel={t`Remove domain`}
      cancelLabel={t`Keep domain`}
      typeName={host}
      onConfirm={onConfirm}
    >
      {children}
    </Confirm>
  );
}
