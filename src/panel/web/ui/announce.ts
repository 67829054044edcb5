/**
 * Tells screen readers something, politely: `announce("Copied")`. One region for the whole panel, outside
 * every dialog and button: a region inside a button would keep that button readable behind an open dialog.
 */
export function announce(text: string): void {
  region ??= makeRegion();
  region.textContent = "";
  // The same text is announced again only if the region was empty in between.
  const here = region;
  setTimeout(() => {
    here.textContent = text;
  }, AGAIN_MS);
}

const AGAIN_MS = 50;

let region: HTMLElement | undefined;

function makeRegion(): HTMLElement {
  const made = document.createElement("div");
  made.setAttribute("aria-live", "polite");
  made.className = "sr-only";
  document.body.append(made);
  return made;
}
