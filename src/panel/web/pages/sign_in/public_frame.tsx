import { t } from "@lingui/core/macro";
import type { ReactNode } from "react";
import { BrandMark } from "../../ui/brand_mark.tsx";
import { BrowserLanguage } from "../../ui/browser_language.tsx";
import { ButtonLink } from "../../ui/buttons.tsx";
import { useHostBrand } from "./signed_out.tsx";

/**
 * A page for visitors who are not signed in, as wide as those of the panel: the host's brand and a way to sign in above, the choice of the
 * language below.
 */
export function PublicFrame({ signIn = "/sign-in", children }: { signIn?: string; children: ReactNode }) {
  const { look } = useHostBrand();
  return (
    <div className="flex min-h-dvh flex-col">
      <header className="mx-auto flex h-16 w-full max-w-[76rem] items-center justify-between gap-4 px-4 sm:px-6 lg:px-8">
        <p className="flex min-w-0 items-center gap-3 font-semibold">{look && <BrandMark brand={look} />}</p>
        <ButtonLink href={signIn} size="sm">
          {t`Sign in`}
        </ButtonLink>
      </header>
      <main className="grow">{children}</main>
      <footer className="mx-auto flex w-full max-w-[76rem] justify-end px-4 pb-8 sm:px-6 lg:px-8">
        <BrowserLanguage />
      </footer>
    </div>
  );
}
