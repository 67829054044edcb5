import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery } from "@tanstack/react-query";
import { solveChallenge } from "altcha-lib";
import { deriveKey } from "altcha-lib/algorithms/web/pbkdf2";
import { Gift, MailCheck } from "lucide-react";
import { useEffect, useState } from "react";
import { PERSON_NAME_CHARS_MAX } from "../../../../limits.ts";
import { ApiError, api, ask } from "../../api.ts";
import { formatMoney } from "../../format.ts";
import { Button, ButtonLink, TextLink } from "../../ui/buttons.tsx";
import { Checkbox } from "../../ui/choices.tsx";
import { EmailField, TextField } from "../../ui/fields.tsx";
import { focusInvalid, isBlank, isEmail } from "../../ui/form.tsx";
import { FormFrame } from "../../ui/form_frame.tsx";
import { SignedOutPage } from "../../ui/page.tsx";
import { Banner, ErrorState, Loading, Skeleton } from "../../ui/states.tsx";
import { Help } from "./help.tsx";
import { SignInProblem, useHostBrand } from "./signed_out.tsx";

/**
 * Signing up. The page says the same for every address, so that nobody learns who has an account. Before the form is sent, the browser
 * proves some work, which takes about a second.
 */

type SignUpForm = NonNullable<Awaited<ReturnType<(typeof api)["sign-up"]["get"]>>["data"]>;
type Typed = { name: string; email: string; accepted: boolean };

export function SignUpPage() {
  const { look, name, support } = useHostBrand();
  const form = useQuery({
    queryKey: ["sign-up", "form"],
    queryFn: () => ask(api["sign-up"].get()),
    // Loaded once: nothing may change while the form is filled in.
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
  });
  const sending = useMutation({ mutationFn: send });
  if (sending.isSuccess) return <CheckMail email={sending.variables.email.trim()} />;
  const title = t`Sign up`;
  if (form.data === undefined)
    return (
      <SignedOutPage title={title} brand={look}>
        {form.error ? (
          <ErrorState error={form.error} onRetry={() => void form.refetch()} />
        ) : (
          <Loading className="grid gap-4">
            <Skeleton className="h-14" />
            <Skeleton className="h-14" />
            <Skeleton className="h-9" />
          </Loading>
        )}
      </SignedOutPage>
    );
  if (!form.data.isOpen)
    return (
      <SignedOutPage
        title={title}
        lead={t`No one can sign up here at the moment.`}
        brand={look}
        footer={<Help support={support}>{t`Want an account?`}</Help>}
      >
        <ButtonLink href="/sign-in">{t`Go to sign-in`}</ButtonLink>
      </SignedOutPage>
    );
  return (
    <SignedOutPage
      title={title}
      lead={t`At ${name}. We send a link to your e-mail address; with it you choose a password.`}
      brand={look}
      footer={
        <p>
          <Trans>
            Have an account? <TextLink href="/sign-in">Sign in</TextLink>
          </Trans>
        </p>
      }
    >
      {form.data.trial && <TrialNotice trial={form.data.trial} />}
      <SignUpFields form={form.data} sending={sending} />
    </SignedOutPage>
  );
}

/** Solves a new challenge, and sends the form. */
async function send({ name, email, accepted }: Typed) {
  const challenge = await ask(api["sign-up"].challenge.get());
  const { parameters, signature } = challenge;
  const solution = await solveChallenge({ challenge: { parameters, signature }, deriveKey });
  if (solution === null) throw new Error(t`Your browser was too slow. Try again.`);
  const { counter, derivedKey } = solution;
  const proof = { challenge: { parameters: { ...parameters }, signature }, solution: { counter, derivedKey } };
  return ask(api["sign-up"].post({ name: name.trim(), email: email.trim(), accepted, proof }));
}

