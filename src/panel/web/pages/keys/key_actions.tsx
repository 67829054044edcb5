import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Ban, Boxes, ChartColumn, MoreHorizontal, Pencil, Power, RefreshCw } from "lucide-react";
import { api, ask } from "../../api.ts";
import { CONFIRM } from "../../copy.ts";
import type { OwnKey } from "../../shared/account_queries.ts";
import { type Opened, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { useSwitching } from "../../shared/switching.ts";
import { IconButton } from "../../ui/buttons.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Menu } from "../../ui/menu.tsx";
import type { MenuItem } from "../../ui/menu_list.tsx";
import { toast } from "../../ui/toast.ts";
import { CreateKeyDialog } from "./key_create.tsx";
import { EditKeyDialog, RotateKeyDialog, ScopeDialog } from "./key_dialogs.tsx";
import type { RateLimits } from "./rate_limits.tsx";

/** What can be done with a key, in the list of keys and on its own page: the menu, and the dialogs that it opens. */

export type KeyAct = { kind: "create" } | { kind: "edit" | "scope" | "rotate" | "revoke"; row: OwnKey };

export function KeyActing({ acting, most }: { acting: Opened<KeyAct>; most: RateLimits | null }) {
  const { what, isOpen, times, close } = acting;
  if (what === null) return null;
  const state = { open: isOpen, onClose: close };
  if (what.kind === "create") return <CreateKeyDialog key={times} {...state} most={most} />;
  if (what.kind === "edit") return <EditKeyDialog key={times} {...state} row={what.row} most={most} />;
  if (what.kind === "scope") return <ScopeDialog key={times} {...state} row={what.row} />;
  if (what.kind === "rotate") return <RotateKeyDialog key={times} {...state} row={what.row} />;
  return <RevokeQuestion key={times} {...state} row={what.row} />;
}

function RevokeQuestion({
  open,
  onClose,
  row: { keyId, name, requestsLastDay },
}: {
  open: boolean;
  onClose: () => void;
  row: OwnKey;
}) {
  const refresh = useRefresh();
  const { title, body } = CONFIRM.revokeKey(name, requestsLastDay);
  return (
    <Confirm
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={title}
      confirmLabel={t`Revoke key`}
      cancelLabel={t`Keep key`}
      onConfirm={async () => {
        await ask(api.keys({ id: keyId }).revoke.post());
        await refresh();
        toast.done(t`Key ${name} is revoked.`);
      }}
    >
      {body} <Trans>This cannot be undone.</Trans>
    </Confirm>
  );
}

export function KeyMenu({ row, onAct }: { row: OwnKey; onAct: (act: KeyAct) => void }) {
  const { lock } = useViewer();
  const power = usePower();
  const off = lock.disabled ? { disabled: true } : {};
  const isOn = row.status === "enabled";
  const items: MenuItem[] = [
    { label: t`Usage`, icon: ChartColumn, href: `/usage?key=${row.keyId}` },
    { label: t`Name and limits`, icon: Pencil, onSelect: () => onAct({ kind: "edit", row }), ...off },
    { label: t`Models and hosts`, icon: Boxes, onSelect: () => onAct({ kind: "scope", row }), ...off },
    {
      label: t`Rotate`,
      icon: RefreshCw,
      onSelect: () => onAct({ kind: "rotate", row }),
      ...(isOn ? off : { disabled: true, hint: t`Switch it on first.` }),
    },
    {
      label: isOn ? t`Switch off` : t`Switch on`,
      icon: Power,
      onSelect: () => power.mutate({ what: row, isOn: !isOn }),
      ...off,
    },
    "line",
    { label: t`Revoke`, icon: Ban, tone: "danger", onSelect: () => onAct({ kind: "revoke", row }), ...off },
  ];
  return (
    <Menu
      trigger={<IconButton icon={MoreHorizontal} label={t`Actions for ${{ name: row.name }}`} size="sm" />}
      header={lock.title && <p className="text-12 text-ink-3">{lock.title}</p>}
      items={items}
    />
  );
}

function usePower() {
  return useSwitching<OwnKey>({
    send: ({ keyId }, isOn) => {
      const key = api.keys({ id: keyId });
      return isOn ? ask(key.enable.post()) : ask(key.disable.post());
    },
    done: ({ name }, isOn) => (isOn ? t`Key ${name} is on.` : t`Key ${name} is off. Requests with it get a 401 error.`),
    stays: ({ name }, isOn) => (isOn ? t`Key ${name} stays off.` : t`Key ${name} stays on.`),
  });
}
