import { t } from "@lingui/core/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { Subject } from "../../../../accounts/subjects.ts";
import { API_TOKEN_NAME_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, explainRepeat, sentOnce, useIdempotencyKey } from "../../api.ts";
import { CheckboxList, RadioList } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import { Field, NativeSelect, TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { firstProof, ProofFields, takeProof, wrongProof } from "../settings/confirm_person.tsx";
import { useHasPasskey } from "../settings/passkeys.tsx";
import { settingsQuery } from "../settings/queries.ts";
import { TOKENS_KEY, type Token } from "./queries.ts";

/** The dialogs that make and rotate a token. Both show a secret, so the person confirms who they are. */

const DAY_MS = 86_400_000;
const HOUR_SECONDS = 3_600;
const NETWORKS_CHARS_MAX = 2_000;

const ENDS = [
  { value: "30", label: t`In 30 days` },
  { value: "90", label: t`In 90 days` },
  { value: "365", label: t`In a year` },
  { value: "never", label: t({ message: "Never", context: "when a token expires" }) },
] as const;
type Ends = (typeof ENDS)[number]["value"];

const OVERLAPS = [
  {
    value: "0",
    label: t({ message: "Not at all", context: "how long the old token works" }),
    hint: t`Requests with the old token get a 401 error immediately.`,
  },
  { value: String(HOUR_SECONDS), label: t`1 hour` },
  { value: String(24 * HOUR_SECONDS), label: t`24 hours` },
  { value: String(7 * 24 * HOUR_SECONDS), label: t`7 days` },
] as const;
type Overlap = (typeof OVERLAPS)[number]["value"];

type Secret = { onSecret: (secret: string) => void };

/** What the person can confirm with. */
function useProofWays() {
  const settings = useQuery(settingsQuery);
  return { hasPasskey: useHasPasskey(), asksForCode: settings.data?.totpEnabled ?? false };
}

/** `scopes`: those that the person can give. */
export function CreateTokenDialog({
  scopes,
  onSecret,
  ...dialog
}: DialogState & Secret & { scopes: readonly string[] }) {
  const client = useQueryClient();
  const formKey = useIdempotencyKey();
  const ways = useProofWays();
  const first: { name: string; scopes: string[] | null; networks: string; ends: Ends } = {
    name: "",
    scopes: [],
    networks: "",
    ends: "90",
  };
  const form = useForm({
    first: { ...first, ...firstProof(ways.hasPasskey) },
    wrong: ({ name, scopes: chosen, networks: _, ends: __, ...proof }) => ({
      name: isBlank(name) ? t`Enter a name, such as the name of the program.` : null,
      scopes: chosen?.length === 0 ? t`Choose what the token may do.` : null,
      networks: null,
      expiresAt: null,
      ...wrongProof(proof, ways),
    }),
    send: async ({ name, scopes: chosen, networks, ends, ...typed }) => {
      const list = networks.split(/[\s,]+/).filter((one) => one !== "");
      const wanted = {
        name: name.trim(),
        scopes: chosen ?? [...scopes],
        networks: list.length === 0 ? null : list,
        expiresAt: ends === "never" ? null : new Date(nowMs() + Number(ends) * DAY_MS).toISOString(),
      };
      const proof = await takeProof(typed, ways);
      return await explainLost(ask(api.tokens.post({ ...wanted, proof }, sentOnce(formKey))));
    },
    onSent: async ({ secret }) => {
      dialog.onClose();
      onSecret(secret);
      await client.invalidateQueries({ queryKey: TOKENS_KEY });
    },
  });
  return (
    <FormDialog {...dialog} form={form} title={t`Create token`} submitLabel={t`Create token`}>
      <TextField label={t`Name`} {...form.field("name")} maxLength={API_TOKEN_NAME_CHARS_MAX} required />
      <CheckboxList
        label={t`What the token may do`}
        allLabel={t`Everything that you may do`}
        options={scopes.map((scope) => ({ value: scope, label: scopeWords(scope) }))}
        {...form.field("scopes")}
      />
      <Field label={t`Token expires`} error={form.errorOf("expiresAt")}>
        <NativeSelect value={form.values.ends} onValue={(ends) => form.set({ ends })} options={ENDS} />
      </Field>
      <TextField
        label={t`Networks`}
        optional
        mono
        hint={t`Addresses, or ranges such as 192.0.2.0/24, separated by commas. The token is refused from any other address.`}
        maxLength={NETWORKS_CHARS_MAX}
        {...form.field("networks")}
      />
      <ProofFields form={form} {...ways} />
    </FormDialog>
  );
}

/** Makes a new secret with the same settings. The old token keeps working for a chosen time. */
export function RotateTokenDialog({ row, onSecret, ...dialog }: DialogState & Secret & { row: Token }) {
  const client = useQueryClient();
  const formKey = useIdempotencyKey();
  const ways = useProofWays();
  const first: { overlapSeconds: Overlap } = { overlapSeconds: String(24 * HOUR_SECONDS) };
  const form = useForm({
    first: { ...first, ...firstProof(ways.hasPasskey) },
    wrong: ({ overlapSeconds: _, ...proof }) => ({ overlapSeconds: null, ...wrongProof(proof, ways) }),
    send: async ({ overlapSeconds, ...typed }) => {
      const wanted = { overlapSeconds: Number(overlapSeconds), proof: await takeProof(typed, ways) };
      return await explainLost(ask(api.tokens({ id: row.tokenId }).rotate.post(wanted, sentOnce(formKey))));
    },
    onSent: async ({ secret }) => {
      dialog.onClose();
      onSecret(secret);
      await client.invalidateQueries({ queryKey: TOKENS_KEY });
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Rotate token ${{ name: row.name }}?`}
      description={t`You get a new token with the same settings. Replace the old one with it in your program.`}
      submitLabel={t`Rotate token`}
    >
      <RadioList label={t`The old token keeps working for`} options={OVERLAPS} {...form.field("overlapSeconds")} />
      <ProofFields form={form} {...ways} />
    </FormDialog>
  );
}

function explainLost<T>(sent: Promise<T>): Promise<T> {
  return explainRepeat(
    sent,
    t`The token was created, but its secret got lost on the way. Revoke the new token in the list and create another.`,
  );
}

const SUBJECT_WORDS: Readonly<Record<string, string>> = {
  accounts: t`accounts`,
  members: t`members`,
  keys: t`keys`,
  packages: t`packages`,
  balances: t`balances`,
  usage: t`usage`,
  offerings: t`offerings`,
  prices: t`prices`,
  markups: t`markups`,
  orders: t`orders`,
  payments: t`payments`,
  vouchers: t`vouchers`,
  sign_up: t`sign-up`,
  incidents: t`incidents`,
  identity_providers: t`identity providers`,
  domains: t`domains`,
  models: t`models`,
  providers: t`providers`,
  webhooks: t`webhooks`,
} satisfies Record<Subject, string>;

/** "keys:write" as "keys, read and change", and "sign_up:read" as "sign-up, read". */
export function scopeWords(scope: string): string {
  const [name = "", access] = scope.split(":");
  const subject = SUBJECT_WORDS[name] ?? name;
  return access === "read" ? t`${subject}, read` : t`${subject}, read and change`;
}
