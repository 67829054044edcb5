import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { PERSON_NAME_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, type Role, sentOnce, useIdempotencyKey } from "../../api.ts";
import { formatInstant } from "../../format.ts";
import { type Person, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button, ButtonLink } from "../../ui/buttons.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import { Combobox } from "../../ui/combobox.tsx";
import { CopyField } from "../../ui/copy_field.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { EmailField, Field, FieldError, TextField } from "../../ui/fields.tsx";
import { type DialogState, type FieldState, FormDialog, isBlank, isEmail, useForm } from "../../ui/form.tsx";
import { Banner, choicesError } from "../../ui/states.tsx";
import { PEOPLE_KEY } from "./queries.ts";

/** Adding a person, and the links by which people choose their password. */

/** Resellers on one page of the list to choose from. */
const RESELLERS_PAGE_MAX = 200;

type NewLink = { kind: "invitation" | "reset"; url: string; expiresAt: string; mailed: boolean };
type Added = { accountId: number; name: string; link: NewLink | null };

const ROLES = [
  { value: "customer", label: t`Customer` },
  { value: "reseller", label: t`Reseller` },
  { value: "admin", label: t`Admin` },
] as const satisfies readonly { value: Role; label: string }[];
/** No reseller: a customer of the service itself. */
const HOUSE = "0";

/** Adds an account and shows its link once. A reseller adds customers; an admin adds any role. */
export function InviteDialog({ personHref, ...dialog }: DialogState & { personHref: (accountId: number) => string }) {
  const [added, setAdded] = useState<Added | null>(null);
  if (added) return <AddedDialog {...dialog} added={added} href={personHref(added.accountId)} />;
  return <InviteForm {...dialog} onAdded={setAdded} />;
}

function AddedDialog({ open, onClose, added, href }: DialogState & { added: Added; href: string }) {
  const isAdmin = useViewer().role === "admin";
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={t`${{ name: added.name }} is added`}
      footer={
        <>
          <Button onClick={onClose}>
            <Trans>Done</Trans>
          </Button>
          <ButtonLink href={href} variant="primary" onClick={onClose}>
            {t`Open ${{ name: added.name }}`}
          </ButtonLink>
        </>
      }
    >
      {added.link ? <LinkOnce link={added.link} name={added.name} /> : <NoLinkYet isAdmin={isAdmin} />}
    </Dialog>
  );
}

function InviteForm({ open, onClose, onAdded }: DialogState & { onAdded: (added: Added) => void }) {
  const formKey = useIdempotencyKey();
  const refresh = useRefresh();
  const isAdmin = useViewer().role === "admin";
  const form = useForm({
    first: { email: "", name: "", role: "customer" as Role, resellerId: HOUSE },
    wrong: ({ email, name }) => ({
      email: isEmail(email) ? null : t`Enter their e-mail address.`,
      name: isBlank(name) ? t`Enter their name, as you want to see it in the list.` : null,
      role: null,
      resellerId: null,
    }),
    send: ({ email, name, role, resellerId }) => {
      const ofReseller = isAdmin && role === "customer" && resellerId !== HOUSE;
      const wanted = { email, name, ...(isAdmin && { role }), ...(ofReseller && { resellerId: Number(resellerId) }) };
      return ask(api.people.post(wanted, sentOnce(formKey)));
    },
    onSent: async ({ account, link }) => {
      onAdded({ accountId: account.accountId, name: account.name, link });
      await refresh();
    },
  });
  const { role } = form.values;
  const roleError = form.errorOf("role");
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={isAdmin ? t`Add a person` : t`Invite a customer`}
      description={t`You get a link for them. With it they choose their own password.`}
      submitLabel={isAdmin ? t`Add person` : t`Invite customer`}
    >
      {isAdmin && (
        <Segmented
          label={t`Role`}
          value={role}
          onValue={(next) => form.set({ role: next })}
          options={ROLES}
          className="justify-self-start"
        />
      )}
      <TextField label={t`Name`} {...form.field("name")} maxLength={PERSON_NAME_CHARS_MAX} />
      <EmailField label={t`E-mail`} hint={t`They sign in with it.`} {...form.field("email")} />
      {isAdmin && role === "customer" && <ResellerField {...form.field("resellerId")} />}
      {roleError && <FieldError id="role-error">{roleError}</FieldError>}
    </FormDialog>
  );
}

