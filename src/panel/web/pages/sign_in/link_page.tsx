import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useParams } from "wouter";
import { ApiError, api, ask } from "../../api.ts";
import type { BrandLook } from "../../ui/brand_mark.tsx";
import { Button, ButtonLink } from "../../ui/buttons.tsx";
import { Field, TextInput } from "../../ui/fields.tsx";
import { focusInvalid } from "../../ui/form.tsx";
import { FormFrame } from "../../ui/form_frame.tsx";
import { SignedOutPage } from "../../ui/page.tsx";
import { Loading, Skeleton } from "../../ui/states.tsx";
import { Instant } from "../../ui/time.tsx";
import { Help } from "./help.tsx";
import { checkPassword, NewPassword } from "./new_password.tsx";
import { codeOf, LinkProblem, openFresh, type Sending, SignInProblem, useHostBrand } from "./signed_out.tsx";

/** The pages of a link that was handed over: an invitation, or a password reset. */

const BAD_LINK_RETRIES_MAX = 2;

export function InvitePage() {
  return <LinkPage title={t`Welcome`} />;
}

export function ResetPage() {
  return <LinkPage title={t`New password`} />;
}

/** The page of a sign-up: with the password that is chosen here, the account is made. */
export function ConfirmPage() {
  return <LinkPage title={t`Almost done`} />;
}

/** A refused request is not repeated. */
export function isWorthRetrying(failures: number, error: Error): boolean {
  return failures < BAD_LINK_RETRIES_MAX && !(error instanceof ApiError && error.status > 0 && error.status < 500);
}

type OpenedLink = NonNullable<Awaited<ReturnType<ReturnType<typeof api.links>["get"]>>["data"]>;

/** `title` is shown until the link is loaded. */
function LinkPage({ title }: { title: string }) {
  const { look, name, support } = useHostBrand();
  const { token = "" } = useParams();
  const link = useQuery({
    queryKey: ["links", token],
    queryFn: () => ask(api.links({ token }).get()),
    // Loaded once: nothing may change while a password is typed.
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
    retry: isWorthRetrying,
  });
  const setting = useMutation({
    mutationFn: (password: string) => ask(api.links({ token }).post({ password })),
    onSuccess: ({ signIn }) => signIn || openFresh("/"),
  });
  if (setting.data?.signIn) return <PasswordSet look={look} />;
  const error = codeOf(setting.error) === "not_found" ? setting.error : link.error;
  if (codeOf(error) === "not_found")
    return <InvalidLink look={look} support={support} {...(error && { lead: error.message })} />;
  if (error) {
    return (
      <SignedOutPage title={title} brand={look}>
        <LinkProblem link={link} />
      </SignedOutPage>
    );
  }
  if (link.data === undefined) {
    return (
      <SignedOutPage title={title} brand={look}>
        <Loading className="grid gap-4">
          <Skeleton className="h-14" />
          <Skeleton className="h-20" />
          <Skeleton className="h-9" />
        </Loading>
      </SignedOutPage>
    );
  }
  return (
    <SignedOutPage
      {...wordsOf(link.data, name)}
      brand={look}
      footer={
        <p>
          <Trans>
            This link works once, until <Instant iso={link.data.expiresAt} />.
          </Trans>
        </p>
      }
    >
      <LinkForm
        link={link.data}
        brand={name}
        isPending={setting.isPending || setting.isSuccess}
        error={setting.error}
        onPassword={setting.mutate}
      />
    </SignedOutPage>
  );
}

function wordsOf({ kind, name }: OpenedLink, brand: string): { title: string; lead: string } {
  if (kind === "invitation")
    return { title: t`Welcome, ${name}`, lead: t`You are invited to ${brand}. Choose a password to sign in.` };
  if (kind === "sign_up")
    return { title: t`Welcome, ${name}`, lead: t`Your address is confirmed. Choose a password to begin at ${brand}.` };
  return { title: t`New password`, lead: t`Your old password stops working, and every device is signed out.` };
}

function LinkForm({
  link: { name, email },
  brand,
  isPending,
  error,
  onPassword,
}: Sending & { link: OpenedLink; brand: string; onPassword: (password: string) => void }) {
  const [password, setPassword] = useState("");
  const [tries, setTries] = useState(0);
  const refused = error instanceof ApiError && error.param === "password" ? error.message : null;
  useEffect(() => {
    if (tries > 0 || refused !== null) focusInvalid();
  }, [tries, refused]);
  return (
    <FormFrame
      onSubmit={() => {
        setTries(tries + 1);
        if (!isPending && checkPassword(password) === null) onPassword(password);
      }}
    >
      <Field label={t`E-mail`}>
        {/* For password managers, and to show whose password this is. */}
        <TextInput type="email" name="email" value={email} readOnly autoComplete="username" />
      </Field>
      <NewPassword
        label={t`Password`}
        value={password}
        onValue={setPassword}
        error={(tries > 0 && checkPassword(password)) || refused}
        about={[name, email, brand]}
      />
      <SignInProblem error={refused === null ? error : null} />
      <Button type="submit" variant="primary" pending={isPending}>
        {t`Set password and sign in`}
      </Button>
    </FormFrame>
  );
}

/** Shown when the second factor is on: a link does not replace it. */
function PasswordSet({ look }: { look: BrandLook | null }) {
  return (
    <SignedOutPage
      title={t`Password set`}
      lead={t`Sign in with it and a code from your authenticator app.`}
      brand={look}
    >
      <ButtonLink href="/sign-in" variant="primary">
        {t`Sign in`}
      </ButtonLink>
    </SignedOutPage>
  );
}

export function InvalidLink({
  look,
  support,
  lead = t`The link was used, has expired, or was replaced by a newer one.`,
}: {
  look: BrandLook | null;
  support: string | null;
  lead?: string;
}) {
  return (
    <SignedOutPage
      title={t`This link no longer works`}
      lead={lead}
      brand={look}
      footer={<Help support={support}>{t`Need a new link?`}</Help>}
    >
      <ButtonLink href="/sign-in">{t`Go to sign-in`}</ButtonLink>
    </SignedOutPage>
  );
}
