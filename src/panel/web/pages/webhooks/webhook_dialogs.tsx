import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQueryClient } from "@tanstack/react-query";
import { WEBHOOK_OVERLAP_HOURS, WEBHOOK_URL_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { checkCount, readCount } from "../../shared/typed_numbers.ts";
import { Checkbox } from "../../ui/choices.tsx";
import { CountField, FieldError, TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
import { kindWords } from "../messages/message_words.ts";
import { type Endpoint, WEBHOOKS_KEY } from "./webhook_types.ts";

/** Adds a webhook's endpoint, changes what it is called for, and gives it a new secret. */

type Secret = { onSecret: (secret: string) => void };

export function EndpointDialog({
  open,
  onClose,
  kinds,
  edited,
  onSecret,
}: DialogState & Secret & { kinds: readonly string[]; edited: Endpoint | null }) {
  const client = useQueryClient();
  const formKey = useIdempotencyKey();
  const form = useForm({
    first: { url: edited?.url ?? "", kinds: edited?.kinds ?? [...kinds] },
    wrong: ({ url, kinds: chosen }) => ({
      url: isBlank(url) ? t`Enter the URL of your server, such as https://example.com/hooks.` : null,
      kinds: chosen.length === 0 ? t`Choose at least one event.` : null,
    }),
    send: async ({ url, kinds: chosen }) => {
      const made =
        edited === null ? await ask(api.webhooks.post({ url: url.trim(), kinds: chosen }, sentOnce(formKey))) : null;
      if (edited !== null) await ask(api.webhooks({ id: edited.endpointId }).patch({ kinds: chosen }));
      await client.invalidateQueries({ queryKey: WEBHOOKS_KEY });
      return made?.secret ?? null;
    },
    onSent: (secret) => {
      onClose();
      if (secret === null) toast.done(t`Events saved.`);
      else onSecret(secret);
    },
  });
  const { kinds: chosen } = form.values;
  const error = form.errorOf("kinds");
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={edited === null ? t`Add endpoint` : t`Change events`}
      submitLabel={edited === null ? t`Add endpoint` : t`Save events`}
    >
      <TextField
        label="URL"
        {...(edited === null && { hint: t`Begins with https:// and is reachable on the internet.` })}
        mono
        required
        readOnly={edited !== null}
        {...form.field("url")}
        maxLength={WEBHOOK_URL_CHARS_MAX}
      />
      <fieldset className="grid gap-1" aria-describedby={error ? "webhook-kinds-error" : undefined}>
        <legend className="mb-1 text-13 font-medium">
          <Trans>Events</Trans>
        </legend>
        {kinds.map((kind) => (
          <Checkbox
            key={kind}
            label={
              <>
                {kindWords(kind)} <span className="font-mono text-12 text-ink-3">{kind}</span>
              </>
            }
            checked={chosen.includes(kind)}
            onValue={(isOn) =>
              form.set({ kinds: kinds.filter((each) => (each === kind ? isOn : chosen.includes(each))) })
            }
          />
        ))}
        {error && <FieldError id="webhook-kinds-error">{error}</FieldError>}
      </fieldset>
    </FormDialog>
  );
}

export function RotateDialog({ open, onClose, endpoint, onSecret }: DialogState & Secret & { endpoint: Endpoint }) {
  const client = useQueryClient();
  const formKey = useIdempotencyKey();
  const form = useForm({
    first: { overlapHours: "24" },
    wrong: ({ overlapHours }) => ({ overlapHours: checkCount(overlapHours, WEBHOOK_OVERLAP_HOURS) }),
    send: async ({ overlapHours }) => {
      const hours = { overlapHours: readCount(overlapHours) ?? 0 };
      const { secret } = await ask(api.webhooks({ id: endpoint.endpointId }).rotate.post(hours, sentOnce(formKey)));
      await client.invalidateQueries({ queryKey: WEBHOOKS_KEY });
      return secret;
    },
    onSent: (secret) => {
      onClose();
      onSecret(secret);
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`New secret`}
      description={t`Until the old secret ends, each call is signed with both. Replace it on your server in that time.`}
      submitLabel={t`Create new secret`}
    >
      <CountField label={t`The old secret works for`} after={t`more hours`} required {...form.field("overlapHours")} />
    </FormDialog>
  );
}
