import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { ReactNode } from "react";
import { TextLink } from "../../ui/buttons.tsx";

/** Whom to ask for help. */
export function Help({ support, children }: { support: string | null; children: ReactNode }) {
  if (support === null) {
    return (
      <p>
        {children} {t`Ask the person who invited you.`}
      </p>
    );
  }
  const isPage = support.startsWith("https://");
  const contact = isPage ? support.replace(/^https:\/\/|\/$/g, "") : support;
  return (
    <p>
      {children}{" "}
      <Trans>
        Ask <TextLink href={isPage ? support : `mailto:${support}`}>{contact}</TextLink>.
      </Trans>
    </p>
  );
}
