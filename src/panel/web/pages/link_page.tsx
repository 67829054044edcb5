import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useParams } from "wouter";
import { ApiError, api, ask } from "../api.ts";
import type { BrandLook } from "../ui/brand_mark.tsx";
import { Button, ButtonLink } from "../ui/buttons.tsx";
import { Field, TextInput } from "../ui/fields.tsx";
import { focusInvalid } from "../ui/form.tsx";
import { DoorPage } from "../ui/page.tsx";
import { ErrorState, Loading, Skeleton } from "../ui/states.tsx";
import { Instant } from "../ui/time.tsx";
import { checkPassword, NewPassword } from "./new_password.tsx";
import { codeOf, DoorProblem, type FormState, goOn, Help, useDoorBrand } from "./signed_out.tsx";

/** What a link opens that somebody handed over: an invitation, or a new password. */

const BAD_LINK_RETRIES_MAX = 2;

export function InvitePage() {
  return <LinkPage title="Welcome" />;
}

export function ResetPage() {
  return <LinkPage title="New password" />;
}

type OpenedLink = NonNullable<Awaited<ReturnType<ReturnType<typeof api.links>["get"]>>["data"]>;

/** What a link is for, and the password it sets. `title` holds until that is known. */
function LinkPage({ title }: { title: string }) {
  const { look, name, support } = useDoorBrand();
  const { token = "" } = useParams();
  const link = useQuery({
    queryKey: ["links", token],
    queryFn: () => ask(api.links({ token }).get()),
    // Opened once: while a password is typed nothing may change under it.
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
    retry: (failures, error) =>
      failures < BAD_LINK_RETRIES_MAX && !(error instanceof ApiError && error.status > 0 && error.status < 500),
  });
  const setting = useMutation({
    mutationFn: (password: string) => ask(api.links({ token }).post({ password })),
    onSuccess: ({ signIn }) => signIn || goOn("/"),
  });
  if (setting.data?.signIn) return <PasswordSet look={look} />;
  const error = codeOf(setting.error) === "not_found" ? setting.error : link.error;
  if (codeOf(error) === "not_found") return <DeadLink look={look} support={support} />;
  if (error) {
    return (
      <DoorPage title={title} brand={look}>
        {codeOf(error) === "too_many_requests" ? (
          <DoorProblem error={error} />
        ) : (
          <ErrorState error={error} onRetry={() => void link.refetch()} />
        )}
      </DoorPage>
    );
  }
  if (link.data === undefined) {
    return (
      <DoorPage title={title} brand={look}>
        <Loading className="grid gap-4">
          <Skeleton className="h-14" />
          <Skeleton className="h-20" />
          <Skeleton className="h-9" />
        </Loading>
      </DoorPage>
    );
  }
  const isNew = link.data.kind === "invitation";
  return (
    <DoorPage
      title={isNew ? `Welcome, ${link.data.name}` : "New password"}
      lead={
        isNew
          ? `You are invited to ${name}. Choose a password, and you are in.`
          : "The old password ends, and every device is signed out."
      }
      brand={look}
      footer={
        <p>
          This link works once, until <Instant iso={link.data.expiresAt} />.
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
    </DoorPage>
  );
}

function LinkForm({
  link: { name, email },
  brand,
  isPending,
  error,
  onPassword,
}: FormState & { link: OpenedLink; brand: string; onPassword: (password: string) => void }) {
  const [password, setPassword] = useState("");
  const [tries, setTries] = useState(0);
  const refused = error instanceof ApiError && error.param === "password" ? error.message : null;
  useEffect(() => {
    if (tries > 0 || refused !== null) focusInvalid();
  }, [tries, refused]);
  return (
    <form
      noValidate
      className="grid gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        setTries(tries + 1);
        if (!isPending && checkPassword(password) === null) onPassword(password);
      }}
    >
      <Field label="E-mail">
        {/* For password managers, and to see whose password this is. */}
        <TextInput type="email" name="email" value={email} readOnly autoComplete="username" />
      </Field>
      <NewPassword
        label="Password"
        value={password}
        onValue={setPassword}
        error={(tries > 0 && checkPassword(password)) || refused}
        about={[name, email, brand]}
      />
      <DoorProblem error={refused === null ? error : null} />
      <Button type="submit" variant="primary" pending={isPending}>
        Set password and sign in
      </Button>
    </form>
  );
}

/** The second factor is on, and no link stands in for it. */
function PasswordSet({ look }: { look: BrandLook | null }) {
  return (
    <DoorPage title="Password set" lead="Sign in with it, and with a code of your authenticator app." brand={look}>
      <ButtonLink href="/sign-in" variant="primary">
        Sign in
      </ButtonLink>
    </DoorPage>
  );
}

function DeadLink({ look, support }: { look: BrandLook | null; support: string | null }) {
  return (
    <DoorPage
      title="This link does not work"
      lead="It was used before, has expired, or was replaced by a newer one."
      brand={look}
      footer={<Help support={support}>Need a new link?</Help>}
    >
      <ButtonLink href="/sign-in">Go to sign-in</ButtonLink>
    </DoorPage>
  );
}
