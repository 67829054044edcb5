import { plural, t } from "@lingui/core/macro";
import { ALLOTMENT_PIECES, REASON_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { formatApart, formatMoney, parseUsd } from "../../format.ts";
import { type Person, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { checkCount, readCount, wrongAmount } from "../../shared/typed_numbers.ts";
import { Segmented } from "../../ui/choices.tsx";
import { CountField, DollarField, TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
import { IdleMoney } from "../billing/idle_money.tsx";
import { type Offering, OfferingField, useOfferings } from "../billing/on_sale.tsx";
import { useBilling } from "../billing/queries.ts";

/** The dialogs that change what a person has: their balance, and a reseller's allotments. */

const BALANCE_CHANGES = [
  { value: "top_up", label: t`Top-up` },
  { value: "correction", label: t`Correction` },
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
        isAdmin && isBlank(reason) ? t`Enter a reason. It is kept with the transaction, and they can read it.` : null,
      kind: null,
    }),
    send: ({ kind, amountNanoUsd, reason }) => {
      const wanted = { kind, amountNanoUsd: parseUsd(amountNanoUsd) ?? "", ...(!isBlank(reason) && { reason }) };
      return ask(api.people({ id: person.accountId }).balance.post(wanted, sentOnce(formKey)));
    },
    onSent: async ({ balance }) => {
      await refresh();
      toast.done(
        t`The balance of ${{ name: person.name }} is ${{ balance: formatMoney(balance.balanceNanoUsd) }} now.`,
      );
      onClose();
    },
  });
  const isCorrection = form.values.kind === "correction";
  const nanoUsd = amountOf(form.values);
  const topUp = nanoUsd === null ? t`Top up` : t`Top up ${{ amount: formatMoney(nanoUsd) }}`;
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={isAdmin ? t`Change the balance` : t`Top up`}
      description={t`${{ name: person.name }} has ${{ balance: formatMoney(person.balanceNanoUsd) }} now`}
      submitLabel={isCorrection ? t({ message: "Correct balance", context: "to change it" }) : topUp}
    >
      <IdleMoney person={person} />
      {isAdmin && (
        <Segmented
          label={t`Kind`}
          value={form.values.kind}
          onValue={(kind) => form.set({ kind })}
          options={BALANCE_CHANGES}
          className="justify-self-start"
        />
      )}
      <DollarField
        label={t`Amount`}
        hint={isCorrection ? t`In US dollars. A minus sign takes money away.` : ownBalanceHint(available, nanoUsd)}
        {...form.field("amountNanoUsd")}
        inputMode={isCorrection ? "text" : "decimal"}
      />
      <TextField
        label={t`Reason`}
        optional={!isAdmin}
        hint={t`One line, shown beside the transaction. They can read it.`}
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
  return nanoUsd > available
    ? t`Your balance has only ${{ available: formatApart(available, nanoUsd)[0] }} available.`
    : null;
}

/** What a top-up does to a reseller's own balance. For an admin, whose top-up comes from no balance, only the currency. */
function ownBalanceHint(available: bigint | undefined, nanoUsd: bigint | null): string {
  if (available === undefined) return t`In US dollars.`;
  const now = formatApart(available, nanoUsd ?? available)[0];
  return nanoUsd === null || nanoUsd > available
    ? t`From your balance: ${now} available.`
    : t`From your balance: ${now} available, ${{ later: formatMoney(available - nanoUsd) }} afterwards.`;
}

/** Grants pieces of an offering, which a reseller may assign without paying the wholesale price. */
export function GrantDialog({ open, onClose, person }: DialogState & { person: Person }) {
  const formKey = useIdempotencyKey();
  const refresh = useRefresh();
  const offerings = useOfferings({ enabled: open });
  const form = useForm({
    first: { offeringId: null as Offering | null, pieces: "", reason: "" },
    wrong: ({ offeringId, pieces, reason }) => ({
      offeringId: offeringId === null ? t`Choose an offering.` : null,
      pieces: checkCount(pieces, ALLOTMENT_PIECES),
      reason: isBlank(reason) ? t`Enter a reason. It is kept with the allotment.` : null,
      resellerId: null,
    }),
    send: ({ offeringId: offering, pieces, reason }) => {
      const wanted = { offeringId: offering?.offeringId ?? 0, pieces: readCount(pieces) ?? 0, reason };
      return ask(api.allotments.post({ resellerId: person.accountId, ...wanted }, sentOnce(formKey)));
    },
    onSent: async ({ allotment }) => {
      await refresh();
      toast.done(
        t`${{ name: person.name }} may assign ${plural({ pieces: allotment.granted }, { one: "# piece", other: "# pieces" })} of ${{ offering: allotment.offeringName }}.`,
      );
      onClose();
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Grant an allotment`}
      description={t`${{ name: person.name }} may assign these packages without paying the wholesale price.`}
      submitLabel={t({ message: "Grant", context: "to give" })}
    >
      <OfferingField offerings={offerings} {...form.field("offeringId")} />
      <CountField label={t`Pieces`} {...form.field("pieces")} />
      <TextField
        label={t`Reason`}
        hint={t`One line, kept with the allotment.`}
        {...form.field("reason")}
        maxLength={REASON_CHARS_MAX}
      />
    </FormDialog>
  );
}
