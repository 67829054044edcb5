import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { CATALOG_NAME_CHARS_MAX, ROUTE_PRIORITY, ROUTE_WEIGHT } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { checkCount, checkUsd, readCount, readMicroUsd } from "../../shared/typed_numbers.ts";
import { Checkbox } from "../../ui/choices.tsx";
import { CountField, DollarField, Field, NativeSelect, TextField } from "../../ui/fields.tsx";
import { type DialogState, type FieldState, type Form, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { choicesError } from "../../ui/states.tsx";
import type { Model, Route } from "./catalog.tsx";
import { FactFields, factsToSend, namesIn, typedFacts, wrongFacts } from "./fact_fields.tsx";
import { useSaved } from "./model_dialogs.tsx";
import { dollars, PRICE } from "./price_fields.tsx";

/**
 * The dialog of a route: its target, its place among the model's routes, its cost, and the parameters that are sent to
 * it.
 */

const PROVIDERS_PAGE_MAX = 500;

function routeOf(model: Model, route: Route | null) {
  return {
    providerId: route === null ? "" : String(route.providerId),
    upstreamModel: route?.upstreamModel ?? model.id,
    priority: String(route?.priority ?? 0),
    weight: String(route?.weight ?? 1),
    facts: typedFacts(route?.facts ?? {}),
    ownResponses: route?.ownResponses ?? false,
    allowedParams: route?.allowedParams.join(" ") ?? "",
    droppedParams: route?.droppedParams.join(" ") ?? "",
    costInputMicroUsd: dollars(route?.costInputMicroUsd),
    costOutputMicroUsd: dollars(route?.costOutputMicroUsd),
    costImageMicroUsd: dollars(route?.costImageMicroUsd),
  };
}
type TypedRoute = ReturnType<typeof routeOf>;
type RouteField = keyof TypedRoute | keyof ReturnType<typeof wrongFacts>;

function wrongRoute({
  providerId,
  upstreamModel,
  priority,
  weight,
  costInputMicroUsd: input,
  costOutputMicroUsd: output,
  costImageMicroUsd: image,
  facts,
}: TypedRoute): Record<RouteField, string | null> {
  const cost = { ...PRICE, optional: true };
  const together = t`Enter the costs of input and output, or neither.`;
  return {
    providerId: providerId === "" ? t`Choose a provider.` : null,
    upstreamModel: isBlank(upstreamModel) ? t`Enter the model's name at the provider.` : null,
    priority: checkCount(priority, ROUTE_PRIORITY),
    weight: checkCount(weight, ROUTE_WEIGHT),
    ...wrongFacts(facts),
    ownResponses: null,
    allowedParams: null,
    droppedParams: null,
    costInputMicroUsd: checkUsd(input, cost) ?? (isBlank(input) && !isBlank(output) ? together : null),
    costOutputMicroUsd: checkUsd(output, cost) ?? (isBlank(output) && !isBlank(input) ? together : null),
    costImageMicroUsd: checkUsd(image, cost),
  };
}

function routeFields({
  upstreamModel,
  priority,
  weight,
  facts,
  ownResponses,
  allowedParams,
  droppedParams,
  ...costs
}: TypedRoute) {
  return {
    costInputMicroUsd: readMicroUsd(costs.costInputMicroUsd),
    costOutputMicroUsd: readMicroUsd(costs.costOutputMicroUsd),
    costImageMicroUsd: readMicroUsd(costs.costImageMicroUsd),
    upstreamModel,
    priority: Number(readCount(priority)),
    weight: Number(readCount(weight)),
    facts: factsToSend(facts),
    ownResponses,
    allowedParams: namesIn(allowedParams),
    droppedParams: namesIn(droppedParams),
  };
}

/** Adds a route to a model, or with `route` changes that one. A route's provider cannot change. */
export function RouteDialog({ open, onClose, model, route }: DialogState & { model: Model; route: Route | null }) {
  const saved = useSaved(onClose);
  const formKey = useIdempotencyKey();
  const form = useForm({
    first: routeOf(model, route),
    wrong: wrongRoute,
    send: async (typed) => {
      const fields = routeFields(typed);
      if (route !== null) return await ask(api.admin.routes({ id: route.id }).patch(fields));
      const added = { modelId: model.id, providerId: Number(typed.providerId), ...fields };
      return await ask(api.admin.routes.post(added, sentOnce(formKey)));
    },
    onSent: () => saved(route === null ? t`The route is added.` : t`The route is changed.`),
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={route === null ? t`Add route` : t`Change the route to ${{ provider: route.providerName }}`}
      description={t`A provider that answers requests for ${{ model: model.id }}.`}
      submitLabel={route === null ? t`Add route` : t`Save`}
    >
      <RouteFields form={form} isNew={route === null} isImage={model.modality === "image"} />
      <Checkbox
        label={t`The provider has /responses for this model`}
        hint={t`Requests for POST /v1/responses are sent there. Otherwise they are translated to chat completions.`}
        checked={form.values.ownResponses}
        onValue={(ownResponses) => form.set({ ownResponses })}
      />
      <FactFields
        typed={form.values.facts}
        from="provider"
        says={route?.providerTakes}
        errorOf={form.errorOf}
        onChange={(facts) => form.set({ facts })}
      />
      <TextField
        label={t`More parameters`}
        optional
        hint={t`Sent to the provider in addition to those in the API guide. Separate names by spaces, for example: documents reasoning.max_tokens. Customers are not charged for what they cost.`}
        mono
        {...form.field("allowedParams")}
      />
      <TextField
        label={t`Parameters not sent`}
        optional
        hint={t`The provider does not take them, so requests are sent to it without them, for example: reasoning_effort parallel_tool_calls. The answer's header x-dropped-params names them.`}
        mono
        {...form.field("droppedParams")}
      />
    </FormDialog>
  );
}

type RouteForm = Form<TypedRoute, RouteField>;

function RouteFields({ form, isNew, isImage }: { form: RouteForm; isNew: boolean; isImage: boolean }) {
  return (
    <div className="grid items-start gap-4 sm:grid-cols-2">
      {isNew && <ProviderField {...form.field("providerId")} />}
      <TextField
        label={t`Name at the provider`}
        hint={t`The model's id in the provider's own list.`}
        required
        mono
        {...form.field("upstreamModel")}
        maxLength={CATALOG_NAME_CHARS_MAX}
        {...(!isNew && { className: "sm:col-span-2" })}
      />
      <CountField
        label={t`Priority`}
        hint={t`The lowest number is tried first.`}
        required
        // A phone's numeric keyboard has no minus.
        inputMode="text"
        {...form.field("priority")}
      />
      <CountField
        label={t`Weight`}
        hint={t`Its share among routes of the same priority.`}
        required
        {...form.field("weight")}
      />
      <CostFields form={form} isImage={isImage} />
    </div>
  );
}

/** What the provider charges the operator. */
function CostFields({ form, isImage }: { form: RouteForm; isImage: boolean }) {
  return isImage ? (
    <DollarField
      label={t`Cost of an image`}
      optional
      hint={t`What the provider charges you. Used to choose a route by price.`}
      {...form.field("costImageMicroUsd")}
    />
  ) : (
    <>
      <DollarField
        label={t`Cost of input`}
        optional
        hint={t`What the provider charges you per million tokens. Used to choose a route by price.`}
        {...form.field("costInputMicroUsd")}
      />
      <DollarField
        label={t`Cost of output`}
        optional
        hint={t`The same for output.`}
        {...form.field("costOutputMicroUsd")}
      />
    </>
  );
}

function ProviderField({ error, ...select }: FieldState) {
  const providers = useQuery({
    queryKey: [...ADMIN_KEY, "providers", "names"],
    queryFn: () => ask(api.admin.providers.get({ query: { limit: PROVIDERS_PAGE_MAX } })),
  });
  const options = (providers.data?.providers ?? []).map(({ id, name, enabled }) => ({
    value: String(id),
    label: name,
    ...(!enabled && { hint: t({ message: "off", context: "a provider that is switched off" }) }),
  }));
  return (
    <Field label={t`Provider`} error={error ?? choicesError(providers)} required>
      <NativeSelect {...select} options={[{ value: "", label: t`Choose…`, disabled: true }, ...options]} />
    </Field>
  );
}
