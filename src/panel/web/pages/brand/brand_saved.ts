import { useQueryClient } from "@tanstack/react-query";
import { accentCss, accentVariables } from "../../../../accounts/accent.ts";
import { type api, ME_KEY } from "../../api.ts";
import { brandName } from "../../ui/page.tsx";

/** The saved brand, and applying a change to the current page. */

/** The variables that every colour sets. */
const ACCENT_VARIABLES = Object.keys(accentVariables(accentCss("#000000").light));

export const BRAND_KEY = ["brand"] as const;

export type SavedBrand = NonNullable<Awaited<ReturnType<typeof api.brand.get>>["data"]>;

/** Stores the response of a change, and shows the new brand around the page. */
export function useSaved(): (brand: SavedBrand) => void {
  const client = useQueryClient();
  return (brand) => {
    const before = client.getQueryData<SavedBrand>(BRAND_KEY);
    client.setQueryData(BRAND_KEY, brand);
    // On the service's own host, the page shows another brand and stays as it is.
    if (before && brandName() === before.name) applyBrand(brand);
    // Not awaited: the brand is saved, even if this load fails.
    void client.invalidateQueries({ queryKey: ME_KEY });
  };
}

/** Sets the name and colour of this page to what a reload would show. */
function applyBrand({ name, accent }: SavedBrand): void {
  document.querySelector('meta[name="application-name"]')?.setAttribute("content", name);
  const sheet = document.querySelector<HTMLLinkElement>('link[href^="/brand.css"]');
  if (sheet) sheet.disabled = true;
  const made = accent === null ? null : accentCss(accent);
  const { style } = document.documentElement;
  const [light, dark]: Record<string, string>[] =
    made === null ? [] : [accentVariables(made.light), accentVariables(made.dark)];
  for (const variable of ACCENT_VARIABLES) {
    if (made === null) style.removeProperty(variable);
    else style.setProperty(variable, `light-dark(${light?.[variable]},${dark?.[variable]})`);
  }
}
