import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { ReactNode } from "react";
import { TYPED_PASSWORD_CHARS_MAX } from "../../../../limits.ts";
import { type BrandLook, BrandMark } from "../../ui/brand_mark.tsx";
import { Button, TextLink } from "../../ui/buttons.tsx";
import { EmailField, PasswordField } from "../../ui/fields.tsx";
import { SignedOutCard, SignedOutPage } from "../../ui/page.tsx";
import { Help } from "./help.tsx";

/** How the sign-in page looks: the page itself, and the preview of a brand, draw it with this. */

const TITLE = t`Sign in`;

export function SignInView({
  look,
  theme,
  name,
  support,
  sendsMail,
  signUp,
  isPreview = false,
  children,
}: {
  /** null: not known yet. */
  look: BrandLook | null;
  /** Of the preview; by itself the theme of the page. */
  theme?: "light" | "dark";
  name: string;
  support: string | null;
  sendsMail: boolean;
  /** Whether strangers can make an account. */
  signUp: boolean;
  isPreview?: boolean;
  children: ReactNode;
}) {
  const lead = signUp
    ? t`To ${name}, with the e-mail address of your account.`
    : t`To ${name}, with the e-mail address of your invitation.`;
  const footer = (
    <>
      {sendsMail ? (
        <TextLink href="/forgot">{t`Forgot your password?`}</TextLink>
      ) : (
        <Help support={support}>{t`Forgot your password?`}</Help>
      )}
      {signUp && (
        <p className="mt-2">
          <Trans>
            No account yet? <TextLink href="/sign-up">Sign up</TextLink>
          </Trans>
        </p>
      )}
    </>
  );
  if (isPreview)
    return (
      <SignedOutCard
        title={<p className="text-20 font-semibold">{TITLE}</p>}
        lead={lead}
        mark={look && <BrandMark brand={look} {...(theme && { theme })} />}
        footer={footer}
      >
        {children}
      </SignedOutCard>
    );
  return (
    <SignedOutPage title={TITLE} lead={lead} brand={look} footer={footer}>
      {children}
    </SignedOutPage>
  );
}

/** The fields and the button. A preview cannot be filled in, neither by a person nor by a password manager. */
export function SignInFields({
  email,
  onEmail,
  emailError,
  password,
  onPassword,
  passwordError,
  isPending = false,
  isPreview = false,
  problem,
}: {
  email: string;
  onEmail?: (email: string) => void;
  emailError?: string | null | false;
  password: string;
  onPassword?: (password: string) => void;
  passwordError?: string | null | false;
  isPending?: boolean;
  isPreview?: boolean;
  /** Above the button. */
  problem?: ReactNode;
}) {
  return (
    <>
      <EmailField
        label={t`E-mail`}
        value={email}
        {...(onEmail && { onValue: onEmail })}
        error={emailError ?? null}
        {...(isPreview
          ? { tabIndex: -1 }
          : { name: "email", autoComplete: /* not a text */ "username webauthn", autoFocus: true })}
      />
      <PasswordField
        label={t`Password`}
        value={password}
        {...(onPassword && { onValue: onPassword })}
        error={passwordError ?? null}
        maxLength={TYPED_PASSWORD_CHARS_MAX}
        {...(isPreview
          ? { tabIndex: -1, autoComplete: "new-password" }
          : { name: "password", autoComplete: "current-password" })}
      />
      {problem}
      <Button type={isPreview ? "button" : "submit"} variant="primary" pending={isPending}>
        {t`Sign in`}
      </Button>
    </>
  );
}
