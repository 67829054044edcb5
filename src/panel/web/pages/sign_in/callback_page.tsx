import { t } from "@lingui/core/macro";
import { useMutation } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { api, ask } from "../../api.ts";
import { ButtonLink } from "../../ui/buttons.tsx";
import { SignedOutPage } from "../../ui/page.tsx";
import { Loading, Skeleton } from "../../ui/states.tsx";
import { Help } from "./help.tsx";
import { LINKING, pathAfterSignIn, rememberedNext } from "./next_path.ts";
import { openFresh, useHostBrand } from "./signed_out.tsx";

/** Where an identity provider sends people back to. If they do not come in, it says why, and what else they can do. */
export function CallbackPage() {
  const { look, support, sendsMail } = useHostBrand();
  const isSent = useRef(false);
  const [next] = useState(rememberedNext);
  const finishing = useMutation({
    mutationFn: (query: string) => ask(api["sign-in"].identity.finish.post({ query })),
    onSuccess: ({ linked }) => openFresh(linked ? LINKING : pathAfterSignIn(next, location.origin)),
  });
  const { mutate } = finishing;
  useEffect(() => {
    // Once: the answer of the provider works once.
    if (isSent.current) return;
    isSent.current = true;
    const { search } = location;
    // The code does not stay in the address, nor in the history.
    history.replaceState(null, "", location.pathname);
    mutate(search.slice(1));
  }, [mutate]);
  if (finishing.error === null)
    return (
      <SignedOutPage title={t`Signing in`} brand={look}>
        <Loading className="grid gap-4">
          <Skeleton className="h-9" />
        </Loading>
      </SignedOutPage>
    );
  if (next === LINKING)
    return (
      <SignedOutPage title={t`Not linked`} lead={finishing.error.message} brand={look}>
        <ButtonLink href={LINKING} variant="primary">
          {t`Back to settings`}
        </ButtonLink>
      </SignedOutPage>
    );
  return (
    <SignedOutPage
      title={t`You are not signed in`}
      lead={finishing.error.message}
      brand={look}
      footer={<Help support={support}>{t`Does it not work?`}</Help>}
    >
      <ButtonLink href="/sign-in" variant="primary">
        {t`Go to sign-in`}
      </ButtonLink>
      {sendsMail && <ButtonLink href="/forgot">{t`Get a link by mail`}</ButtonLink>}
    </SignedOutPage>
  );
}
