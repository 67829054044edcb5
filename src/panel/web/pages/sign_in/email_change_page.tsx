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

const TITLE = "Change of e-mail";

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
        lead="The change was made, cancelled or replaced, or the link has expired."
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
          ? `Someone who is signed in to your account asked to change its address to ${newEmail}. Was it you?`
          : `Confirm that ${newEmail} is your address. An account here will then sign in with it.`
      }
      brand={look}
      footer={
        <p>
          This link works until <Instant iso={expiresAt} />.
        </p>
      }
    >
      <SignInProblem error={error} />
      {!isConfirmed && (
        <Button variant="primary" pending={pending === "confirm"} onClick={() => onAnswer("confirm")}>
          {side === "old" ? "Yes, change it" : "Confirm"}
        </Button>
      )}
      <Button pending={pending === "cancel"} onClick={() => onAnswer("cancel")}>
        {side === "old" ? "No, cancel the change" : "This is not my address"}
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
    const other = side === "old" ? "new" : "old";
    return (
      <SignedOutPage
        title="Confirmed"
        lead={`Now open the link that was sent to the ${other} address. The change is made when both are confirmed.`}
        brand={look}
      />
    );
  }
  if (outcome === "changed") {
    return (
      <SignedOutPage title="E-mail changed" lead="Sign in with the new address from now on." brand={look}>
        <ButtonLink href="/sign-in" variant="primary">
          Sign in
        </ButtonLink>
      </SignedOutPage>
    );
  }
  return (
    <SignedOutPage
      title="Change cancelled"
      lead={
        side === "old"
          ? "The address stays as it was. If you did not ask for the change, someone else may be signed in: set a new password, which signs out every device."
          : "The address is not used."
      }
      brand={look}
    >
      {side === "old" && (
        <ButtonLink href="/forgot" variant="primary">
          Set a new password
        </ButtonLink>
      )}
    </SignedOutPage>
  );
}
