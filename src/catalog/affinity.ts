/**
 * Cache affinity: requests of one conversation go to the same route and key, because a provider caches prompts by key.
 * Every replica computes the same choice from the request alone, so nothing is shared. Pure. Source: PRV-17, PRV-18.
 *
 * The hash is FNV-1a with the finalizer of MurmurHash3. It is no cryptographic hash: it only has to spread, costs about a
 * nanosecond per character, and needs no call out of JavaScript. An attacker who finds colliding prompts only moves
 * requests of its own account to one key, which `prompt_cache_key` does as well.
 */

/**
 * Characters of a text that are hashed. More would cost time, and beginnings of this length seldom agree by accident.
 */
const TEXT_CHARS_MAX = 1_024;
/** Messages that are hashed. A conversation begins with few instructions, then the user's first message. */
const MESSAGES_MAX = 4;
/** Parts of one message's content that are hashed. */
const PARTS_MAX = 8;

const FNV_OFFSET = 0x811c9dc5;
const FNV_PRIME = 0x01000193;
/** 2^32 divided by the golden ratio: spreads successive ids. */
const ID_FACTOR = 0x9e3779b1;

/** Returns a number from 0 to below 1 for a route's or a key's id. */
export type Draw = (id: number) => number;

/**
 * What a request's affinity is computed from: `prompt_cache_key`, else `user`, else the first TEXT_CHARS_MAX characters
 * of each message up to the user's first one. Later turns of a conversation keep these, so all turns agree.
 * The account's id is hashed first, so that equal texts of two accounts have different affinities.
 */
export function affinityOf(accountId: number, body: Readonly<Record<string, unknown>>): number {
  const seed = hashText(FNV_OFFSET, String(accountId));
  const { prompt_cache_key: cacheKey, user, messages } = body;
  if (typeof cacheKey === "string" && cacheKey !== "") return hashText(seed, `key ${cacheKey}`);
  if (typeof user === "string" && user !== "") return hashText(seed, `user ${user}`);
  return Array.isArray(messages) ? hashBeginning(seed, messages) : seed;
}

/** The draws of a request with this affinity: the same on every replica. */
export function drawsOf(affinity: number): Draw {
  return (id) => finish(affinity ^ Math.imul(id, ID_FACTOR)) / 2 ** 32;
}

/**
 * Orders by weighted rendezvous hashing if `draw` is an affinity's, else at random by weight. Each item draws from an
 * exponential distribution of its weight, and the smallest comes first: in proportion to the weight, and if an item is
 * taken out, only its own share moves.
 */
export function rankOf(draw: number, weight: number): number {
  return -Math.log(1 - draw) / weight;
}

function hashBeginning(seed: number, messages: readonly unknown[]): number {
  let hash = seed;
  for (const message of messages.slice(0, MESSAGES_MAX)) {
    if (!isRecord(message)) return hash;
    const { role, content } = message;
    // A call or its output has none.
    hash = hashText(hash, typeof role === "string" ? role : "");
    if (typeof content === "string") hash = hashText(hash, content);
    else if (Array.isArray(content)) for (const part of content.slice(0, PARTS_MAX)) hash = hashPart(hash, part);
    if (role !== "system" && role !== "developer") return hash;
  }
  return hash;
}

function hashPart(hash: number, part: unknown): number {
  if (!isRecord(part)) return hash;
  if (typeof part.text === "string") return hashText(hash, part.text);
  const image = part.image_url;
  return isRecord(image) && typeof image.url === "string" ? hashText(hash, image.url) : hash;
}

function hashText(seed: number, text: string): number {
  let hash = seed;
  const end = Math.min(text.length, TEXT_CHARS_MAX);
  for (let i = 0; i < end; i++) hash = Math.imul(hash ^ text.charCodeAt(i), FNV_PRIME);
  return finish(hash ^ text.length);
}

/** Every bit of the input changes half of the output's bits. */
function finish(hash: number): number {
  let mixed = hash;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
