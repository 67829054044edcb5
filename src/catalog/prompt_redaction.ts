/**
 * Shorter matches are common phrases. Matches of 31 characters or more are always found, and some shorter ones.
 */
const RUN_CHARS_MIN = 16;
/** How much of the request is compared: this much of its beginning, and of its end. */
const SENT_CHARS_MAX = 256 * 1024;
/** A longer name of a field is no parameter's. */
const NAME_CHARS_MAX = 64;
/** Characters at which a match ends, so that the JSON around it stays valid. */
const ENDS = /["\\]/;
const QUOTED = "[quoted]";

/**
 * Replaces what an error message of a provider quotes from the request: error messages are logged, and prompts never
 * are. `text` is the message, at most an error body long. Matches end at quotes and backslashes. Linear in both texts.
 */
export function redactPrompt(text: string, sent: string): string {
  if (text.length < RUN_CHARS_MIN || sent.length < RUN_CHARS_MIN) return text;
  const places = placesOfRuns(text);
  const quoted = new Uint8Array(text.length);
  const mark = (sentAt: number) => {
    const block = sent.slice(sentAt, sentAt + RUN_CHARS_MIN);
    for (const textAt of places.get(block) ?? []) markRun(quoted, { text, textAt }, { sent, sentAt });
    places.delete(block);
  };
  const tail = Math.max(SENT_CHARS_MAX, sent.length - SENT_CHARS_MAX);
  for (let at = 0; at + RUN_CHARS_MIN <= Math.min(sent.length, SENT_CHARS_MAX); at += RUN_CHARS_MIN) mark(at);
  for (let at = tail; at + RUN_CHARS_MIN <= sent.length; at += RUN_CHARS_MIN) mark(at);
  return replaceMarked(text, quoted);
}

/** The positions of each substring of the minimum length. */
function placesOfRuns(text: string): Map<string, number[]> {
  const places = new Map<string, number[]>();
  for (let at = 0; at + RUN_CHARS_MIN <= text.length; at++) {
    const run = text.slice(at, at + RUN_CHARS_MIN);
    if (ENDS.test(run)) continue;
    const known = places.get(run);
    if (known) known.push(at);
    else places.set(run, [at]);
  }
  return places;
}

/** Marks a match as far as it extends in both directions. Stops at text that is already marked. */
function markRun(
  quoted: Uint8Array,
  { text, textAt }: { text: string; textAt: number },
  { sent, sentAt }: { sent: string; sentAt: number },
): void {
  const isNew = (i: number) => isSame(text, textAt + i, sent, sentAt + i) && quoted[textAt + i] === 0;
  let from = 0;
  let to = 0;
  while (isNew(from - 1)) from -= 1;
  while (isNew(to)) to += 1;
  if (!isName(sent, sentAt + from, sentAt + to)) quoted.fill(1, textAt + from, textAt + to);
}

/** Whether a match is the whole name of a field: what is wrong with a parameter is said by its name. */
function isName(sent: string, from: number, to: number): boolean {
  const isShort = to - from <= NAME_CHARS_MAX;
  return isShort && sent[from - 1] === '"' && sent.startsWith('":', to) && /^\w+$/.test(sent.slice(from, to));
}

function isSame(text: string, textAt: number, sent: string, sentAt: number): boolean {
  const sign = text[textAt];
  return sign !== undefined && sign === sent[sentAt] && !ENDS.test(sign);
}

function replaceMarked(text: string, quoted: Uint8Array): string {
  let kept = "";
  for (let at = 0; at < text.length; ) {
    let end = at;
    while (end < text.length && quoted[end] === quoted[at]) end++;
    kept += quoted[at] === 1 ? QUOTED : text.slice(at, end);
    at = end;
  }
  return kept;
}
