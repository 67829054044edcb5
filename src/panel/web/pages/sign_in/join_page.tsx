import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useParams } from "wouter";
import { PERSON_NAME_CHARS_MAX, TYPED_CODE_CHARS_MAX, TYPED_PASSWORD_CHARS_MAX } from "../../../../limits.ts";
import { ApiError, api, ask } from "../../api.ts";
import { Button } from "../../ui/buttons.tsx";
import { Field, PasswordField, TextField, TextInput } from "../../ui/fields.tsx";
import { type FieldState, focusInvalid, isBlank } from "../../ui/form.tsx";
import { FormFrame } from "../../ui/form_frame.tsx";
import { SignedOutPage } from "../../ui/page.tsx";
import { Loading, Skeleton } from "../../ui/states.tsx";
import { Instant } from "../../ui/time.tsx";
import { InvalidLink, isWorthRetrying } from "./link_page.tsx";
import { checkPassword, NewPassword } from "./new_password.tsx";
import { codeOf, credentialErrorOf, LinkProblem, openFresh, SignInProblem, useHostBrand } from "./signed_out.tsx";

/** The page of an invitation to an account: a new person chooses a name and a password, one who is known enters theirs. */

type Opened = NonNullable<Awaited<ReturnType<ReturnType<typeof api.join>["get"]>>["data"]>;

const MAY: Record<Opened["role"], string> = {
  owner: t`You may change everything in it.`,
  developer: t`You may manage its keys and webhooks.`,
  billing: t`You may buy for it and manage its payments.`,
  viewer: t`You may see everything in it.`,
};

export function JoinPage() {
  const { look, name: brand, support } = useHostBrand();
  const { token = "" } = useParams();
  const link = useQuery({
    queryKey: ["join", token],
    queryFn: () => ask(api.join({ token }).get()),
    // Loaded once: nothing may change while a password is typed.
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
    retry: isWorthRetrying,
  });
  if (codeOf(link.error) === "not_found")
    return <InvalidLink look={look} support={support} {...(link.error && { lead: link.error.message })} />;
  if (link.data === undefined)
    return (
      <SignedOutPage title={t`Invitation`} brand={look}>
        {link.error ? (
          <LinkProblem link={link} />
        ) : (
          <Loading className="grid gap-4">
            <Skeleton className="h-14" />
            <Skeleton className="h-20" />
          </Loading>
        )}
      </SignedOutPage>
    );
  const { accountName, role, expiresAt } = link.data;
  return (
    <SignedOutPage
      title={t`Join ${accountName}`}
      lead={`${t`You are invited to this account at ${brand}.`} ${MAY[role]}`}
      brand={look}
      footer={
        <p>
          <Trans>
            This link works once, until <Instant iso={expiresAt} />.
          </Trans>
        </p>
      }
    >
      <JoinForm token={token} link={link.data} brand={brand} />
    </SignedOutPage>
  );
}

function JoinForm({ token, link: { email, isNew }, brand }: { token: string; link: Opened; brand: string }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [code, setCode] = useState("");
  const [tries, setTries] = useState(0);
  const joining = useMutation({
    mutationFn: () =>
      ask(
        api
          .join({ token })
          .post({ password, ...(isNew && { name: name.trim() }), ...(code.trim() && { code: code.trim() }) }),
      ),
    onSuccess: () => openFresh("/"),
  });
  const { error } = joining;
  const asksCode = code !== "" || codeOf(error) === "second_factor_required";
  const refusedOf = (param: string) => (error instanceof ApiError && error.param === param ? error.message : null);
  const noName = isNew && isBlank(name) ? t`Enter your name.` : null;
  const noPassword = isNew ? checkPassword(password) : password === "" ? t`Enter your password.` : null;
  const credentialError = codeOf(error) === "second_factor_required" ? null : credentialErrorOf(error);
  const isOther = refusedOf("name") === null && refusedOf("password") === null && credentialError === null;
  const typed = { value: password, onValue: setPassword };
  useEffect(() => {
    if (tries > 0 || error !== null) focusInvalid();
  }, [tries, error]);
  return (
    <FormFrame
      onSubmit={() => {
        setTries(tries + 1);
        if (!joining.isPending && noName === null && noPassword === null) joining.mutate();
      }}
    >
      <Field label={t`E-mail`}>
        {/* For password managers, and to show whose invitation this is. */}
        <TextInput type="email" name="email" value={email} readOnly autoComplete="username" />
      </Field>
      {isNew ? (
        <NewPersonFields
          name={{ value: name, onValue: setName, error: (tries > 0 && noName) || refusedOf("name") }}
          password={{ ...typed, error: (tries > 0 && noPassword) || refusedOf("password") }}
          about={[name, email, brand]}
        />
      ) : (
        <KnownPersonFields
          password={{ ...typed, error: (tries > 0 && noPassword) || credentialError }}
          code={asksCode ? { value: code, onValue: setCode, error: null } : null}
        />
      )}
      <SignInProblem error={isOther && codeOf(error) !== "second_factor_required" ? error : null} />
      <Button type="submit" variant="primary" pending={joining.isPending || joining.isSuccess}>
        {t`Join`}
      </Button>
    </FormFrame>
  );
}

function NewPersonFields({
  name,
  password,
  about,
}: {
  name: FieldState;
  password: FieldState;
  about: readonly string[];
}) {
  return (
    <>
      <TextField label={t`Your name`} {...name} maxLength={PERSON_NAME_CHARS_MAX} autoComplete="name" />
      <NewPassword label={t`Password`} {...password} about={about} />
    </>
  );
}

/** `code`: null until the second factor is asked for. */
function KnownPersonFields({ password, code }: { password: FieldState; code: FieldState | null }) {
  return (
    <>
      <PasswordField
        label={t`Your password`}
        {...password}
        maxLength={TYPED_PASSWORD_CHARS_MAX}
        autoComplete="current-password"
      />
      {code && (
        <TextField
          label={t({ message: "Code", context: "to sign in" })}
          hint={t`From your authenticator app, or a recovery code.`}
          mono
          {...code}
          autoComplete="one-time-code"
          maxLength={TYPED_CODE_CHARS_MAX}
        />
      )}
    </>
  );
}
