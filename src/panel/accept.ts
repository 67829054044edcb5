/** Content negotiation between HTML and JSON. Source: RFC 9110 › 12.5.1. */

/** Media ranges read from the header; no browser sends as many. */
const RANGES_MAX = 32;

type Preference = {
  /** 0 to 1; 0: not acceptable. */
  quality: number;
  /** 2: the type itself is listed; 1: its range, as `text/*`; 0: only any type, or not at all. */
  named: number;
};

/**
 * Whether the client accepts HTML at least as much as JSON. A client that accepts anything, or sends no `Accept`, gets the page. A client
 * that lists JSON and accepts HTML only through a wildcard gets JSON.
 */
export function prefersPage(accept: string | null): boolean {
  const html = preferenceFor("text", "html", accept);
  const json = preferenceFor("application", "json", accept);
  if (html.quality !== json.quality) return html.quality > json.quality;
  return html.quality > 0 && html.named >= json.named;
}

/** The most specific matching range decides. */
function preferenceFor(kind: string, type: string, accept: string | null): Preference {
  if (accept === null || accept.trim() === "") return { quality: 1, named: 0 };
  let best: Preference | undefined;
  for (const range of accept.toLowerCase().split(",", RANGES_MAX)) {
    const [name = "", ...parameters] = range.split(";").map((part) => part.trim());
    const named = [`*/*`, `${kind}/*`, `${kind}/${type}`].indexOf(name);
    if (named >= 0 && (best === undefined || named > best.named)) best = { quality: qualityOf(parameters), named };
  }
  return best ?? { quality: 0, named: 0 };
}

/** The `q` parameter; 1 if it is missing or not a number. */
function qualityOf(parameters: readonly string[]): number {
  const text = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2);
  const quality = text === undefined || text === "" ? 1 : Number(text);
  return quality >= 0 && quality <= 1 ? quality : 1;
}
