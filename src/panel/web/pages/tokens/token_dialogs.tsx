import { useQuery, useQueryClient } from "@tanstack/react-query";
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
  { value: "30", label: "In 30 days" },
  { value: "90", label: "In 90 days" },
  { value: "365", label: "In a year" },
  { value: "never", label: "Never" },
] as const;
type Ends = (typeof ENDS)[number]["value"];

const OVERLAPS = [
  { value: "0", label: "Not at all", hint: "Requests with the old token get a 401 error immediately." },
  { value: String(HOUR_SECONDS), label: "1 hour" },
  { value: String(24 * HOUR_SECONDS), label: "24 hours" },
  { value: String(7 * 24 * HOUR_SECONDS), label: "7 days" },
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
      name: isBlank(name) ? "Enter a name, such as the name of the program." : null,
      scopes: chosen?.length === 0 ? "Choose what the token may do." : null,
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
    <FormDialog {...dialog} form={form} title="Create token" submitLabel="Create token">
      <TextField label="Name" {...form.field("name")} maxLength={API_TOKEN_NAME_CHARS_MAX} required />
      <CheckboxList
        label="What the token may do"
        allLabel="Everything that you may do"
        options={scopes.map((scope) => ({ value: scope, label: scopeWords(scope) }))}
        {...form.field("scopes")}
      />
      <Field label="Token expires" error={form.errorOf("expiresAt")}>
        <NativeSelect value={form.values.ends} onValue={(ends) => form.set({ ends })} options={ENDS} />
      </Field>
      <TextField
        label="Networks"
        optional
        mono
        hint="Addresses, or ranges such as 192.0.2.0/24, separated by commas. The token is refused from any other address."
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
      title={`Rotate token ${row.name}?`}
      description="You get a new token with the same settings. Replace the old one with it in your program."
      submitLabel="Rotate token"
    >
      <RadioList label="The old token keeps working for" options={OVERLAPS} {...form.field("overlapSeconds")} />
      <ProofFields form={form} {...ways} />
    </FormDialog>
  );
}

function explainLost<T>(sent: Promise<T>): Promise<T> {
  return explainRepeat(
    sent,
    "The token was created, but its secret got lost on the way. Revoke the new token in the list and create another.",
  );
}

/** Subjects of several words. */
const SUBJECT_WORDS: Readonly<Record<string, string>> = {
  sign_up: "sign-up",
  identity_providers: "identity providers",
};

/** "keys:write" as "keys, read and change", and "sign_up:read" as "sign-up, read". */
export function scopeWords(scope: string): string {
  const [subject = "", access] = scope.split(":");
  return `${SUBJECT_WORDS[subject] ?? subject}, ${access === "read" ? "read" : "read and change"}`;
}
