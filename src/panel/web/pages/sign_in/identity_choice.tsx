import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery } from "@tanstack/react-query";
import { LogIn } from "lucide-react";
import { api, ask } from "../../api.ts";
import { Button, TextLink } from "../../ui/buttons.tsx";
import { rememberNext } from "./next_path.ts";
import { type OfferedProvider, SignInProblem } from "./signed_out.tsx";

/** Signing in by an identity provider: the browser leaves for it, and comes back to `callback_page.tsx`. */

export function IdentityChoice({ providers, signUp }: { providers: readonly OfferedProvider[]; signUp: boolean }) {
  const leaving = useMutation({
    mutationFn: (identityProviderId: number) => ask(api["sign-in"].identity.post({ identityProviderId })),
    onSuccess: ({ url }) => {
      rememberNext(new URLSearchParams(location.search).get("next"));
      location.assign(url);
    },
  });
  if (providers.length === 0) return null;
  const isBusy = leaving.isPending || leaving.isSuccess;
  return (
    <div className="grid gap-3">
      {providers.map(({ identityProviderId, name }) => (
        <Button
          key={identityProviderId}
          icon={LogIn}
          pending={isBusy && leaving.variables === identityProviderId}
          disabled={isBusy}
          onClick={() => leaving.mutate(identityProviderId)}
        >
          {t`Continue with ${name}`}
        </Button>
      ))}
      {signUp && <Accepting />}
      <SignInProblem error={leaving.error} />
    </div>
  );
}

/** What a new person accepts. The server keeps which pages, and when. */
function Accepting() {
  const { data } = useQuery({
    queryKey: ["sign-up", "form"],
    queryFn: () => ask(api["sign-up"].get()),
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (data?.termsUrl == null || data.privacyUrl === null) return null;
  return (
    <p className="text-13 text-ink-3">
      <Trans>
        If you have no account yet, you make one by continuing, and accept the{" "}
        <TextLink href={data.termsUrl}>terms</TextLink> and the{" "}
        <TextLink href={data.privacyUrl}>privacy policy</TextLink>.
      </Trans>
    </p>
  );
}
