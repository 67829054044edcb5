import { t } from "@lingui/core/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { INCIDENT_BODY_CHARS_MAX, INCIDENT_TITLE_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { CheckboxList, Segmented, SegmentedField } from "../../ui/choices.tsx";
import { Field, NativeSelect, TextArea, TextField } from "../../ui/fields.tsx";
import { type DialogState, type Form, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { Banner } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";
import { componentWords, INCIDENTS_KEY, type Incident, readMoment, typedMoment } from "./incident_types.ts";
import { STATUS_KEY } from "./status_words.ts";

/** Publishing an incident or maintenance, and updates of it. */

const KINDS = [
  { value: "incident", label: t`Incident` },
  { value: "maintenance", label: t`Maintenance` },
] as const;
const IMPACTS = [
  { value: "degraded", label: t`Degraded` },
  { value: "outage", label: t`Outage` },
] as const;
const STATUSES = [
  { value: "investigating", label: t`Investigating` },
  { value: "identified", label: t`Identified` },
  { value: "monitoring", label: t`Monitoring` },
  { value: "resolved", label: t`Resolved` },
] as const;

type Fields = {
  kind: Incident["kind"];
  title: string;
  impact: (typeof IMPACTS)[number]["value"];
  status: (typeof STATUSES)[number]["value"];
  /** null: everything. */
  components: string[] | null;
  beginsAt: string;
  endsAt: string;
  body: string;
};
type Wrong = Record<keyof Fields, string | null>;

const EVERYTHING = ["api", "panel", "models"];

function wrongOf({ kind, title, components, beginsAt, endsAt, body }: Fields, needsBody: boolean): Wrong {
  const isPlanned = kind === "maintenance";
  return {
    kind: null,
    impact: null,
    status: null,
    title: isBlank(title) ? t`Enter a title.` : null,
    components: components?.length === 0 ? t`Choose at least one.` : null,
    beginsAt: isPlanned && beginsAt === "" ? t`Choose when it begins.` : null,
    endsAt: isPlanned && endsAt === "" ? t`Choose when it ends.` : null,
    body: needsBody && isBlank(body) ? t`Say what customers should know.` : null,
  };
}

function useSaved() {
  const client = useQueryClient();
  return async () => {
    await Promise.all([INCIDENTS_KEY, STATUS_KEY].map((queryKey) => client.invalidateQueries({ queryKey })));
  };
}

export function NewIncident({ open, onClose }: DialogState) {
  const formKey = useIdempotencyKey();
  const saved = useSaved();
  const first: Fields = {
    ...{ kind: "incident", title: "", impact: "degraded", status: "investigating", components: ["api"] },
    ...{ beginsAt: "", endsAt: "", body: "" },
  };
  const form = useForm({
    first,
    wrong: (values) => wrongOf(values, true),
    send: async ({ kind, title, impact, status, components, beginsAt, endsAt, body }) => {
      const isPlanned = kind === "maintenance";
      const [begins, ends] = [readMoment(beginsAt), readMoment(endsAt)];
      const written = {
        ...{ kind, title, body, components: components ?? EVERYTHING },
        ...(!isPlanned && { impact, status }),
        ...(begins !== undefined && { beginsAt: begins }),
        ...(ends !== undefined && (isPlanned || status === "resolved") && { endsAt: ends }),
      };
      const made = await ask(api.incidents.post(written, sentOnce(formKey)));
      await saved();
      return made;
    },
    onSent: () => {
      onClose();
      toast.done(t`It is on the status page.`);
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`New incident`}
      description={t`It is on the status page, and above every page of the panel while it is open, as soon as you publish it.`}
      submitLabel={t`Publish`}
    >
      <Segmented
        label={t`Kind`}
        value={form.values.kind}
        onValue={(kind) => form.set({ kind })}
        options={KINDS}
        className="justify-self-start"
      />
      <IncidentFields form={form} bodyLabel={t`What happens`} />
    </FormDialog>
  );
}

export function ChangeIncident({ open, onClose, incident }: DialogState & { incident: Incident }) {
  const saved = useSaved();
  const first: Fields = {
    kind: incident.kind,
    title: incident.title,
    impact: incident.impact ?? "degraded",
    status: STATUSES.find(({ value }) => value === incident.status)?.value ?? "investigating",
    components: incident.components,
    beginsAt: typedMoment(incident.beginsAt),
    endsAt: typedMoment(incident.endsAt),
    body: "",
  };
  const isPlanned = incident.kind === "maintenance";
  const form = useForm({
    first,
    wrong: (values) => ({ ...wrongOf(values, !isPlanned && values.status !== first.status), version: null }),
    send: async ({ title, impact, status, components, beginsAt, endsAt, body }) => {
      const [begins, ends] = [readMoment(beginsAt), readMoment(endsAt)];
      const changed = await ask(
        api.incidents({ id: incident.incidentId }).patch({
          ...{ version: incident.version, title },
          ...(components !== first.components && { components: components ?? EVERYTHING }),
          ...(!isPlanned && { impact, status }),
          ...(!isBlank(body) && { body }),
          // To the minute, so only what was changed is sent.
          ...(begins !== undefined && beginsAt !== first.beginsAt && { beginsAt: begins }),
          ...(ends !== undefined &&
            endsAt !== first.endsAt &&
            (isPlanned || status === "resolved") && { endsAt: ends }),
        }),
      );
      await saved();
      return changed;
    },
    onSent: () => {
      onClose();
      toast.done(t`The status page is up to date.`);
    },
  });
  const conflict = form.errorOf("version");
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Update: ${{ title: incident.title }}`}
      submitLabel={t`Publish update`}
    >
      {conflict && (
        <div role="alert">
          <Banner tone="warn" title={t`This was changed in the meantime`}>
            {conflict}
          </Banner>
        </div>
      )}
      <IncidentFields form={form} bodyLabel={t({ message: "Update", context: "noun" })} />
    </FormDialog>
  );
}

function IncidentFields({ form, bodyLabel }: { form: Form<Fields, keyof Fields>; bodyLabel: string }) {
  const { kind, impact, status, body } = form.values;
  const isPlanned = kind === "maintenance";
  return (
    <>
      <TextField label={t`Title`} required {...form.field("title")} maxLength={INCIDENT_TITLE_CHARS_MAX} />
      {!isPlanned && (
        <div className="grid items-start gap-4 sm:grid-cols-2">
          <Field label={t`State`}>
            <NativeSelect value={status} onValue={(next) => form.set({ status: next })} options={STATUSES} />
          </Field>
          <SegmentedField
            label={t`Impact`}
            value={impact}
            onValue={(next) => form.set({ impact: next })}
            options={IMPACTS}
          />
        </div>
      )}
      <Field label={bodyLabel} hint={t`Plain text.`} error={form.errorOf("body")}>
        <TextArea value={body} onValue={(next) => form.set({ body: next })} maxLength={INCIDENT_BODY_CHARS_MAX} />
      </Field>
      <AffectedField form={form} />
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <TextField
          label={t`Begins`}
          hint={isPlanned ? t`Your time.` : t`Your time. Empty: now.`}
          type="datetime-local"
          {...form.field("beginsAt")}
        />
        {(isPlanned || status === "resolved") && (
          <TextField
            label={t`Ends`}
            hint={isPlanned ? t`Your time.` : t`Your time. Empty: now.`}
            type="datetime-local"
            {...form.field("endsAt")}
          />
        )}
      </div>
    </>
  );
}

/** The components of the status page, and those that the incident has already. */
function AffectedField({ form }: { form: Form<Fields, keyof Fields> }) {
  const prices = useQuery({
    queryKey: ["model-prices"],
    queryFn: () => ask(api["model-prices"].get()),
  });
  const chosen = form.values.components ?? [];
  const models = prices.data?.models.map(({ id }) => `model:${id}`) ?? [];
  const values = [...new Set([...EVERYTHING, ...models, ...chosen])];
  return (
    <CheckboxList
      label={t`Affects`}
      allLabel={t`Everything`}
      value={form.values.components}
      onValue={(components) => form.set({ components })}
      options={values.map((value) => ({ value, label: componentWords(value) }))}
      error={form.errorOf("components")}
    />
  );
}
