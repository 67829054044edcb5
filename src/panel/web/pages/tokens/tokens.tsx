import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQueryClient } from "@tanstack/react-query";
import { Ban, Bot, MoreHorizontal, Plus, RefreshCw } from "lucide-react";
import { api, ask } from "../../api.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button, IconButton } from "../../ui/buttons.tsx";
import { SecretOnce } from "../../ui/copy_field.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Hint } from "../../ui/hint.tsx";
import { keptOnce } from "../../ui/kept_once.ts";
import { Menu } from "../../ui/menu.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Empty, Loaded, SkeletonRows, Status } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import { useMadeBy } from "../members/queries.ts";
import { TOKENS_KEY, type Token, useTokens } from "./queries.ts";
import { CreateTokenDialog, RotateTokenDialog, scopeWords } from "./token_dialogs.tsx";

/** Tokens of the management API: an admin's or a reseller's own. */

type Opened = { kind: "create" } | { kind: "rotate" | "revoke"; row: Token };

const secret = keptOnce<string>();

export function TokensPage() {
  const { lock } = useViewer();
  const tokens = useTokens();
  const dialog = useOpened<Opened>();
  const shown = secret.useShown();
  const create = (
    <Button variant="primary" icon={Plus} onClick={() => dialog.open({ kind: "create" })} {...lock}>
      {t`Create token`}
    </Button>
  );
  return (
    <Page
      title={t`API tokens`}
      lead={
        <>
          {t`With a token, a program of yours manages accounts, packages and sales.`}{" "}
          <a className="text-accent-text underline" href="/docs/management">
            {t`Reference of the management API`}
          </a>
        </>
      }
      action={create}
    >
      <Loaded query={tokens} skeleton={<SkeletonRows rows={2} />}>
        {({ tokens: rows, scopes }) => (
          <>
            <Section title={t`Tokens`} flush>
              <DataTable
                caption={t`Tokens`}
                rows={rows}
                rowKey={({ tokenId }) => String(tokenId)}
                columns={COLUMNS}
                actions={(row) => <TokenMenu row={row} onOpen={dialog.open} />}
                empty={
                  <Empty icon={Bot}>{t`No tokens yet. A token is for one program, with only what it needs.`}</Empty>
                }
              />
            </Section>
            <Dialogs dialog={dialog} scopes={scopes} />
          </>
        )}
      </Loaded>
      {shown !== null && (
        <SecretOnce
          open
          title={t`The token is ready`}
          label={t`Token`}
          value={shown}
          onDone={() => secret.show(null)}
        />
      )}
    </Page>
  );
}

const COLUMNS: Column<Token>[] = [
  {
    head: t`Token`,
    cell: (row) => <NameCell row={row} />,
  },
  {
    head: t`May do`,
    cell: ({ scopes, networks }) => (
      <span className="grid min-w-0 text-start">
        <Hint says={scopes.length > 2 ? scopes.map(scopeWords).join("; ") : null}>
          {scopes.length > 2
            ? plural({ count: scopes.length }, { one: "# scope", other: "# scopes" })
            : scopes.map(scopeWords).join("; ")}
        </Hint>
        {networks !== null && (
          <span className="text-12 text-ink-3">{t`From ${{ networks: networks.join(", ") }}`}</span>
        )}
      </span>
    ),
  },
  { head: t`Last used`, cell: ({ lastUsedAt }) => <Ago iso={lastUsedAt} />, hideBelow: "md" },
  {
    head: t`State`,
    cell: ({ status, expiresAt }) => (
      <span className="grid justify-items-start gap-1">
        <Status kind={status} />
        {status === "active" && (
          <span className="text-12 text-ink-2">
            {expiresAt === null ? (
              t`Never expires`
            ) : (
              <Trans>
                Until <Instant iso={expiresAt} />
              </Trans>
            )}
          </span>
        )}
      </span>
    ),
  },
];

function NameCell({ row: { name, prefix, madeBy } }: { row: Token }) {
  const maker = useMadeBy()(madeBy);
  return (
    <TwoLines
      below={
        <>
          <span className="font-mono text-12">{prefix}…</span>
          {maker !== null && <span className="block text-12">{t`Made by ${maker}`}</span>}
        </>
      }
    >
      {name}
    </TwoLines>
  );
}

function TokenMenu({ row, onOpen }: { row: Token; onOpen: (what: Opened) => void }) {
  const { lock } = useViewer();
  if (lock.disabled || row.status !== "active") return null;
  return (
    <Menu
      trigger={<IconButton icon={MoreHorizontal} label={t`Actions for ${{ name: row.name }}`} size="sm" />}
      items={[
        { label: t`Rotate`, icon: RefreshCw, onSelect: () => onOpen({ kind: "rotate", row }) },
        "line",
        { label: t`Revoke`, icon: Ban, tone: "danger", onSelect: () => onOpen({ kind: "revoke", row }) },
      ]}
    />
  );
}

function Dialogs({ dialog, scopes }: { dialog: ReturnType<typeof useOpened<Opened>>; scopes: readonly string[] }) {
  const client = useQueryClient();
  const { what, isOpen: open, close: onClose, times } = dialog;
  if (what === null) return null;
  const state = { open, onClose, onSecret: secret.show };
  if (what.kind === "create") return <CreateTokenDialog key={times} {...state} scopes={scopes} />;
  if (what.kind === "rotate") return <RotateTokenDialog key={times} {...state} row={what.row} />;
  return (
    <Confirm
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={t`Revoke token ${{ name: what.row.name }}?`}
      confirmLabel={t`Revoke token`}
      cancelLabel={t`Keep token`}
      onConfirm={async () => {
        await ask(api.tokens({ id: what.row.tokenId }).revoke.post());
        await client.invalidateQueries({ queryKey: TOKENS_KEY });
        toast.done(t`Token ${{ name: what.row.name }} is revoked.`);
      }}
    >
      {t`Programs that use it get a 401 error immediately. This cannot be undone.`}
    </Confirm>
  );
}
