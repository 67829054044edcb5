import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Command } from "cmdk";
import { KeyRound, type LucideIcon, ReceiptText } from "lucide-react";
import { useState } from "react";
import { useLocation } from "wouter";
import { formatEnds } from "../format.ts";

/** The list inside the palette, loaded by palette.tsx. */

export type PalettePage = {
  label: string;
  href: string;
  icon: LucideIcon;
  /** Not a page of this app: the browser loads it. */
  isOutside?: boolean;
};
export type PaletteKey = { id: string; name: string; prefix: string };
export type PaletteProps = {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  pages: readonly PalettePage[];
  keys?: readonly PaletteKey[] | undefined;
};

/** A request id as the API and the receipts write it. */
const REQUEST_ID = /^(?:req_)?[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;
const ITEM =
  "flex min-h-10 cursor-default items-center gap-3 rounded-sm px-3 text-14 data-[selected=true]:bg-hover pointer-coarse:min-h-11";

export function PaletteList({ onOpenChange, pages, keys = [] }: PaletteProps) {
  const [typed, setTyped] = useState("");
  const [, navigate] = useLocation();
  const go =
    (href: string, isOutside = false) =>
    () => {
      onOpenChange(false);
      if (isOutside) location.assign(href);
      else navigate(href);
    };
  const requestId = REQUEST_ID.test(typed.trim()) ? typed.trim() : null;
  return (
    <Command label={t`Go to`} loop>
      <Command.Input
        autoFocus
        value={typed}
        onValueChange={setTyped}
        placeholder={t`A page, a key, or a request id`}
        className="control"
      />
      <Command.List className="mt-2 max-h-80 overflow-y-auto [&_[cmdk-group-heading]]:px-3 [&_[cmdk-group-heading]]:pt-3 [&_[cmdk-group-heading]]:pb-1 [&_[cmdk-group-heading]]:text-12 [&_[cmdk-group-heading]]:text-ink-3">
        <Command.Empty className="px-3 py-6 text-center text-13 text-ink-3">
          <Trans>Nothing with that name. A request id opens its receipt.</Trans>
        </Command.Empty>
        {requestId && (
          <Command.Item value={requestId} onSelect={go(`/requests/${encodeURIComponent(requestId)}`)} className={ITEM}>
            <ReceiptText size={16} aria-hidden className="flex-none text-ink-3" />
            <Trans>Receipt</Trans>{" "}
            <span className="truncate font-mono text-13 text-ink-2">{formatEnds(requestId)}</span>
          </Command.Item>
        )}
        <Command.Group heading={t`Pages`}>
          {pages.map(({ label, href, icon: Icon, isOutside }) => (
            <Command.Item key={href} value={`${label} ${href}`} onSelect={go(href, isOutside)} className={ITEM}>
              <Icon size={16} aria-hidden className="flex-none text-ink-3" />
              {label}
            </Command.Item>
          ))}
        </Command.Group>
        {keys.length > 0 && (
          <Command.Group heading={t`Keys`}>
            {keys.map(({ id, name, prefix }) => (
              <Command.Item
                key={id}
                value={`${name} ${prefix} ${id}`}
                onSelect={go(`/usage?key=${encodeURIComponent(id)}`)}
                className={ITEM}
              >
                <KeyRound size={16} aria-hidden className="flex-none text-ink-3" />
                <span className="min-w-0 flex-1 truncate">{name}</span>
                <span className="flex-none font-mono text-12 text-ink-3">{prefix}</span>
              </Command.Item>
            ))}
          </Command.Group>
        )}
      </Command.List>
    </Command>
  );
}
