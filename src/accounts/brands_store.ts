import { and, eq, sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import { type LanguageTag, languageTag } from "../languages/languages.ts";
import { BRAND_NAME_CHARS_MAX, BRAND_SUPPORT_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { sha256 } from "../platform/runtime.ts";
import { accounts, brands } from "../platform/schema_accounts.ts";
import { accentCss } from "./accent.ts";
import { checkEmail, checkName, isRowId } from "./input_checks.ts";
import { lockResellerRow } from "./locks_store.ts";
import { inTurn, type Turn, toIcon, toLogo } from "./pictures.ts";

/** Resellers' brands, one row each; only the reseller itself sets it. Source: DOM-8, PAN-7. */

const VERSION_CHARS = 16;
/** The version of a brand that was never saved: it has no pictures to serve. */
const NO_VERSION = "none";

/** A reseller's stored brand; without a row, only its account's name. */
export type StoredBrand = {
  resellerId: number;
  name: string;
  /** As chosen, #rrggbb. */
  accent: string | null;
  css: string;
  support: string | null;
  /** Of readers who chose none; null: that of their browser. */
  language: LanguageTag | null;
  logoLight: Uint8Array | null;
  logoDark: Uint8Array | null;
  icon: Uint8Array | null;
  version: string;
};
/** Without `language`, it stays. */
export type BrandSpec = Pick<StoredBrand, "name" | "accent" | "support"> & Partial<Pick<StoredBrand, "language">>;
export type PicturePlace = "logoLight" | "logoDark" | "icon";

/** The brand of a reseller; undefined: no such reseller. */
export async function loadBrand({ db }: { db: Db }, resellerId: number): Promise<StoredBrand | undefined> {
  return isRowId(resellerId) ? await find(db.orm, resellerId) : undefined;
}

/** Sets name, accent colour, support contact and language; pictures stay. Throws InputError. */
export async function saveBrand(
  deps: ChangeDeps,
  { resellerId, name, accent, support, language }: BrandSpec & { resellerId: number },
): Promise<StoredBrand> {
  const set = {
    name: checkName(name, { param: "name", charsMax: BRAND_NAME_CHARS_MAX }),
    accent: accent === null ? null : accent.toLowerCase(),
    css: accent === null ? "" : accentCss(accent).css,
    support: support === null ? null : checkSupport(support),
    ...(language !== undefined && { language }),
  };
  return save(deps, resellerId, async () => set);
}

/**
 * Sets a logo or the icon, or removes it (null). An icon generated from the logo follows the logo; an uploaded icon stays until it is
 * removed, and is then generated again. Throws InputError, too_many_requests, service_unavailable.
 */
export async function savePicture(
  deps: ChangeDeps,
  { resellerId, place, image }: { resellerId: number; place: PicturePlace; image: Uint8Array | null },
): Promise<StoredBrand> {
  return inTurn(resellerId, async (turn) => {
    const picture = image === null ? null : await (place === "icon" ? toIcon : toLogo)(turn, image);
    return save(deps, resellerId, async (before) => {
      const after = { ...before, [place]: picture };
      const iconOwn = place === "icon" ? picture !== null : before.iconOwn;
      return { ...after, iconOwn, icon: iconOwn ? after.icon : await makeIcon(turn, after) };
    });
  });
}

type Pictures = Pick<StoredBrand, PicturePlace>;
type Row = Omit<StoredBrand, "resellerId" | "version"> & { iconOwn: boolean };

async function makeIcon(turn: Turn, { logoLight, logoDark }: Pictures): Promise<Uint8Array | null> {
  const logo = logoLight ?? logoDark;
  return logo === null ? null : await toIcon(turn, logo);
}

/** Stores what `next` returns. Locks the reseller's row, which serializes concurrent calls. */
async function save(
  deps: ChangeDeps,
  resellerId: number,
  next: (before: Row) => Promise<Partial<Row>>,
): Promise<StoredBrand> {
  return changing(deps, async (tx) => {
    await lockResellerRow(tx, resellerId);
    const [kept] = await tx.select().from(brands).where(eq(brands.resellerId, resellerId));
    const before: Row = kept ? { ...kept, language: languageTag(kept.language) ?? null } : EMPTY;
    const { name, accent, css, support, language, iconOwn, ...pictures } = { ...before, ...(await next(before)) };
    const row = { name, accent, css, support, language, iconOwn, ...bytesOf(pictures) };
    const set = { ...row, version: versionOf(row) };
    await tx
      .insert(brands)
      .values({ resellerId, ...set })
      .onConflictDoUpdate({ target: brands.resellerId, set });
    const saved = await find(tx, resellerId);
    if (!saved) throw new Error(`the brand of ${resellerId} vanished`);
    return saved;
  });
}

/** An empty name means the account's name. */
const EMPTY: Row = {
  name: "",
  accent: null,
  css: "",
  support: null,
  language: null,
  logoLight: null,
  logoDark: null,
  icon: null,
  iconOwn: false,
};

/** An e-mail address or an https:// URL. Throws InputError. */
function checkSupport(value: string): string {
  const wrong = new InputError("The support contact must be an e-mail address or an https:// address.", "support");
  const support = value.trim();
  if (support.length > BRAND_SUPPORT_CHARS_MAX) throw wrong;
  if (/^https:\/\//i.test(support)) {
    const url = URL.canParse(support) ? new URL(support) : undefined;
    // A user name before the host disguises the real host.
    if (url === undefined || url.username !== "" || url.password !== "") throw wrong;
    return url.href;
  }
  try {
    return checkEmail(support);
  } catch {
    throw wrong; // The check names another field.
  }
}

function bytesOf({ logoLight, logoDark, icon }: Pictures) {
  const buffer = (bytes: Uint8Array | null) => (bytes === null ? null : Buffer.from(bytes));
  return { logoLight: buffer(logoLight), logoDark: buffer(logoDark), icon: buffer(icon) };
}

/** A digest of the whole brand: the URL of a picture with this version never changes its content. */
function versionOf(row: Row): string {
  const parts = [row.name, row.accent, row.css, row.support, row.logoLight, row.logoDark, row.icon];
  const digests = parts.map((part) => (part === null ? "-" : Buffer.from(sha256(part)).toString("hex")));
  return Buffer.from(sha256(digests.join(" ")))
    .toString("base64url")
    .slice(0, VERSION_CHARS);
}

async function find(tx: Tx, resellerId: number): Promise<StoredBrand | undefined> {
  const [row] = await tx
    .select({
      resellerId: accounts.id,
      name: sql<string>`coalesce(nullif(${brands.name}, ''), ${accounts.name})`,
      accent: brands.accent,
      css: sql<string>`coalesce(${brands.css}, '')`,
      support: brands.support,
      language: brands.language,
      logoLight: brands.logoLight,
      logoDark: brands.logoDark,
      icon: brands.icon,
      version: sql<string>`coalesce(${brands.version}, ${NO_VERSION})`,
    })
    .from(accounts)
    .leftJoin(brands, eq(brands.resellerId, accounts.id))
    .where(and(eq(accounts.id, resellerId), eq(accounts.role, "reseller")));
  return row && { ...row, language: languageTag(row.language) ?? null };
}
