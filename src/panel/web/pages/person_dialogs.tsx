import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { api, ask, type Role, sentOnce, useIdempotencyKey } from "../api.ts";
import { CONFIRM } from "../copy.ts";
import { formatInstant, formatMoney, formatOf, parseUsd } from "../format.ts";
import { Button, ButtonLink } from "../ui/buttons.tsx";
import { Segmented } from "../ui/choices.tsx";
import { nowMs } from "../ui/clock.ts";
import { Combobox } from "../ui/combobox.tsx";
import { CopyField } from "../ui/copy_field.tsx";
import { Confirm, Dialog } from "../ui/dialog.tsx";
import { Field, TextInput } from "../ui/fields.tsx";
import { useForm } from "../ui/form.tsx";
import { Banner, Problem } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { useBilling } from "./holdings.tsx";
import { IdleMoney } from "./idle_money.tsx";
import { type Offering, OfferingField, useOfferings } from "./offerings.tsx";
import { type Person, useRefresh, useViewer } from "./page_hooks.ts";
import { checkCount, readCount, wrongAmount } from "./typed_numbers.ts";

/**
 * The dialogs about one person: invite, hand over a link, rename, move money, grant an allotment, suspend. Loaded when the
 * first of them is opened.
 */

const NAME_CHARS_MAX = 100;
const EMAIL_CHARS_MAX = 254;
const REASON_CHARS_MAX = 500;
const PIECES_MAX = 100_000;
/** Resellers to choose from, in one page of the list. */
const RESELLERS_MAX = 200;

type NewLink = { kind: "invitation" | "reset"; url: string; expiresAt: string };
type DialogState = { open: boolean; onClose: () => void };

/** The buttons under a form. */
function Buttons({ onClose, isPending, children }: { onClose: () => void; isPending: boolean; children: ReactNode }) {
  return (
    <>
      <Button onClick={onClose}>Cancel</Button>
      <Button type="submit" variant="primary" pending={isPending}>
        {children}
      </Button>
    </>
  );
}

const ROLES = [
  { value: "customer", label: "Customer" },
  { value: "reseller", label: "Reseller" },
  { value: "admin", label: "Admin" },
] as const satisfies readonly { value: Role; label: string }[];
const HOUSE = "0";

/** Adds an account and shows its link once. A reseller adds customers; an admin anybody. */
export function InviteDialog({
  open,
  onClose,
  personHref,
}: DialogState & { personHref: (accountId: number) => string }) {
  const formKey = useIdempotencyKey();
  const refresh = useRefresh();
  const viewer = useViewer();
  const [email, setEmail] = useState("");
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("customer");
  const [resellerId, setResellerId] = useState(HOUSE);
  const [made, setMade] = useState<{ accountId: number; name: string; link: NewLink | null } | null>(null);
  const isAdmin = viewer.role === "admin";
  const form = useForm({
    wrong: {
      email: email.trim() === "" ? "Their e-mail address." : null,
      name: name.trim() === "" ? "Their name, as you want to see it in the list." : null,
      role: null,
      resellerId: null,
    },
    send: () => {
      const ofReseller = isAdmin && role === "customer" && resellerId !== HOUSE;
      const wanted = { email, name, ...(isAdmin && { role }), ...(ofReseller && { resellerId: Number(resellerId) }) };
      return ask(api.people.post(wanted, sentOnce(formKey)));
    },
    onSent: async ({ account, link }) => {
      setMade({ accountId: account.accountId, name: account.name, link });
      await refresh();
    },
  });
  if (made) {
    return (
      <Dialog
        open={open}
        onOpenChange={(isOpen) => isOpen || onClose()}
        title={`${made.name} is added`}
        footer={
          <>
            <Button onClick={onClose}>Done</Button>
            <ButtonLink href={personHref(made.accountId)} variant="primary" onClick={onClose}>
              Open {made.name}
            </ButtonLink>
          </>
        }
      >
        {made.link ? <HandOver link={made.link} name={made.name} /> : <NoLinkYet isAdmin={isAdmin} />}
      </Dialog>
    );
  }
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={isAdmin ? "Add a person" : "Invite a customer"}
      description="You get a link to hand over. They choose their own password with it."
      onSubmit={form.submit}
      footer={
        <Buttons onClose={onClose} isPending={form.isPending}>
          {isAdmin ? "Add person" : "Invite customer"}
        </Buttons>
      }
    >
      {isAdmin && (
        <Segmented label="Role" value={role} onValue={setRole} options={ROLES} className="justify-self-start" />
      )}
      <Field label="Name" error={form.errorOf("name")}>
        <TextInput value={name} onValue={setName} maxLength={NAME_CHARS_MAX} />
      </Field>
      <Field label="E-mail" hint="They sign in with it. No mail is sent." error={form.errorOf("email")}>
        <TextInput value={email} onValue={setEmail} type="email" maxLength={EMAIL_CHARS_MAX} autoCapitalize="none" />
      </Field>
      {isAdmin && role === "customer" && (
        <ResellerField value={resellerId} onValue={setResellerId} error={form.errorOf("resellerId")} />
      )}
      {form.errorOf("role") && <p className="text-12 text-bad">{form.errorOf("role")}</p>}
      {form.problem}
    </Dialog>
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
          query: { role: "reseller", limit: RESELLERS_MAX, ...(pageParam > 0 && { before: pageParam }) },
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
      hint="For good: a customer never changes its reseller."
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
          { value: HOUSE, label: "No reseller (house customer)" },
          ...all.map(({ accountId, name, email }) => ({ value: String(accountId), label: name, hint: email })),
        ]}
      />
    </Field>
  );
}

