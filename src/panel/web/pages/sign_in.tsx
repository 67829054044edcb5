import { useMutation, useQuery } from "@tanstack/react-query";
import { Clock } from "lucide-react";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useParams } from "wouter";
import { ApiError, api, ask } from "../api.ts";
import { formatDuration, formatTime } from "../format.ts";
import type { BrandLook } from "../ui/brand_mark.tsx";
import { nowMs } from "../ui/clock.ts";
import { Button, ButtonLink, Field, PasswordInput, TextInput, TextLink } from "../ui/controls.tsx";
import { brandName, DoorPage } from "../ui/page.tsx";
import { Banner, ErrorLine, ErrorState, Loading, Skeleton } from "../ui/states.tsx";
import { Instant } from "../ui/time.tsx";
import { focusInvalid } from "./forms.ts";
import { checkPassword, NewPassword } from "./new_password.tsx";
import { ownPath } from "./own_words.ts";

/** The ways in: with a password and, where it is on, a second factor; or by a link that sets the password. */

const EMAIL_CHARS_MAX = 254;
const PASSWORD_CHARS_MAX = 1000;
const CODE_CHARS_MAX = 40;
const BAD_LINK_RETRIES_MAX = 2;

export function SignInPage() {
  const { look, name, support } = useDoorBrand();
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const [asksCode, setAsksCode] = useState(false);
  const signIn = useMutation({
    mutationFn: (code: string | null) =>
      ask(api["sign-in"].post({ email: email.trim(), password, ...(code !== null && { code }) })),
    onSuccess: () => goOn(ownPath(new URLSearchParams(location.search).get("next"), location.origin)),
    onError: (error) => setAsksCode((before) => before || codeOf(error) === "second_factor_required"),
  });
  const again = () => {
    signIn.reset();
    setAsksCode(false);
    setPassword("");
  };
  const state = { isPending: signIn.isPending || signIn.isSuccess, error: signIn.error };
  if (asksCode) {
    return (
      <DoorPage
        title="Enter your code"
        lead="The second step, after your password."
        brand={look}
        footer={<Help support={support}>Lost your app and your recovery codes?</Help>}
      >
        <CodeForm {...state} onCode={signIn.mutate} onSwitch={signIn.reset} onBack={again} />
      </DoorPage>
    );
  }
  return (
    <DoorPage
      title="Sign in"
      lead={`To ${name}, with the address you were invited with.`}
      brand={look}
      footer={<Help support={support}>Forgotten your password?</Help>}
    >
      <PasswordForm
        {...state}
        email={email}
        onEmail={setEmail}
        password={password}
        onPassword={setPassword}
        onSend={() => signIn.mutate(null)}
      />
    </DoorPage>
  );
}

type FormState = { isPending: boolean; error: Error | null };

function PasswordForm({
  isPending,
  error,
  email,
  onEmail,
  password,
  onPassword,
  onSend,
}: FormState & {
  email: string;
  onEmail: (email: string) => void;
  password: string;
  onPassword: (password: string) => void;
  onSend: () => void;
}) {
  const [tries, setTries] = useState(0);
  const isTried = tries > 0;
  const noEmail = isTried && !/^\S+@\S+$/.test(email.trim()) && "Your e-mail address.";
  const noPassword = isTried && password === "" && "Your password.";
  useEffect(() => {
    if (tries > 0 || error !== null) focusInvalid();
  }, [tries, error]);
  return (
    <form
      noValidate
      className="grid gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        setTries(tries + 1);
        if (!isPending && /^\S+@\S+$/.test(email.trim()) && password !== "") onSend();
      }}
    >
      <Field label="E-mail" error={noEmail}>
        <TextInput
          type="email"
          name="email"
          value={email}
          onValue={onEmail}
          autoComplete="username"
          autoCapitalize="none"
          spellCheck={false}
          maxLength={EMAIL_CHARS_MAX}
          autoFocus
        />
      </Field>
      <Field label="Password" error={noPassword || wrongOf(error)}>
        <PasswordInput
          name="password"
          value={password}
          onValue={onPassword}
          autoComplete="current-password"
          maxLength={PASSWORD_CHARS_MAX}
        />
      </Field>
      <DoorProblem error={error} />
      <Button type="submit" variant="primary" pending={isPending}>
        Sign in
      </Button>
    </form>
  );
}

