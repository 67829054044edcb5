import { plural, t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Check, Pencil } from "lucide-react";
import { i18n } from "#language";
import { BOUND_NAMES, type BoundName, byBound, MODEL_BOUNDS } from "../../../../catalog/model_bounds.ts";
import { MODEL_MARGIN_PERMILLE } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { formatCount } from "../../format.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { checkCount, readCount } from "../../shared/typed_numbers.ts";
import { Button } from "../../ui/buttons.tsx";
import { CountField, PercentField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, useForm } from "../../ui/form.tsx";
import { Facts, Section } from "../../ui/page.tsx";
import { Banner } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";
import { adviceText, changeText } from "./bound_texts.ts";
import type { Model } from "./catalog.tsx";
import { useSaved } from "./model_dialogs.tsx";

/** The bounds of a model: how many input tokens are reserved for what is no text. */

const PERMILLE = 1_000;
const PERMILLE_PER_PERCENT = 10;
const EXTRA_PERCENT_MAX = (MODEL_MARGIN_PERMILLE.max - PERMILLE) / PERMILLE_PER_PERCENT;

const TOKENS = { name: t`tokens`, count: (count: number) => plural(count, { one: "# token", other: "# tokens" }) };
const PIXELS = { name: t`pixels`, count: (count: number) => plural(count, { one: "# pixel", other: "# pixels" }) };
const unitOf = (name: BoundName) => (name === "imageTilePixels" ? PIXELS : TOKENS);

export function Bounds({ model, onChange }: { model: Model; onChange: () => void }) {
  const extra = (model.marginPermille - PERMILLE) / PERMILLE_PER_PERCENT;
  return (
    <Section
      title={t`Bounds`}
      description={t`What is reserved before a request is sent, beside its text and its output limit. What is not used is released when the answer is charged.`}
      action={
        <Button size="sm" icon={Pencil} onClick={onChange}>
          {t`Change bounds`}
        </Button>
      }
    >
      {model.advice.map((advice) => (
        <Advice key={advice.part} model={model} advice={advice} />
      ))}
      <Facts
        facts={[
          ...BOUND_NAMES.map((name) => {
            const { label } = MODEL_BOUNDS[name];
            return [i18n._(label), unitOf(name).count(model[name])] as const;
          }),
          [t`Reserve margin`, extra === 0 ? t`Nothing` : t`${{ percent: formatCount(extra) }}% of everything`],
        ]}
      />
    </Section>
  );
}

/** What answers used of what was reserved, and a button that sets the bounds that this suggests. */
function Advice({ model, advice }: { model: Model; advice: Model["advice"][number] }) {
  const client = useQueryClient();
  const apply = useMutation({
    mutationFn: async () => {
      await ask(api.admin.model.patch(advice.change, { query: { id: model.id } }));
      await client.invalidateQueries({ queryKey: ADMIN_KEY });
    },
    onSuccess: () => toast.done(t`The bounds of ${{ model: model.id }} are changed.`),
    onError: (error) => toast.failed(error, t`The bounds stay as they are.`),
  });
  const change = changeText(model, advice);
  if (change === undefined && advice.overruns === 0) return <p className="text-13 text-ink-2">{adviceText(advice)}</p>;
  return (
    <Banner
      tone={advice.overruns > 0 ? "warn" : "neutral"}
      title={adviceText(advice)}
      action={
        change !== undefined && (
          <Button size="sm" icon={Check} pending={apply.isPending} onClick={() => apply.mutate()}>
            {t`Apply`}
          </Button>
        )
      }
    >
      {change ?? t`Check the prices of the model, and the output limit field of its routes.`}
    </Banner>
  );
}

/** The bounds as typed; the margin as the percent above the bound. */
function typedOf(model: Model) {
  const margin = String((model.marginPermille - PERMILLE) / PERMILLE_PER_PERCENT);
  return { ...byBound((name) => String(model[name])), marginPermille: margin };
}
type Typed = ReturnType<typeof typedOf>;

function wrongOf(typed: Typed): Record<keyof Typed, string | null> {
  const isMargin = readPermille(typed.marginPermille) !== null;
  return {
    ...byBound((name) => checkCount(typed[name], MODEL_BOUNDS[name])),
    marginPermille: isMargin ? null : t`From 0 to ${{ max: formatCount(EXTRA_PERCENT_MAX) }}, with one decimal.`,
  };
}

export function EditBounds({ open, onClose, model }: DialogState & { model: Model }) {
  const saved = useSaved(onClose);
  const form = useForm({
    first: typedOf(model),
    wrong: wrongOf,
    send: ({ marginPermille, ...typed }) => {
      const bounds = byBound((name) => Number(readCount(typed[name])));
      const margin = PERMILLE + Number(readPermille(marginPermille));
      return ask(api.admin.model.patch({ ...bounds, marginPermille: margin }, { query: { id: model.id } }));
    },
    onSent: () => saved(t`The bounds of ${{ model: model.id }} are changed.`),
  });
  return (
    <FormDialog form={form} open={open} onClose={onClose} title={t`Change bounds`} size="lg" submitLabel={t`Save`}>
      <div className="grid items-start gap-4 sm:grid-cols-2">
        {BOUND_NAMES.map((name) => {
          const { label, hint } = MODEL_BOUNDS[name];
          return (
            <CountField
              key={name}
              label={i18n._(label)}
              hint={i18n._(hint)}
              required
              after={unitOf(name).name}
              {...form.field(name)}
            />
          );
        })}
        <PercentField
          label={t`Reserve margin`}
          hint={t`Added to the maximum cost of every request, output included.`}
          required
          {...form.field("marginPermille")}
        />
      </div>
    </FormDialog>
  );
}

/** Typed percent, "12.5", as permille; null if it is not valid. */
function readPermille(typed: string): number | null {
  const found = /^(\d{1,4})(?:\.(\d))?$/.exec(typed.trim());
  const permille = Number(found?.[1]) * PERMILLE_PER_PERCENT + Number(found?.[2] ?? 0);
  return permille <= EXTRA_PERCENT_MAX * PERMILLE_PER_PERCENT ? permille : null;
}
