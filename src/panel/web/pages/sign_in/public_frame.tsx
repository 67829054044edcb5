import { t } from "@lingui/core/macro";
import type { ReactNode } from "react";
import { BrandMark } from "../../ui/brand_mark.tsx";
import { ButtonLink } from "../../ui/buttons.tsx";
import { useHostBrand } from "./signed_out.tsx";

/** A page for visitors who are not signed in, as wide as those of the panel: the host's brand above, and a way to sign in. */
export function PublicFrame({ signIn = "/sign-in", children }: { signIn?: string; children: ReactNode }) {
  const { look } = useHostBrand();
  return (
    <div className="min-h-dvh">
      <header className="mx-auto flex h-16 w-full max-w-[76rem] items-center justify-between gap-4 px-4 sm:px-6 lg:px-8">
        <p className="flex min-w-0 items-center gap-3 font-semibold">{look && <BrandMark brand={look} />}</p>
        <ButtonLink href={signIn} size="sm">
          {t`Sign in`}
        </ButtonLink>
      </header>
      <main>{children}</main>
    </div>
  );
}
