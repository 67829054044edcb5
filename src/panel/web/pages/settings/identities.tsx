import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link2 } from "lucide-react";
import { api, ask } from "../../api.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { type DialogState, FormDialog, useForm } from "../../ui/form.tsx";
import { Section } from "../../ui/page.tsx";
import { Badge, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { LINKING, rememberNext } from "../sign_in/next_path.ts";
import { firstProof, ProofFields, type ProofWays, takeProof, wrongProof } from "./confirm_person.tsx";
import { useHasPasskey } from "./passkeys.tsx";
import { SETTINGS_KEY } from "./queries.ts";

/** The person's linked identities: link, unlink. Without identity providers there is no such section. */

const IDENTITIES_KEY = [...SETTINGS_KEY, "identities"] as const;

type Shown = NonNullable<Awaited<ReturnType<typeof api.settings.identities.get>>["data"]>;
type Listed = Shown["identities"][number];
type Offered = Shown["offered"][number];
type What = { kind: "link"; offered: Offered } | { kind: "unlink"; row: Listed };

export function Identities({ asksForCode }: { asksForCode: boolean }) {
  const shown = useQuery({ queryKey: IDENTITIES_KEY, queryFn: () => ask(api.settings.identities.get()) });
  const dialog = useOpened<What>();
  const ways = { hasPasskey: useHasPasskey(), asksForCode };
  const state = { open: dialog.isOpen, onClose: dialog.close };
  const { what } = dialog;
  if (shown.data?.identities.length === 0 && shown.data.offered.length === 0) return null;
  return (
    <Section
      title={t`Linked identities`}
      description={t`Sign in where you have an account already. It replaces both the password and the code.`}
      flush
    >
      <Loaded query={shown} skeleton={<SkeletonRows rows={1} />}>
        {({ identities, offered }) => (
          <ul>
            {identities.map((row) => (
              <IdentityRow key={row.id} row={row} onUnlink={() => dialog.open({ kind: "unlink", row })} />
            ))}
            {offered
              .filter((one) => !identities.some((row) => row.identityProviderId === one.identityProviderId))
              .map((one) => (
                <OfferedRow
                  key={one.identityProviderId}
                  name={one.name}
                  onLink={() => dialog.open({ kind: "link", offered: one })}
                />
              ))}
          </ul>
        )}
      </Loaded>
      {what?.kind === "link" && <LinkDialog key={dialog.times} offered={what.offered} {...state} {...ways} />}
      {what?.kind === "unlink" && <UnlinkDialog key={dialog.times} row={what.row} {...state} {...ways} />}
    </Section>
  );
}

const ROW =
  "flex flex-wrap items-start gap-x-3 gap-y-2 border-b border-line px-4 py-3 last:border-0 sm:flex-nowrap sm:px-6";

function OfferedRow({ name, onLink }: { name: string; onLink: () => void }) {
  const { lock } = useViewer();
  return (
    <li className={ROW}>
      <Link2 size={16} aria-hidden className="mt-0.5 flex-none text-ink-3" />
      <p className="min-w-0 flex-[1_1_12rem] text-14">{name}</p>
      <Button size="sm" onClick={onLink} {...lock}>
        <Trans context="verb">
          Link<span className="sr-only"> {name}</span>
        </Trans>
      </Button>
    </li>
  );
}

function IdentityRow({
  row: { provider, email, enabled, createdAt, lastUsedAt },
  onUnlink,
}: {
  row: Listed;
  onUnlink: () => void;
}) {
  const { lock } = useViewer();
  return (
    <li className={ROW}>
      <Link2 size={16} aria-hidden className="mt-0.5 flex-none text-ink-3" />
      <div className="min-w-0 flex-[1_1_12rem]">
        <p className="flex flex-wrap items-center gap-x-2 text-14 font-medium">
          <span className="min-w-0 break-words">{provider}</span>
          {!enabled && <Badge>{t({ message: "Off", context: "state" })}</Badge>}
        </p>
        <p className="text-13 break-words text-ink-2">{email}</p>
        <p className="text-12 text-ink-3">
          {lastUsedAt === null ? (
            <Trans>
              Never used, linked <Instant iso={createdAt} />
            </Trans>
          ) : (
            <Trans>
              Last used <Ago iso={lastUsedAt} />, linked <Instant iso={createdAt} />
            </Trans>
          )}
        </p>
      </div>
      <Button size="sm" variant="quiet" onClick={onUnlink} {...lock}>
        <Trans>
          Unlink<span className="sr-only"> {provider}</span>
        </Trans>
      </Button>
    </li>
  );
}

function LinkDialog({ offered, hasPasskey, asksForCode, ...dialog }: DialogState & ProofWays & { offered: Offered }) {
  const { identityProviderId, name } = offered;
  const form = useForm({
    first: firstProof(hasPasskey),
    wrong: (proof) => wrongProof(proof, { asksForCode }),
    send: async (typed) => {
      const proof = await takeProof(typed, { asksForCode });
      return ask(api.settings.identities.begin.post({ identityProviderId, proof }));
    },
    onSent: ({ url }) => {
      rememberNext(LINKING);
      location.assign(url);
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Link ${name}`}
      description={t`First confirm that it is you. Then you sign in at ${name}, and come back.`}
      submitLabel={t`Continue to ${name}`}
      size="sm"
    >
      <ProofFields form={form} hasPasskey={hasPasskey} asksForCode={asksForCode} />
    </FormDialog>
  );
}

function UnlinkDialog({ row, hasPasskey, asksForCode, ...dialog }: DialogState & ProofWays & { row: Listed }) {
  const client = useQueryClient();
  const form = useForm({
    first: firstProof(hasPasskey),
    wrong: (proof) => wrongProof(proof, { asksForCode }),
    send: async (typed) => {
      const proof = await takeProof(typed, { asksForCode });
      await ask(api.settings.identities({ id: row.id }).remove.post({ proof }));
      await client.invalidateQueries({ queryKey: SETTINGS_KEY });
    },
    onSent: () => {
      toast.done(t`${{ provider: row.provider }} is unlinked. Your other devices are signed out.`);
      dialog.onClose();
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Unlink ${{ provider: row.provider }}?`}
      description={t`It no longer signs you in here, and your other devices are signed out.`}
      cancelLabel={t`Keep it`}
      submitLabel={t`Unlink`}
      isDanger
      size="sm"
    >
      <ProofFields form={form} hasPasskey={hasPasskey} asksForCode={asksForCode} />
    </FormDialog>
  );
}
