import { ALLOTMENT_PIECES, REASON_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { formatApart, formatMoney, formatOf, parseUsd } from "../../format.ts";
import { type Person, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { checkCount, readCount, wrongAmount } from "../../shared/typed_numbers.ts";
import { Segmented } from "../../ui/choices.tsx";
import { CountField, DollarField, TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.tsx";
import { IdleMoney } from "../billing/idle_money.tsx";
import { type Offering, OfferingField, useOfferings } from "../billing/on_sale.tsx";
import { useBilling } from "../billing/queries.ts";

/** The dialogs that change what a person has: their balance, and a reseller's allotments. */

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
  const nanoUsd = BigInt(parseUsd(typed) ?? 0);
  return nanoUsd > available ? `Your balance has only ${formatApart(available, nanoUsd)[0]} available.` : null;
}

/** What a top-up does to a reseller's own balance. For an admin, whose top-up comes from no balance, only the currency. */
function ownBalanceHint(available: bigint | undefined, nanoUsd: bigint | null): string {
  if (available === undefined) return "In US dollars.";
  const now = `From your balance: ${formatApart(available, nanoUsd ?? available)[0]} available`;
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