/** A link that cannot be shown again; another can be made in its place. */
function HandOver({ link: { kind, url, expiresAt }, name }: { link: NewLink; name: string }) {
  return (
    <>
      <CopyField label={kind === "invitation" ? "Invitation link" : "Reset link"} value={url} />
      <p className="text-13 text-ink-2">
        Hand it to {name}, and to nobody else: whoever opens it chooses the password. It works once, until{" "}
        {formatInstant(expiresAt, { now: nowMs() })}. It is not shown again; if it gets lost, make a new one, and this
        one stops working.
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
      {isAdmin ? "They sign in" : "Your customers sign in"} on a domain of {isAdmin ? "their reseller" : "yours"}, and
      none is active. When one is, make the link on their page.
    </Banner>
  );
}

/** Makes an invitation for who has no password yet, else a reset link, and shows it once. */
export function LinkDialog({ open, onClose, person }: DialogState & { person: Person }) {
  const formKey = useIdempotencyKey();
  const refresh = useRefresh();
  const { accountId, name, hasPassword, link: pending } = person;
  const make = useMutation({
    mutationFn: () => ask(api.people({ id: accountId }).link.post({}, sentOnce(formKey))),
    onSuccess: refresh,
  });
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={make.data ? `Link for ${name}` : `Make ${hasPassword ? "a reset link" : "an invitation"} for ${name}?`}
      footer={
        make.data ? (
          <Button variant="primary" onClick={onClose}>
            Done
          </Button>
        ) : (
          <>
            <Button onClick={onClose}>Cancel</Button>
            <Button variant="primary" pending={make.isPending} onClick={() => make.mutate()}>
              Make link
            </Button>
          </>
        )
      }
    >
      {make.data ? (
        <HandOver link={make.data} name={name} />
      ) : (
        <p className="text-14 text-ink-2">
          {hasPassword
            ? "With it they choose a new password; until then the old one holds. Their second factor stays."
            : "With it they choose their password and sign in."}
          {pending && " The link made before stops working."}
        </p>
      )}
      {make.error && <Problem error={make.error} />}
    </Dialog>
  );
}

export function RenameDialog({ open, onClose, person }: DialogState & { person: Person }) {
  const refresh = useRefresh();
  const [name, setName] = useState(person.name);
  const form = useForm({
    wrong: { name: name.trim() === "" ? "A name." : null },
    send: () => ask(api.people({ id: person.accountId }).patch({ name })),
    onSent: async ({ name: renamed }) => {
      await refresh();
      toast.done(`Renamed to ${renamed}.`);
      onClose();
    },
  });
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title="Rename"
      size="sm"
      onSubmit={form.submit}
      footer={
        <Buttons onClose={onClose} isPending={form.isPending}>
          Save name
        </Buttons>
      }
    >
      <Field label="Name" error={form.errorOf("name")}>
        <TextInput value={name} onValue={setName} maxLength={NAME_CHARS_MAX} />
      </Field>
      {form.problem}
    </Dialog>
  );
}

const MOVEMENTS = [
  { value: "top_up", label: "Top-up" },
  { value: "correction", label: "Correction" },
] as const;

