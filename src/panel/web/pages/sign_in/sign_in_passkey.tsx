import type { AuthenticationResponseJSON } from "@simplewebauthn/browser";
import { useMutation } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { ApiError, api, ask } from "../../api.ts";
import { ErrorLine } from "../../ui/states.tsx";
import { loadPasskeys } from "../settings/confirm_person.tsx";
import { PasskeyChoice } from "./passkey_choice.tsx";
import { credentialErrorOf, SignInProblem } from "./signed_out.tsx";

/** Signing in with a passkey: by its button, or among the suggestions of the e-mail field. */

/** The server's challenge is replaced this long before it expires. */
const OFFER_MS = 4 * 60_000;

const fetchOptions = () => ask(api["sign-in"].passkey.get());

export function PasskeySignIn({ onDone }: { onDone: () => void }) {
  const [isSupported, setSupported] = useState(false);
  /** Counts the offers in the suggestions: a request by the button cancels the current one. */
  const [offers, setOffers] = useState(0);
  const isAsking = useRef(false);
  const signIn = useMutation({
    mutationFn: async (signed: AuthenticationResponseJSON | null) => {
      isAsking.current = true;
      const response = signed ?? (await (await loadPasskeys()).sign(await fetchOptions()));
      return ask(api["sign-in"].passkey.post({ response }));
    },
    onSuccess: onDone,
    onError: () => {
      isAsking.current = false;
      setOffers((before) => before + 1);
    },
  });
  const { mutate } = signIn;
  useEffect(() => {
    let end = () => {};
    let isOver = false;
    const offer = async () => {
      const passkeys = await loadPasskeys();
      setSupported(passkeys.areSupported());
      if (isOver || !(await passkeys.canAutofill())) return;
      const options = await fetchOptions();
      if (isOver || isAsking.current) return;
      end = passkeys.cancel;
      mutate(await passkeys.sign(options, { autofill: true }));
    };
    // The form works without suggestions, and the button tells what is wrong.
    offer().catch(() => {});
    const timer = setTimeout(() => isAsking.current || setOffers(offers + 1), OFFER_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
      end();
    };
  }, [offers, mutate]);
  if (!isSupported) return null;
  return (
    <div className="grid gap-4">
      <PasskeyChoice isPending={signIn.isPending || signIn.isSuccess} onChoose={() => mutate(null)} />
      <PasskeyProblem error={signIn.error} />
    </div>
  );
}

function PasskeyProblem({ error }: { error: Error | null }) {
  if (error === null) return null;
  const isOwn = credentialErrorOf(error) !== null || (error instanceof ApiError && error.param === "passkey");
  return isOwn ? <ErrorLine error={error} /> : <SignInProblem error={error} />;
}
