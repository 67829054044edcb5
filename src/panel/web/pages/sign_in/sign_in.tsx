import { t } from "@lingui/core/macro";
import { useMutation } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { TYPED_CODE_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { Button } from "../../ui/buttons.tsx";
import { Field, TextInput } from "../../ui/fields.tsx";
import { focusInvalid, isEmail } from "../../ui/form.tsx";
import { FormFrame } from "../../ui/form_frame.tsx";
import { SignedOutPage } from "../../ui/page.tsx";
import { Help } from "./help.tsx";
import { IdentityChoice } from "./identity_choice.tsx";
import { pathAfterSignIn } from "./next_path.ts";
import { PasskeySignIn } from "./sign_in_passkey.tsx";
import { SignInFields, SignInView } from "./sign_in_view.tsx";
import { codeOf, credentialErrorOf, openFresh, type Sending, SignInProblem, useHostBrand } from "./signed_out.tsx";

/** Signing in with a password and, if it is on, the second factor; with a passkey, or by an identity provider. */

export function SignInPage() {
  const { look, name, support, sendsMail, signUp, identityProviders } = useHostBrand();
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const [asksCode, setAsksCode] = useState(false);
  const signIn = useMutation({
    mutationFn: (code: string | null) =>
      ask(api["sign-in"].post({ email: email.trim(), password, ...(code !== null && { code }) })),
    onSuccess: enter,
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
      <SignedOutPage
        title={t`Enter your code`}
        lead={t`The second step, after your password.`}
        brand={look}
        footer={<Help support={support}>{t`Lost your app and your recovery codes?`}</Help>}
      >
        <CodeForm {...state} onCode={signIn.mutate} onSwitch={signIn.reset} onBack={again} />
      </SignedOutPage>
    );
  }
  return (
    <SignInView look={look} name={name} support={support} sendsMail={sendsMail} signUp={signUp}>
      <PasswordForm
        {...state}
        email={email}
        onEmail={setEmail}
        password={password}
        onPassword={setPassword}
        onSend={() => signIn.mutate(null)}
      />
      <PasskeySignIn onDone={enter} />
      <IdentityChoice providers={identityProviders} signUp={signUp} />
    </SignInView>
  );
}

function enter(): void {
  openFresh(pathAfterSignIn(new URLSearchParams(location.search).get("next"), location.origin));
}

function PasswordForm({
  isPending,
  error,
  email,
  onEmail,
  password,
  onPassword,
  onSend,
}: Sending & {
  email: string;
  onEmail: (email: string) => void;
  password: string;
  onPassword: (password: string) => void;
  onSend: () => void;
}) {
  const [tries, setTries] = useState(0);
  /** What was typed since the last attempt: its error is gone. */
  const [typed, setTyped] = useState({ email: false, password: false });
  const isTried = tries > 0;
  const noEmail = isTried && !typed.email && !isEmail(email) && t`Enter your e-mail address.`;
  const noPassword = isTried && !typed.password && password === "" && t`Enter your password.`;
  useEffect(() => {
    if (tries > 0 || error !== null) focusInvalid();
  }, [tries, error]);
  return (
    <FormFrame
      onSubmit={() => {
        setTries(tries + 1);
        setTyped({ email: false, password: false });
        if (!isPending && isEmail(email) && password !== "") onSend();
      }}
    >
      <SignInFields
        email={email}
        onEmail={(next) => {
          onEmail(next);
          setTyped((before) => ({ ...before, email: true }));
        }}
        emailError={noEmail}
        password={password}
        onPassword={(next) => {
          onPassword(next);
          setTyped((before) => ({ ...before, password: true }));
        }}
        passwordError={noPassword || (!typed.email && !typed.password && credentialErrorOf(error))}
        isPending={isPending}
        problem={<SignInProblem error={error} />}
      />
    </FormFrame>
  );
}

function CodeForm({
  isPending,
  error,
  onCode,
  onSwitch,
  onBack,
}: Sending & {
  onCode: (code: string) => void;
  /** Clears the error of the other kind of code. */
  onSwitch: () => void;
  onBack: () => void;
}) {
  const input = useRef<HTMLInputElement>(null);
  const [isRecovery, setRecovery] = useState(false);
  const [code, setCode] = useState("");
  const [isTried, setTried] = useState(false);
  /** Since the last attempt: its error is gone. */
  const [isTyped, setTyped] = useState(false);
  useEffect(() => {
    if (error === null) return;
    input.current?.focus();
    // A wrong code is selected, to be typed over.
    input.current?.select();
  }, [error]);
  const switchKind = () => {
    setRecovery(!isRecovery);
    setCode("");
    setTried(false);
    setTyped(false);
    onSwitch();
  };
  return (
    <FormFrame
      onSubmit={() => {
        setTried(true);
        setTyped(false);
        if (!isPending && code.trim() !== "") onCode(code.trim());
        else input.current?.focus();
      }}
    >
      <Field
        label={isRecovery ? t`Recovery code` : t({ message: "Code", context: "to sign in" })}
        hint={isRecovery ? t`16 letters and digits. Each works once.` : t`Six digits from your authenticator app.`}
        error={!isTyped && ((isTried && code.trim() === "" && t`Enter the code.`) || credentialErrorOf(error))}
      >
        <TextInput
          // A new field per kind, which gets the focus, and for which browsers suggest the right values.
          key={String(isRecovery)}
          ref={input}
          autoFocus
          mono
          name={isRecovery ? "recovery-code" : "code"}
          value={code}
          onValue={(next) => {
            setCode(next);
            setTyped(true);
          }}
          inputMode={isRecovery ? "text" : "numeric"}
          autoComplete={isRecovery ? "off" : "one-time-code"}
          maxLength={TYPED_CODE_CHARS_MAX}
        />
      </Field>
      <SignInProblem error={codeOf(error) === "second_factor_required" ? null : error} />
      <Button type="submit" variant="primary" pending={isPending}>
        {t`Sign in`}
      </Button>
      <CodeFormLinks isRecovery={isRecovery} onBack={onBack} onSwitch={switchKind} />
    </FormFrame>
  );
}

function CodeFormLinks({
  isRecovery,
  onBack,
  onSwitch,
}: {
  isRecovery: boolean;
  onBack: () => void;
  onSwitch: () => void;
}) {
  return (
    <div className="flex flex-wrap justify-between gap-2">
      <Button variant="quiet" size="sm" className="-ms-3" onClick={onBack}>
        {t`Back`}
      </Button>
      <Button variant="quiet" size="sm" className="-me-3" onClick={onSwitch}>
        {isRecovery ? t`Use your app` : t`Use a recovery code`}
      </Button>
    </div>
  );
}
