import type { ReactNode } from "react";
import { TextLink } from "../../ui/buttons.tsx";

/** Whom to ask for help. */
export function Help({ support, children }: { support: string | null; children: ReactNode }) {
  if (support === null) {
    return <p>{children} Ask the person who invited you.</p>;
  }
  const isPage = support.startsWith("https://");
  return (
    <p>
      {children} Ask{" "}
      <TextLink href={isPage ? support : `mailto:${support}`}>
        {isPage ? support.replace(/^https:\/\/|\/$/g, "") : support}
      </TextLink>
      .
    </p>
  );
}
