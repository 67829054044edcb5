import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Download } from "lucide-react";
import { useState } from "react";
import { VOUCHER_CODES, VOUCHER_NAME_CHARS_MAX, VOUCHER_USES } from "../../../../limits.ts";
import { api, ask, explainRepeat, sentOnce, useIdempotencyKey } from "../../api.ts";
import { formatCount, parseUsd } from "../../format.ts";
import { saveAs } from "../../shared/download.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { PAY_WITH } from "../../shared/pay_with.ts";
import { checkCount, checkPrice, readCount } from "../../shared/typed_numbers.ts";
import { Button } from "../../ui/buttons.tsx";
import { Segmented, SegmentedField } from "../../ui/choices.tsx";
import { OnceDialog } from "../../ui/copy_field.tsx";
import { CountField, DollarField, TextField } from "../../ui/fields.tsx";
import { type DialogState, type Form, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { ScrollingCode } from "../../ui/scrolling.tsx";
import { Banner } from "../../ui/states.tsx";
import { type Offering, OfferingField, useOfferings } from "../billing/on_sale.tsx";
import { type Batch, codesText } from "./voucher_words.tsx";

/** Making a batch of vouchers, and its codes, which are shown once. */

const FOR = [
  { value: "package", label: t`Package` },
  { value: "amount", label: t`Amount` },
] as const;

const SHOWN_CODES = 5;
const CODES_LOST = t`The vouchers were created, but their codes got lost on the way. Revoke the new batch in the list and create another.`;

type Made = { batch: Batch; csv: string };

const FIRST = {
  kind: "package" as (typeof FOR)[number]["value"],
  name: "",
  offeringId: null as Offering | null,
  amountNanoUsd: "",
  payWith: "balance" as (typeof PAY_WITH)[number]["value"],
  codes: "10",
  usesPerCode: "1",
  endsAt: "",
};

export function CreateVouchers({ open, onClose, onMade }: DialogState & { onMade: (made: Made) => void }) {
  const { role } = useViewer();
  const refresh = useRefresh();
  const form = useForm({
    first: FIRST,
    wrong: ({ kind, name, offeringId, amountNanoUsd, codes, usesPerCode, endsAt }) => ({
      kind: null,
      name: isBlank(name) ? t`Enter a name, so that you find the batch again.` : null,
      offeringId: kind === "package" && offeringId === null ? t`Choose an offering.` : null,
      amountNanoUsd: kind === "amount" ? checkPrice(amountNanoUsd) : null,
      payWith: null,
      codes: checkCount(codes, VOUCHER_CODES),
      usesPerCode: checkCount(usesPerCode, VOUCHER_USES),
      endsAt: isBlank(endsAt) ? t`Choose the last day.` : null,
    }),
    send: useSendBatch(),
    onSent: (made) => {
      onClose();
      onMade(made);
      void refresh();
    },
  });
  const { kind } = form.values;
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Create vouchers`}
      description={
        role === "reseller"
          ? t`You pay when a customer redeems a code, as if you fulfilled an order. If you cannot, the code stays unused.`
          : t`For resellers, and for customers without a reseller. No balance is charged when a code is redeemed.`
      }
      submitLabel={t`Create codes`}
    >
      <Segmented
        label={t`What a code is for`}
        value={kind}
        onValue={(next) => form.set({ kind: next })}
        options={FOR}
        className="justify-self-start"
      />
      <WorthFields form={form} isReseller={role === "reseller"} />
      <TextField
        label={t`Name`}
        hint={t`Only you see it.`}
        {...form.field("name")}
        maxLength={VOUCHER_NAME_CHARS_MAX}
        placeholder={t`Spring offer`}
      />
      <div className="grid items-start gap-4 sm:grid-cols-3">
        <CountField
          label={t`Codes`}
          hint={t`At most ${{ count: formatCount(VOUCHER_CODES.max) }}.`}
          {...form.field("codes")}
        />
        <CountField
          label={t`Uses of each`}
          hint={t`Each customer can use a code once.`}
          {...form.field("usesPerCode")}
        />
        <TextField label={t`Last day`} hint={t`Until its end, your time.`} type="date" {...form.field("endsAt")} />
      </div>
    </FormDialog>
  );
}

function WorthFields({ form, isReseller }: { form: Form<typeof FIRST, keyof typeof FIRST>; isReseller: boolean }) {
  const offerings = useOfferings();
  if (form.values.kind === "amount")
    return (
      <DollarField
        label={t`Amount`}
        hint={t`What a code adds to a balance, in US dollars.`}
        {...form.field("amountNanoUsd")}
      />
    );
  return (
    <>
      <OfferingField offerings={offerings} {...form.field("offeringId")} />
      {isReseller && (
        <SegmentedField
          label={t`Paid from`}
          value={form.values.payWith}
          onValue={(next) => form.set({ payWith: next })}
          options={PAY_WITH}
        />
      )}
    </>
  );
}

function useSendBatch() {
  const { role } = useViewer();
  const formKey = useIdempotencyKey();
  return async ({ kind, name, offeringId, amountNanoUsd, payWith, codes, usesPerCode, endsAt }: typeof FIRST) => {
    const worth =
      kind === "package"
        ? { offeringId: offeringId?.offeringId ?? 0, ...(role === "reseller" && { payWith }) }
        : { amountNanoUsd: parseUsd(amountNanoUsd) ?? "" };
    const batch = {
      name: name.trim(),
      ...worth,
      codes: readCount(codes) ?? 0,
      usesPerCode: readCount(usesPerCode) ?? 0,
      endsAt: new Date(`${endsAt}T23:59:59`).toISOString(),
    };
    return explainRepeat(ask(api.vouchers.post(batch, sentOnce(formKey))), CODES_LOST);
  };
}

/** The codes of a new batch, which can be downloaded as CSV only now. */
export function CodesOnce({ onDone, batch, csv }: Made & { onDone: () => void }) {
  const [isSaved, setSaved] = useState(false);
  const codes = csv
    .split("\r\n")
    .slice(1, -1)
    .map((line) => line.split(",")[1] ?? "");
  const save = (
    <Button
      variant="primary"
      icon={Download}
      onClick={() => {
        saveAs(new Blob([csv], { type: "text/csv" }), `vouchers-${batch.batchId}.csv`);
        setSaved(true);
      }}
    >
      <Trans>Download CSV</Trans>
    </Button>
  );
  return (
    <OnceDialog
      open
      title={codesText(batch)}
      isSafe={isSaved}
      closeEarly={t`Close without the codes? They cannot be shown again.`}
      keep={save}
      onDone={onDone}
    >
      <Banner tone="warn">
        <span className="text-ink">
          <Trans>The codes are shown only now. Store the file securely: anyone who has a code can redeem it.</Trans>
        </span>
      </Banner>
      <ScrollingCode className="rounded-md bg-sunken p-3 text-13">
        {[...codes.slice(0, SHOWN_CODES), ...(codes.length > SHOWN_CODES ? ["…"] : [])].join("\n")}
      </ScrollingCode>
      <div>{save}</div>
    </OnceDialog>
  );
}
