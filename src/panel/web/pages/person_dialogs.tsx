import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { ALLOTMENT_PIECES, EMAIL_CHARS_MAX, PERSON_NAME_CHARS_MAX, REASON_CHARS_MAX } from "../../../limits.ts";
import { api, ask, type Role, sentOnce, useIdempotencyKey } from "../api.ts";
import { CONFIRM } from "../copy.ts";
import { formatInstant, formatMoney, formatOf, parseUsd } from "../format.ts";
import { Button, ButtonLink } from "../ui/buttons.tsx";
import { Segmented } from "../ui/choices.tsx";
import { nowMs } from "../ui/clock.ts";
import { Combobox } from "../ui/combobox.tsx";
import { CopyField } from "../ui/copy_field.tsx";
import { Confirm, Dialog } from "../ui/dialog.tsx";
import { CountField, DollarField, Field, TextField } from "../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../ui/form.tsx";
import { Banner } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { useBilling } from "./holdings.tsx";
import { IdleMoney } from "./idle_money.tsx";
import { type Offering, OfferingField, useOfferings } from "./offerings.tsx";
import { type Person, useRefresh, useViewer } from "./page_hooks.ts";
import { checkCount, readCount, wrongAmount } from "./typed_numbers.ts";

/** The dialogs about one person. Loaded when the first of them is opened. */

/** The dialogs of a person's page; `assign` is in assign_dialog.tsx, `limits` in person_limits.tsx. */
export type PersonDialogKind =
  | "assign"
  | "money"
  | "link"
  | "rename"
  | "limits"
  | "grant"
  | "suspend"
  | "second_factor";

/** Resellers on one page of the list to choose from. */
const RESELLERS_PAGE_MAX = 200;

type NewLink = { kind: "invitation" | "reset"; url: string; expiresAt: string; mailed: boolean };
type Added = { accountId: number; name: string; link: NewLink | null };

const ROLES = [
  { value: "customer", label: "Customer" },
  { value: "reseller", label: "Reseller" },
  { value: "admin", label: "Admin" },
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
      title={`${added.name} is added`}
      footer={
        <>
          <Button onClick={onClose}>Done</Button>
          <ButtonLink href={href} variant="primary" onClick={onClose}>
            Open {added.name}
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
      email: isBlank(email) ? "Enter their e-mail address." : null,
      name: isBlank(name) ? "Enter their name, as you want to see it in the list." : null,
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
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={isAdmin ? "Add a person" : "Invite a customer"}
      description="You get a link for them. With it they choose their own password."
      submitLabel={isAdmin ? "Add person" : "Invite customer"}
    >
      {isAdmin && (
        <Segmented
          label="Role"
          value={role}
          onValue={(next) => form.set({ role: next })}
          options={ROLES}
          className="justify-self-start"
        />
      )}
      <TextField label="Name" {...form.field("name")} maxLength={PERSON_NAME_CHARS_MAX} />
      <TextField
        label="E-mail"
        hint="They sign in with it. No mail is sent."
        {...form.field("email")}
        type="email"
        maxLength={EMAIL_CHARS_MAX}
        autoCapitalize="none"
      />
      {isAdmin && role === "customer" && <ResellerField {...form.field("resellerId")} />}
      {form.errorOf("role") && <p className="text-12 text-bad">{form.errorOf("role")}</p>}
    </FormDialog>
  );
}

