import { t } from "@lingui/core/macro";
import { useMutation } from "@tanstack/react-query";
import { MailCheck } from "lucide-react";
import { useEffect, useState } from "react";
import { api, ask } from "../../api.ts";
import { Button, ButtonLink } from "../../ui/buttons.tsx";
import { EmailField } from "../../ui/fields.tsx";
import { focusInvalid, isEmail } from "../../ui/form.tsx";
import { FormFrame } from "../../ui/form_frame.tsx";
import { SignedOutPage } from "../../ui/page.tsx";
import { Banner } from "../../ui/states.tsx";
import { Help } from "./help.tsx";
import { SignInProblem, useHostBrand } from "./signed_out.tsx";

/**
 * Asking for a link that sets a new password. The page says the same for every address, so that nobody learns who has
 * an account.
 */

export function ForgotPasswordPage() {
  const { look, support } = useHostBrand();
  const [email, setEmail] = useState("");
  const [tries, setTries] = useState(0);
  const asking = useMutation({ mutationFn: () => ask(api["sign-in"].forgot.post({ email: email.trim() })) });
  useEffect(() => {
    if (tries > 0) focusInvalid();
  }, [tries]);
  if (asking.isSuccess) {
    return (
      <SignedOutPage
        title={t`Check your mail`}
        brand={look}
        footer={<Help support={support}>{t`No mail? Check your spam folder.`}</Help>}
      >
        <Banner tone="ok" icon={MailCheck}>
          <span className="break-words text-ink">
            {t`If ${{ email: email.trim() }} belongs to an account here, we have sent it a link. The link works once, for one hour.`}
          </span>
        </Banner>
        <ButtonLink href="/sign-in">{t`Back to sign-in`}</ButtonLink>
      </SignedOutPage>
    );
  }
  return (
    <SignedOutPage
      title={t`Forgot your password?`}
      lead={t`We send you a link to set a new one.`}
      brand={look}
      footer={<Help support={support}>{t`No access to your mail?`}</Help>}
    >
      <FormFrame
        onSubmit={() => {
          setTries(tries + 1);
          if (isEmail(email) && !asking.isPending) asking.mutate();
        }}
      >
        <EmailField
          label={t`E-mail`}
          name="email"
          value={email}
          onValue={setEmail}
          error={tries > 0 && !isEmail(email) && t`Enter your e-mail address.`}
          autoComplete="username"
          autoFocus
        />
        <SignInProblem error={asking.error} />
        <Button type="submit" variant="primary" pending={asking.isPending}>
          {t`Send link`}
        </Button>
        <ButtonLink href="/sign-in" variant="quiet">
          {t`Back`}
        </ButtonLink>
      </FormFrame>
    </SignedOutPage>
  );
}