function TrialNotice({ trial: { name, amountNanoUsd } }: { trial: NonNullable<SignUpForm["trial"]> }) {
  return (
    <Banner tone="ok" icon={Gift}>
      <span className="break-words text-ink">
        {amountNanoUsd === null
          ? t`New accounts start with the package ${{ name: name ?? "" }}, once per person.`
          : t`New accounts start with a balance of ${{ amount: formatMoney(amountNanoUsd) }}, once per person.`}
      </span>
    </Banner>
  );
}

type SendingForm = { mutate: (typed: Typed) => void; isPending: boolean; error: Error | null };

/** What is typed, and the errors of the page and of the server, each until its field is changed. */
function useTyped({ error }: Pick<SendingForm, "error">) {
  const [typed, setTyped] = useState<Typed>({ name: "", email: "", accepted: false });
  const [tries, setTries] = useState(0);
  const [changed, setChanged] = useState<readonly string[]>([]);
  const wrong = {
    name: isBlank(typed.name) ? t`Enter your name.` : null,
    email: isEmail(typed.email) ? null : t`Enter your e-mail address.`,
    accepted: typed.accepted ? null : t`Accept both to sign up.`,
  };
  const sentError = (name: string) => (error instanceof ApiError && error.param === name ? error.message : null);
  useEffect(() => {
    if (tries > 0 || error !== null) focusInvalid();
  }, [tries, error]);
  return {
    typed,
    change: (part: Partial<Typed>) => {
      setTyped((before) => ({ ...before, ...part }));
      setChanged((before) => [...before, ...Object.keys(part)]);
    },
    errorOf: (name: keyof typeof wrong) => !changed.includes(name) && ((tries > 0 && wrong[name]) || sentError(name)),
    /** Whether the server's error is shown at a field. */
    isOfField: Object.keys(wrong).some((name) => sentError(name) !== null),
    /** Notes an attempt to send the form. Returns whether the form can be sent. */
    attempt: () => {
      setTries(tries + 1);
      setChanged([]);
      return Object.values(wrong).every((one) => one === null);
    },
  };
}

function SignUpFields({ form, sending: { mutate, isPending, error } }: { form: SignUpForm; sending: SendingForm }) {
  const { typed, change, errorOf, isOfField, attempt } = useTyped({ error });
  return (
    <FormFrame onSubmit={() => attempt() && !isPending && mutate(typed)}>
      <TextField
        label={t`Name`}
        value={typed.name}
        onValue={(name) => change({ name })}
        error={errorOf("name")}
        name="name"
        autoComplete="name"
        maxLength={PERSON_NAME_CHARS_MAX}
        autoFocus
      />
      <EmailField
        label={t`E-mail`}
        value={typed.email}
        onValue={(email) => change({ email })}
        error={errorOf("email")}
        name="email"
        autoComplete="username"
      />
      <Checkbox
        label={
          <Trans>
            I accept the{" "}
            <TextLink href={form.termsUrl ?? ""} target="_blank">
              terms
            </TextLink>{" "}
            and the{" "}
            <TextLink href={form.privacyUrl ?? ""} target="_blank">
              privacy policy
            </TextLink>
            .
          </Trans>
        }
        checked={typed.accepted}
        onValue={(accepted) => change({ accepted })}
        error={errorOf("accepted")}
      />
      <SignInProblem error={isOfField ? null : error} limited={t`Too many requests from your network`} />
      <Button type="submit" variant="primary" pending={isPending}>
        {t`Sign up`}
      </Button>
    </FormFrame>
  );
}

function CheckMail({ email }: { email: string }) {
  const { look, support } = useHostBrand();
  return (
    <SignedOutPage
      title={t`Check your mail`}
      brand={look}
      footer={<Help support={support}>{t`No mail? Check your spam folder.`}</Help>}
    >
      <Banner tone="ok" icon={MailCheck}>
        <span className="break-words text-ink">{t`We have sent a mail to ${email}. Its link works once, for 24 hours.`}</span>
      </Banner>
      <ButtonLink href="/sign-in">{t`Go to sign-in`}</ButtonLink>
    </SignedOutPage>
  );
}