function ResellerField({ value, onValue, error }: FieldState) {
  const resellers = useInfiniteQuery({
    queryKey: [...PEOPLE_KEY, "resellers-to-choose-from"],
    queryFn: ({ pageParam }) =>
      ask(
        api.people.get({
          query: { role: "reseller", limit: RESELLERS_PAGE_MAX, ...(pageParam > 0 && { before: pageParam }) },
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: ({ people, hasMore }) => (hasMore ? people[people.length - 1]?.accountId : undefined),
  });
  const { hasNextPage, isFetchingNextPage, isFetchNextPageError, fetchNextPage } = resellers;
  const all = resellers.data?.pages.flatMap(({ people }) => people) ?? [];
  return (
    <Field
      label={t`Belongs to`}
      hint={t`This cannot be changed later.`}
      error={error ?? choicesError(resellers) ?? (isFetchNextPageError ? t`They did not load. Try again.` : null)}
      aside={
        hasNextPage && (
          <Button size="sm" variant="quiet" pending={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            <Trans>Load older resellers</Trans>
          </Button>
        )
      }
    >
      <Combobox
        value={value}
        onValue={onValue}
        options={[
          { value: HOUSE, label: t`No reseller (your own customer)` },
          ...all.map(({ accountId, name, email }) => ({ value: String(accountId), label: name, hint: email })),
        ]}
      />
    </Field>
  );
}

/** A link that is shown only now. A new one can be made in its place. */
function LinkOnce({ link: { kind, url, expiresAt, mailed }, name }: { link: NewLink; name: string }) {
  return (
    <>
      <CopyField label={kind === "invitation" ? t`Invitation link` : t`Reset link`} value={url} />
      <p className="text-13 text-ink-2">
        {mailed ? t`It was also sent by mail.` : t`It is not mailed: no mail server is set.`}{" "}
        {t`Give it to ${name} only: anyone who opens it can choose the password. It works once, until ${{ time: formatInstant(expiresAt, { now: nowMs() }) }}. It is not shown again. If it is lost, make a new one; this one then stops working.`}
      </p>
    </>
  );
}

function NoLinkYet({ isAdmin }: { isAdmin: boolean }) {
  return (
    <Banner
      tone="warn"
      title={t`There is no link yet.`}
      action={
        isAdmin ? undefined : (
          <ButtonLink href="/domains" size="sm">
            <Trans>Domains</Trans>
          </ButtonLink>
        )
      }
    >
      {isAdmin
        ? t`They sign in on a domain of their reseller. None is active yet. When one is, make the link on their page.`
        : t`Your customers sign in on a domain of yours. None is active yet. When one is, make the link on their page.`}
    </Banner>
  );
}

/** Makes an invitation, or a reset link if they already have a password, and shows it once. */
export function LinkDialog({ open, onClose, person }: DialogState & { person: Person }) {
  const formKey = useIdempotencyKey();
  const refresh = useRefresh();
  const [made, setMade] = useState<NewLink | null>(null);
  const { accountId, name, hasPassword, link: pending } = person;
  const form = useForm({
    wrong: {},
    send: () => ask(api.people({ id: accountId }).link.post({}, sentOnce(formKey))),
    onSent: async (link) => {
      setMade(link);
      await refresh();
    },
  });
  if (made) {
    const done = (
      <Button variant="primary" onClick={onClose}>
        <Trans>Done</Trans>
      </Button>
    );
    return (
      <Dialog open={open} onOpenChange={(isOpen) => isOpen || onClose()} title={t`Link for ${name}`} footer={done}>
        <LinkOnce link={made} name={name} />
      </Dialog>
    );
  }
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={hasPassword ? t`Create a reset link for ${name}?` : t`Create an invitation for ${name}?`}
      submitLabel={t`Create link`}
    >
      <p className="text-14 text-ink-2">
        {hasPassword
          ? t`They choose a new password with it; until then the old one works. Their second factor stays.`
          : t`They choose their password with it and sign in.`}
        {pending && ` ${t`The link made before stops working.`}`}
      </p>
    </FormDialog>
  );
}