function CodeForm({
  isPending,
  error,
  onCode,
  onSwitch,
  onBack,
}: FormState & {
  onCode: (code: string) => void;
  /** Another kind of code: what was said of the last one is void. */
  onSwitch: () => void;
  onBack: () => void;
}) {
  const input = useRef<HTMLInputElement>(null);
  const [isRecovery, setRecovery] = useState(false);
  const [code, setCode] = useState("");
  const [isTried, setTried] = useState(false);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another kind of code is another field.
  useEffect(() => {
    input.current?.focus();
    // What was wrong is typed over.
    if (error !== null) input.current?.select();
  }, [error, isRecovery]);
  const switchKind = () => {
    setRecovery(!isRecovery);
    setCode("");
    setTried(false);
    onSwitch();
  };
  return (
    <form
      noValidate
      className="grid gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        setTried(true);
        if (!isPending && code.trim() !== "") onCode(code.trim());
        else input.current?.focus();
      }}
    >
      <Field
        label={isRecovery ? "Recovery code" : "Code"}
        hint={isRecovery ? "16 letters and digits. Each works once." : "Six digits, from your authenticator app."}
        error={(isTried && code.trim() === "" && "The code.") || wrongOf(error)}
      >
        <TextInput
          // Another kind of code is another field: a browser offers what it knows for it.
          key={String(isRecovery)}
          ref={input}
          mono
          name={isRecovery ? "recovery-code" : "code"}
          value={code}
          onValue={setCode}
          inputMode={isRecovery ? "text" : "numeric"}
          autoComplete={isRecovery ? "off" : "one-time-code"}
          maxLength={CODE_CHARS_MAX}
        />
      </Field>
      <DoorProblem error={codeOf(error) === "second_factor_required" ? null : error} />
      <Button type="submit" variant="primary" pending={isPending}>
        Sign in
      </Button>
      <div className="flex flex-wrap justify-between gap-2">
        <Button variant="quiet" size="sm" className="-ml-3" onClick={onBack}>
          Back
        </Button>
        <Button variant="quiet" size="sm" className="-mr-3" onClick={switchKind}>
          {isRecovery ? "Use your app" : "Use a recovery code"}
        </Button>
      </div>
    </form>
  );
}

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

/** Why the door stays shut, but for what stands at a field. Nothing of it was charged, so no word of charges. */
function DoorProblem({ error }: { error: Error | null }) {
  // Reckoned once: a time that runs would be read aloud each second.
  const until = useMemo(() => {
    if (!(error instanceof ApiError) || error.code !== "too_many_requests") return null;
    const waitMs = (error.retryAfterSeconds ?? 0) * 1_000;
    return { wait: formatDuration(waitMs), at: formatTime(new Date(nowMs() + waitMs).toISOString()) };
  }, [error]);
  if (error === null || wrongOf(error) !== null) return null;
  if (until === null) return <ErrorLine error={error} />;
  return (
    <div role="alert">
      <Banner tone="warn" icon={Clock} title="Too many wrong tries">
        Wait {until.wait}, until {until.at}, and try again.
      </Banner>
    </div>
  );
}

/** Whom to ask: there is no mail that sets a password anew. */
function Help({ support, children }: { support: string | null; children: ReactNode }) {
  if (support === null) {
    return <p>{children} Ask whoever invited you.</p>;
  }
  const isPage = support.startsWith("https://");
  return (
    <p>
      {children} Ask{" "}
      <TextLink href={isPage ? support : `mailto:${support}`}>
        {isPage ? support.replace(/^https:\/\/|\/$/g, "") : support}
      </TextLink>
      .
    </p>
  );
}

/** How this host looks; `look` is null until it is known, so that no letter flashes where a logo will be. */
function useDoorBrand(): { look: BrandLook | null; name: string; support: string | null } {
  const { data, isPending } = useQuery({
    queryKey: ["brand", "public"],
    queryFn: () => ask(api.brand.public.get()),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const name = data?.name ?? brandName();
  const plain = { name, logoLight: null, logoDark: null };
  return { look: data ?? (isPending ? null : plain), name, support: data?.support ?? null };
}

/** A full load: whatever the last person saw must not be left in memory. */
function goOn(path: string): void {
  location.replace(path);
}

function codeOf(error: Error | null): string | null {
  return error instanceof ApiError ? error.code : null;
}

/** What was wrong with what was typed, in the server's words. */
function wrongOf(error: Error | null): string | null {
  return error instanceof ApiError && error.code === "session_required" ? error.message : null;
}
