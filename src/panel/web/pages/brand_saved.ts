import { useQueryClient } from "@tanstack/react-query";
import { accentCss } from "../../../accounts/accent.ts";
import { type api, ME_KEY } from "../api.ts";
import { brandName } from "../ui/page.tsx";
import { ACCENT_VARIABLES } from "./brand_preview.tsx";

/** A brand as it is saved, and what a change of it does to the page it is made on. */

export const BRAND_KEY = ["brand"] as const;

export type SavedBrand = NonNullable<Awaited<ReturnType<typeof api.brand.get>>["data"]>;

/** Keeps what a change answered, and has the frame around the page show it. */
export function useSaved(): (brand: SavedBrand) => void {
  const client = useQueryClient();
  return (brand) => {
    const before = client.getQueryData<SavedBrand>(BRAND_KEY);
    client.setQueryData(BRAND_KEY, brand);
    // A host that wears another brand, the service's own, stays as it is.
    if (before && brandName() === before.name) wear(brand);
    // Not awaited: the change is done, whether the frame can be drawn anew or not.
    void client.invalidateQueries({ queryKey: ME_KEY });
  };
}

/** Name and colour of this very page, as they will be when it is loaded again. */
function wear({ name, accent }: SavedBrand): void {
  document.querySelector('meta[name="application-name"]')?.setAttribute("content", name);
  const sheet = document.querySelector<HTMLLinkElement>('link[href^="/brand.css"]');
  if (sheet) sheet.disabled = true;
  const made = accent === null ? null : accentCss(accent);
  const { style } = document.documentElement;
  for (const [variable, shade] of ACCENT_VARIABLES) {
    if (made === null) style.removeProperty(variable);
    else style.setProperty(variable, `light-dark(${made.light[shade]},${made.dark[shade]})`);
  }
}
