import { ApiError, useMe } from "../../api.ts";
import { isRefusal } from "../../failures.ts";
import { type Home, useHome } from "../../shared/account_queries.ts";
import { ButtonLink } from "../../ui/buttons.tsx";
import { Problem, Refused } from "../../ui/states.tsx";
import { nextStep } from "../usage/request_text.ts";

/** Why a request of the playground was refused, and what to do about it. */
export function PlaygroundProblem({
  error,
  model,
  alternatives,
}: {
  error: unknown;
  model: string | undefined;
  alternatives: readonly string[];
}) {
  const { brand } = useMe();
  const { data: home } = useHome();
  if (!(error instanceof ApiError) || !isRefusal(error.code)) return <Problem error={error} />;
  const step = nextStep(error.code);
  const ended = home?.notices.find((notice) => notice.kind === "package_none");
  const facts = {
    brand: brand.name,
    alternatives: alternatives.filter((id) => id !== model),
    ...(model !== undefined && { model }),
    ...(home?.package && ofPackage(home.package, error)),
    ...(ended?.endedName &&
      ended.endedAt && {
        packageName: ended.endedName,
        packageEndedAt: ended.endedAt,
        zone: ended.endedTimeZone ?? "UTC",
      }),
  };
  return (
    <Refused
      error={error}
      facts={facts}
      action={
        step && (
          <ButtonLink href={step.href} size="sm">
            {step.label}
          </ButtonLink>
        )
      }
    />
  );
}

function ofPackage({ timeZone, name, dailyLimit, tokenLimit }: NonNullable<Home["package"]>, { limit }: ApiError) {
  const isTokens = tokenLimit !== null && limit === tokenLimit;
  return { zone: timeZone, packageName: name, dailyLimit, ...(isTokens && { unit: "token" as const }) };
}
