import { t } from "@lingui/core/macro";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useParams } from "wouter";
import { api, ask } from "../../api.ts";
import { Button, ButtonLink } from "../../ui/buttons.tsx";
import { SignedOutPage } from "../../ui/page.tsx";
import { Loading, Skeleton } from "../../ui/states.tsx";
import { kindWords } from "../messages/message_words.ts";
import { InvalidLink, isWorthRetrying } from "./link_page.tsx";
import { codeOf, LinkProblem, SignInProblem, useHostBrand } from "./signed_out.tsx";

/** The page of a link that switches off one kind of mail. Opening it changes nothing: mail scanners open links too. */

const TITLE = t`No more mails of this kind?`;

export function UnsubscribePage() {
  const { look, name, support } = useHostBrand();
  const { token = "" } = useParams();
  const choice = useQuery({
    queryKey: ["unsubscribe", token],
    queryFn: () => ask(api.unsubscribe({ token }).get()),
    retry: isWorthRetrying,
  });
  const stopping = useMutation({ mutationFn: () => ask(api.unsubscribe({ token }).post()) });
  const kind = choice.data && kindWords(choice.data.kind);
  if (kind !== undefined && (stopping.data ?? choice.data)?.mailed === false)
    return (
      <SignedOutPage
        title={t`Switched off`}
        lead={t`${name} no longer mails you about: ${kind}. You can switch it on again in Settings.`}
        brand={look}
      >
        <ButtonLink href="/settings?tab=notices">{t`Open settings`}</ButtonLink>
      </SignedOutPage>
    );
  const error = choice.error;
  if (codeOf(error) === "not_found")
    return (
      <InvalidLink
        look={look}
        support={support}
        lead={t`It is not complete, or belongs to an account that does not sign in here. You can choose your mails in Settings.`}
      />
    );
  return (
    <SignedOutPage
      title={TITLE}
      brand={look}
      {...(kind !== undefined && { lead: t`${name} mails you about: ${kind}.` })}
    >
      {error && <LinkProblem link={choice} />}
      {choice.isPending && (
        <Loading className="grid gap-4">
          <Skeleton className="h-9" />
        </Loading>
      )}
      {kind !== undefined && (
        <>
          <SignInProblem error={stopping.error} />
          <Button variant="primary" pending={stopping.isPending} onClick={() => stopping.mutate()}>
            {t`Switch these mails off`}
          </Button>
        </>
      )}
    </SignedOutPage>
  );
}
