import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { type Person, useViewer } from "../../shared/page_hooks.ts";
import { TextLink } from "../../ui/buttons.tsx";
import { Banner } from "../../ui/states.tsx";

/** Warns before money goes to a customer whose balance pays for nothing, because pay-as-you-go is off. */
export function IdleMoney({
  person,
}: {
  person: Pick<Person, "accountId" | "name" | "role" | "paygEnabled" | "canSwitchPayg">;
}) {
  const { role } = useViewer();
  const { accountId, name, paygEnabled, canSwitchPayg } = person;
  // A reseller's balance pays for the packages it assigns.
  if (paygEnabled || person.role === "reseller") return null;
  return (
    <Banner tone="warn" title={t`Pay-as-you-go is off for ${name}`}>
      {t`This balance pays for no request until it is on.`}{" "}
      {canSwitchPayg ? (
        <Trans>
          You can switch it on{" "}
          <TextLink href={`${role === "admin" ? "/admin/people" : "/customers"}/${accountId}?tab=account`}>
            on their page
          </TextLink>
          , under Account.
        </Trans>
      ) : (
        t`You cannot switch it on. Ask the operator to do it, or to allow you to.`
      )}
    </Banner>
  );
}
