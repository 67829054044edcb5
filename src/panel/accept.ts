/** Which of two types a client would rather have. Source: RFC 9110 › 12.5.1. */

/** Ranges of a header that are read: no browser sends as many. */
const RANGES_MAX = 32;

type Wish = {
  /** 0 to 1; 0: not wanted. */
  quality: number;
  /** 2: the type itself is named; 1: its kind, as `text/*`; 0: any, or nothing is said of it. */
  named: number;
};

/**
 * Whether a page is taken, and no less gladly than JSON. Who takes anything gets the page, as who sends no `Accept`; who names JSON
 * and takes HTML only among everything else gets JSON.
 */
export function prefersPage(accept: string | null): boolean {
  const html = wishFor("text", "html", accept);
  const json = wishFor("application", "json", accept);
  if (html.quality !== json.quality) return html.quality > json.quality;
  return html.quality > 0 && html.named >= json.named;
}

/** The range that fits best decides. */
function wishFor(kind: string, type: string, accept: string | null): Wish {
  if (accept === null || accept.trim() === "") return { quality: 1, named: 0 };
  let best: Wish | undefined;
  for (const range of accept.toLowerCase().split(",", RANGES_MAX)) {
    const [name = "", ...parameters] = range.split(";").map((part) => part.trim());
    const named = [`*/*`, `${kind}/*`, `${kind}/${type}`].indexOf(name);
    if (named >= 0 && (best === undefined || named > best.named)) best = { quality: qualityOf(parameters), named };
  }
  return best ?? { quality: 0, named: 0 };
}

/** 1 where none is said, or what is said is no number. */
function qualityOf(parameters: readonly string[]): number {
  const said = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2);
  const quality = said === undefined || said === "" ? 1 : Number(said);
  return quality >= 0 && quality <= 1 ? quality : 1;
}