/** A reseller moves money of its own; an admin adds or corrects, and says why. */
export function MoneyDialog({ open, onClose, person }: DialogState & { person: Person }) {
  const formKey = useIdempotencyKey();
  const refresh = useRefresh();
  const isAdmin = useViewer().role === "admin";
  const [kind, setKind] = useState<"top_up" | "correction">("top_up");
  const [amount, setAmount] = useState("");
  const [reason, setReason] = useState("");
  const mine = useBilling(null, { enabled: open && !isAdmin });
  const isCorrection = kind === "correction";
  const wrong = wrongAmount(amount, { mayTake: isCorrection });
  const nanoUsd = wrong === null ? BigInt(parseUsd(amount) ?? 0) : null;
  const free = mine.data && BigInt(mine.data.balance.freeNanoUsd);
  const isShort = free !== undefined && nanoUsd !== null && nanoUsd > free;
  const form = useForm({
    wrong: {
      amountNanoUsd: isShort ? `Only ${formatMoney(free)} of your balance is free.` : wrong,
      reason: isAdmin && reason.trim() === "" ? "Say why: it is kept with the entry, and they can read it." : null,
      kind: null,
    },
    send: () => {
      const wanted = { kind, amountNanoUsd: parseUsd(amount) ?? "", ...(reason.trim() !== "" && { reason }) };
      return ask(api.people({ id: person.accountId }).balance.post(wanted, sentOnce(formKey)));
    },
    onSent: async ({ balance }) => {
      await refresh();
      toast.done(`The balance of ${person.name} is ${formatMoney(balance.balanceNanoUsd)} now.`);
      onClose();
    },
  });
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={isAdmin ? "Change the balance" : "Top up"}
      description={`Of ${person.name}: ${formatMoney(person.balanceNanoUsd)} now`}
      onSubmit={form.submit}
      footer={
        <Buttons onClose={onClose} isPending={form.isPending}>
          {isCorrection ? "Correct balance" : `Top up${nanoUsd === null ? "" : ` ${formatMoney(nanoUsd)}`}`}
        </Buttons>
      }
    >
      <IdleMoney person={person} />
      {isAdmin && (
        <Segmented label="Kind" value={kind} onValue={setKind} options={MOVEMENTS} className="justify-self-start" />
      )}
      <Field
        label="Amount"
        hint={isCorrection ? "In US dollars; with a minus it takes away." : mineText(free, nanoUsd)}
        error={form.errorOf("amountNanoUsd")}
      >
        <TextInput
          value={amount}
          onValue={setAmount}
          before="$"
          inputMode={isCorrection ? "text" : "decimal"}
          className="figures"
        />
      </Field>
      <Field
        label="Reason"
        optional={!isAdmin}
        hint="One line. It stands beside the entry; they read it too."
        error={form.errorOf("reason")}
      >
        <TextInput value={reason} onValue={setReason} maxLength={REASON_CHARS_MAX} />
      </Field>
      {form.problem}
    </Dialog>
  );
}

/** What it does to a reseller's own balance; an admin's money comes from nowhere. */
function mineText(free: bigint | undefined, nanoUsd: bigint | null): string {
  if (free === undefined) return "In US dollars.";
  if (nanoUsd === null || nanoUsd > free) return `From your balance: ${formatMoney(free)} is free.`;
  return `From your balance: ${formatMoney(free)} is free, ${formatMoney(free - nanoUsd)} after it.`;
}

/** Pieces of an offering that a reseller may hand out without paying. */
export function GrantDialog({ open, onClose, person }: DialogState & { person: Person }) {
  const formKey = useIdempotencyKey();
  const refresh = useRefresh();
  const offerings = useOfferings({ enabled: open });
  const [offering, setOffering] = useState<Offering | null>(null);
  const [pieces, setPieces] = useState("");
  const [reason, setReason] = useState("");
  const form = useForm({
    wrong: {
      offeringId: offering === null ? "Choose an offering." : null,
      pieces: checkCount(pieces, { min: 1, max: PIECES_MAX }),
      reason: reason.trim() === "" ? "Say why: it is kept with the grant." : null,
      resellerId: null,
    },
    send: () => {
      const wanted = { offeringId: offering?.offeringId ?? 0, pieces: readCount(pieces) ?? 0, reason };
      return ask(api.allotments.post({ resellerId: person.accountId, ...wanted }, sentOnce(formKey)));
    },
    onSent: async ({ allotment }) => {
      await refresh();
      toast.done(`${person.name} may hand out ${formatOf(allotment.granted, "piece")} of ${allotment.offeringName}.`);
      onClose();
    },
  });
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title="Grant an allotment"
      description={`${person.name} may hand these out without paying the wholesale price.`}
      onSubmit={form.submit}
      footer={
        <Buttons onClose={onClose} isPending={form.isPending}>
          Grant
        </Buttons>
      }
    >
      <OfferingField offerings={offerings} value={offering} onValue={setOffering} error={form.errorOf("offeringId")} />
      <Field label="Pieces" error={form.errorOf("pieces")}>
        <TextInput value={pieces} onValue={setPieces} inputMode="numeric" className="figures" />
      </Field>
      <Field label="Reason" hint="One line, for the books." error={form.errorOf("reason")}>
        <TextInput value={reason} onValue={setReason} maxLength={REASON_CHARS_MAX} />
      </Field>
      {form.problem}
    </Dialog>
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
        toast.done(`${person.name} signs in with the password alone now.`);
      }}
    >
      Make sure that it is them who ask. They sign in with their password alone until they set up a new one.
    </Confirm>
  );
}
