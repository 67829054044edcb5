import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useParams } from "wouter";
import { api, ask } from "../../api.ts";
import { Button, ButtonLink } from "../../ui/buttons.tsx";
import { SignedOutPage } from "../../ui/page.tsx";
import { Loading, Skeleton } from "../../ui/states.tsx";
import { Instant } from "../../ui/time.tsx";
import { InvalidLink, isWorthRetrying } from "./link_page.tsx";
import { codeOf, LinkProblem, SignInProblem, useHostBrand } from "./signed_out.tsx";

/** The page of a link that confirms a change of an e-mail address. Opening it changes nothing: mail scanners open links too. */

const TITLE = t`Change of e-mail`;

type Change = NonNullable<Awaited<ReturnType<ReturnType<(typeof api)["email-changes"]>["get"]>>["data"]>;
type Answer = "confirm" | "cancel";

export function EmailChangePage() {
  const { look, support } = useHostBrand();
  const { token = "" } = useParams();
  const change = useQuery({
    queryKey: ["email-changes", token],
    queryFn: () => ask(api["email-changes"]({ token }).get()),
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
    retry: isWorthRetrying,
  });
  const answering = useMutation({
    mutationFn: (answer: Answer) => ask(api["email-changes"]({ token }).post({ answer })),
  });
  if (answering.data)
    return <Answered outcome={answering.data.outcome} side={change.data?.side ?? "new"} look={look} />;
  const error = codeOf(answering.error) === "not_found" ? answering.error : change.error;
  if (codeOf(error) === "not_found")
    return (
      <InvalidLink
        look={look}
        support={support}
        lead={t`The change was made, cancelled or replaced, or the link has expired.`}
      />
    );
  if (error) {
    return (
      <SignedOutPage title={TITLE} brand={look}>
        <LinkProblem link={change} />
      </SignedOutPage>
    );
  }
  if (change.data === undefined) {
    return (
      <SignedOutPage title={TITLE} brand={look}>
        <Loading className="grid gap-4">
          <Skeleton className="h-14" />
          <Skeleton className="h-9" />
        </Loading>
      </SignedOutPage>
    );
  }
  return (
    <Question
      change={change.data}
      look={look}
      pending={answering.isPending ? answering.variables : null}
      error={answering.error}
      onAnswer={answering.mutate}
    />
  );
}

type Look = ReturnType<typeof useHostBrand>["look"];

function Question({
  change: { side, newEmail, isConfirmed, expiresAt },
  look,
  pending,
  error,
  onAnswer,
}: {
  change: Change;
  look: Look;
  pending: Answer | null;
  error: Error | null;
  onAnswer: (answer: Answer) => void;
}) {
  if (isConfirmed && side === "new") return <Answered outcome="waiting" side={side} look={look} />;
  return (
    <SignedOutPage
      title={TITLE}
      lead={
        side === "old"
          ? t`Someone who is signed in to your account asked to change its address to ${newEmail}. Was it you?`
          : t`Confirm that ${newEmail} is your address. An account here will then sign in with it.`
      }
      brand={look}
      footer={
        <p>
          <Trans>
            This link works until <Instant iso={expiresAt} />.
          </Trans>
        </p>
      }
    >
      <SignInProblem error={error} />
      {!isConfirmed && (
        <Button variant="primary" pending={pending === "confirm"} onClick={() => onAnswer("confirm")}>
          {side === "old" ? t`Yes, change it` : t`Confirm`}
        </Button>
      )}
      <Button pending={pending === "cancel"} onClick={() => onAnswer("cancel")}>
        {side === "old" ? t`No, cancel the change` : t`This is not my address`}
      </Button>
    </SignedOutPage>
  );
}

function Answered({
  outcome,
  side,
  look,
}: {
  outcome: "waiting" | "changed" | "cancelled";
  side: Change["side"];
  look: Look;
}) {
  if (outcome === "waiting") {
    return (
      <SignedOutPage
        title={t`Confirmed`}
        lead={
          side === "old"
            ? t`Now open the link that was sent to the new address. The change is made when both are confirmed.`
            : t`Now open the link that was sent to the old address. The change is made when both are confirmed.`
        }
        brand={look}
      />
    );
  }
  if (outcome === "changed") {
    return (
      <SignedOutPage title={t`E-mail changed`} lead={t`Sign in with the new address from now on.`} brand={look}>
        <ButtonLink href="/sign-in" variant="primary">
          {t`Sign in`}
        </ButtonLink>
      </SignedOutPage>
    );
  }
  return (
    <SignedOutPage
      title={t`Change cancelled`}
      lead={
        side === "old"
          ? t`The address stays as it was. If you did not ask for the change, someone else may be signed in: set a new password, which signs out every device.`
          : t`The address is not used.`
      }
      brand={look}
    >
      {side === "old" && (
        <ButtonLink href="/forgot" variant="primary">
          {t`Set a new password`}
        </ButtonLink>
      )}
    </SignedOutPage>
  );
}