function ResellerField({
  value,
  onValue,
  error,
}: {
  value: string;
  onValue: (resellerId: string) => void;
  error: string | null;
}) {
  const resellers = useInfiniteQuery({
    queryKey: ["people", "resellers to choose from"],
    queryFn: ({ pageParam }) =>
      ask(
        api.people.get({
          query: { role: "reseller", limit: RESELLERS_PAGE_MAX, ...(pageParam > 0 && { before: pageParam }) },
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: ({ people, hasMore }) => (hasMore ? people[people.length - 1]?.accountId : undefined),
  });
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = resellers;
  const all = resellers.data?.pages.flatMap(({ people }) => people) ?? [];
  return (
    <Field
      label="Belongs to"
      hint="This cannot be changed later."
      error={error}
      aside={
        hasNextPage && (
          <Button size="sm" variant="quiet" pending={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            Load older resellers
          </Button>
        )
      }
    >
      <Combobox
        value={value}
        onValue={onValue}
        options={[
          { value: HOUSE, label: "No reseller (direct customer)" },
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
      <CopyField label={kind === "invitation" ? "Invitation link" : "Reset link"} value={url} />
      <p className="text-13 text-ink-2">
        {mailed ? "It is on its way by mail too. " : "It is not mailed: no mail server is set. "}Give it to {name} only:
        anyone who opens it can choose the password. It works once, until {formatInstant(expiresAt, { now: nowMs() })}.
        It is not shown again. If it is lost, make a new one; this one then stops working.
      </p>
    </>
  );
}

function NoLinkYet({ isAdmin }: { isAdmin: boolean }) {
  return (
    <Banner
      tone="warn"
      title="There is no link yet."
      action={
        isAdmin ? undefined : (
          <ButtonLink href="/domains" size="sm">
            Domains
          </ButtonLink>
        )
      }
    >
      {isAdmin ? "They sign in" : "Your customers sign in"} on a domain of {isAdmin ? "their reseller" : "yours"}. None
      is active yet. When one is, make the link on their page.
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
        Done
      </Button>
    );
    return (
      <Dialog open={open} onOpenChange={(isOpen) => isOpen || onClose()} title={`Link for ${name}`} footer={done}>
        <LinkOnce link={made} name={name} />
      </Dialog>
    );
  }
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={`Make ${hasPassword ? "a reset link" : "an invitation"} for ${name}?`}
      submitLabel="Make link"
    >
      <p className="text-14 text-ink-2">
        {hasPassword
          ? "They choose a new password with it; until then the old one works. Their second factor stays."
          : "They choose their password with it and sign in."}
        {pending && " The link made before stops working."}
      </p>
    </FormDialog>
  );
}

export function RenameDialog({ open, onClose, person }: DialogState & { person: Person }) {
  const refresh = useRefresh();
  const form = useForm({
    first: { name: person.name },
    wrong: ({ name }) => ({ name: isBlank(name) ? "Enter a name." : null }),
    send: ({ name }) => ask(api.people({ id: person.accountId }).patch({ name })),
    onSent: async ({ name: renamed }) => {
      await refresh();
      toast.done(`Renamed to ${renamed}.`);
      onClose();
    },
  });
  return (
    <FormDialog form={form} open={open} onClose={onClose} title="Rename" size="sm" submitLabel="Save name">
      <TextField label="Name" {...form.field("name")} maxLength={PERSON_NAME_CHARS_MAX} />
    </FormDialog>
  );
}

const BALANCE_CHANGES = [
  { value: "top_up", label: "Top-up" },
  { value: "correction", label: "Correction" },
] as const;
type BalanceChange = (typeof BALANCE_CHANGES)[number]["value"];
type BalanceForm = { kind: BalanceChange; amountNanoUsd: string; reason: string };
const NO_BALANCE_CHANGE: BalanceForm = { kind: "top_up", amountNanoUsd: "", reason: "" };

/** A reseller moves money from its own balance; an admin adds or corrects, and gives a reason. */
export function MoneyDialog({ open, onClose, person }: DialogState & { person: Person }) {
  const formKey = useIdempotencyKey();
  const refresh = useRefresh();
  const isAdmin = useViewer().role === "admin";
  const mine = useBilling(null, { enabled: open && !isAdmin });
  const available = mine.data && BigInt(mine.data.balance.freeNanoUsd);
  const form = useForm({
    first: NO_BALANCE_CHANGE,
    wrong: ({ kind, amountNanoUsd, reason }) => ({
      amountNanoUsd: wrongTopUp(amountNanoUsd, { available, mayTake: kind === "correction" }),
      reason:
        isAdmin && isBlank(reason) ? "Enter a reason. It is kept with the transaction, and they can read it." : null,
      kind: null,
    }),
    send: ({ kind, amountNanoUsd, reason }) => {
      const wanted = { kind, amountNanoUsd: parseUsd(amountNanoUsd) ?? "", ...(!isBlank(reason) && { reason }) };
      return ask(api.people({ id: person.accountId }).balance.post(wanted, sentOnce(formKey)));
    },
    onSent: async ({ balance }) => {
      await refresh();
      toast.done(`The balance of ${person.name} is ${formatMoney(balance.balanceNanoUsd)} now.`);
      onClose();
    },
  });
  const isCorrection = form.values.kind === "correction";
  const nanoUsd = amountOf(form.values);
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={isAdmin ? "Change the balance" : "Top up"}
      description={`${person.name} has ${formatMoney(person.balanceNanoUsd)} now`}
      submitLabel={isCorrection ? "Correct balance" : `Top up${nanoUsd === null ? "" : ` ${formatMoney(nanoUsd)}`}`}
    >
      <IdleMoney person={person} />
      {isAdmin && (
        <Segmented
          label="Kind"
          value={form.values.kind}
          onValue={(kind) => form.set({ kind })}
          options={BALANCE_CHANGES}
          className="justify-self-start"
        />
      )}
      <DollarField
        label="Amount"
        hint={isCorrection ? "In US dollars. A minus sign takes money away." : ownBalanceHint(available, nanoUsd)}
        {...form.field("amountNanoUsd")}
        inputMode={isCorrection ? "text" : "decimal"}
      />
      <TextField
        label="Reason"
        optional={!isAdmin}
        hint="One line, shown beside the transaction. They can read it."
        {...form.field("reason")}
        maxLength={REASON_CHARS_MAX}
      />
    </FormDialog>
  );
}

/** The typed amount; null while it is not valid. */
function amountOf({ kind, amountNanoUsd }: BalanceForm): bigint | null {
  const isValid = wrongAmount(amountNanoUsd, { mayTake: kind === "correction" }) === null;
  return isValid ? BigInt(parseUsd(amountNanoUsd) ?? 0) : null;
}

function wrongTopUp(typed: string, { available, mayTake }: { available: bigint | undefined; mayTake: boolean }) {
  const wrong = wrongAmount(typed, { mayTake });
  if (wrong !== null || available === undefined) return wrong;
  return BigInt(parseUsd(typed) ?? 0) > available ? `Your balance has only ${formatMoney(available)} available.` : null;
}

/** What a top-up does to a reseller's own balance. For an admin, whose top-up comes from no balance, only the currency. */
function ownBalanceHint(available: bigint | undefined, nanoUsd: bigint | null): string {
  if (available === undefined) return "In US dollars.";
  const now = `From your balance: ${formatMoney(available)} available`;
  return nanoUsd === null || nanoUsd > available
    ? `${now}.`
    : `${now}, ${formatMoney(available - nanoUsd)} afterwards.`;
}

/** Grants pieces of an offering, which a reseller may assign without paying the wholesale price. */
export function GrantDialog({ open, onClose, person }: DialogState & { person: Person }) {
  const formKey = useIdempotencyKey();
  const refresh = useRefresh();
  const offerings = useOfferings({ enabled: open });
  const form = useForm({
    first: { offeringId: null as Offering | null, pieces: "", reason: "" },
    wrong: ({ offeringId, pieces, reason }) => ({
      offeringId: offeringId === null ? "Choose an offering." : null,
      pieces: checkCount(pieces, ALLOTMENT_PIECES),
      reason: isBlank(reason) ? "Enter a reason. It is kept with the allotment." : null,
      resellerId: null,
    }),
    send: ({ offeringId: offering, pieces, reason }) => {
      const wanted = { offeringId: offering?.offeringId ?? 0, pieces: readCount(pieces) ?? 0, reason };
      return ask(api.allotments.post({ resellerId: person.accountId, ...wanted }, sentOnce(formKey)));
    },
    onSent: async ({ allotment }) => {
      await refresh();
      toast.done(`${person.name} may assign ${formatOf(allotment.granted, "piece")} of ${allotment.offeringName}.`);
      onClose();
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title="Grant an allotment"
      description={`${person.name} may assign these packages without paying the wholesale price.`}
      submitLabel="Grant"
    >
      <OfferingField offerings={offerings} {...form.field("offeringId")} />
      <CountField label="Pieces" {...form.field("pieces")} />
      <TextField
        label="Reason"
        hint="One line, kept with the allotment."
        {...form.field("reason")}
        maxLength={REASON_CHARS_MAX}
      />
    </FormDialog>
  );
}

export function SuspendConfirm({ open, onClose, person }: DialogState & { person: Person }) {
  const refresh = useRefresh();
  const { title, body } = CONFIRM.suspend(person.name, person.role);
  return (
    <Confirm
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={title}
      confirmLabel="Suspend"
      cancelLabel="Keep active"
      typeName={person.name}
      onConfirm={async () => {
        await ask(api.people({ id: person.accountId }).suspend.post());
        await refresh();
        toast.done(`${person.name} is suspended.`);
      }}
    >
      {body}
    </Confirm>
  );
}

export function SecondFactorConfirm({ open, onClose, person }: DialogState & { person: Person }) {
  const refresh = useRefresh();
  return (
    <Confirm
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={`Remove the second factor of ${person.name}?`}
      confirmLabel="Remove second factor"
      cancelLabel="Keep it"
      onConfirm={async () => {
        await ask(api.people({ id: person.accountId })["remove-second-factor"].post());
        await refresh();
        toast.done(`${person.name} now signs in with the password alone.`);
      }}
    >
      Make sure that the request really comes from them. They sign in with their password alone until they set up a new
      second factor.
    </Confirm>
  );
}
