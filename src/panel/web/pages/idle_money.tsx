import { TextLink } from "../ui/buttons.tsx";
import { Banner } from "../ui/states.tsx";
import { type Person, useViewer } from "./page_hooks.ts";

/** Said before money is given to a customer whose balance pays for nothing: until pay-as-you-go is on, it only lies there. */
export function IdleMoney({
  person,
}: {
  person: Pick<Person, "accountId" | "name" | "role" | "paygEnabled" | "canSwitchPayg">;
}) {
  const { role } = useViewer();
  const { accountId, name, paygEnabled, canSwitchPayg } = person;
  // A reseller's balance pays for what it hands out.
  if (paygEnabled || person.role === "reseller") return null;
  return (
    <Banner tone="warn" title={`Pay-as-you-go is off for ${name}`}>
      No request is paid from this balance until it is on.{" "}
      {canSwitchPayg ? (
        <>
          You can switch it on{" "}
          <TextLink href={role === "admin" ? `/admin/people/${accountId}` : `/customers/${accountId}`}>
            on their page
          </TextLink>
          , under Account.
        </>
      ) : (
        "You may not switch it: ask the operator to do it, or for the right to."
      )}
    </Banner>
  );
}
