import { Elysia, t } from "elysia";
import { accentCss, type Shades } from "../../accounts/accent.ts";
import type { Brand } from "../../accounts/brand_lookup.ts";
import { loadBrand, type StoredBrand, saveBrand, savePicture } from "../../accounts/brands_store.ts";
import { offeredProviders } from "../../accounts/identity_providers_store.ts";
import { LOGO_TYPE } from "../../accounts/pictures.ts";
import { OPERATOR } from "../../commerce/sellers_store.ts";
import { sellersOpenToSignUp } from "../../commerce/sign_up_settings_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { panelHostOf } from "../../http/host.ts";
import { factsOf } from "../../http/request_facts.ts";
import type { LanguageTag } from "../../languages/languages.ts";
import { resellersWithMailServer } from "../../messages/mail_servers_store.ts";
import { canMail } from "../../messages/senders.ts";
import { createBatchLoader } from "../../platform/batch_loader.ts";
import { inTime } from "../../platform/time_limit.ts";
import { LanguageField } from "./fields.ts";
import { signedIn } from "./panel_session.ts";

/** A reseller's brand: settings for the reseller itself, and the public part for anyone on its hosts. */

/** Above the limit of a picture, so that the error about a slightly larger one can name its size. */
const IMAGE_CHARS_MAX = 700_000;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

const BrandBody = t.Object({
  name: t.String({ maxLength: 200 }),
  accent: t.Union([t.String({ maxLength: 7 }), t.Null()]),
  support: t.Union([t.String({ maxLength: 1000 }), t.Null()]),
  language: t.Optional(t.Union([LanguageField, t.Null()])),
});
const Image = t.Union([t.String({ maxLength: IMAGE_CHARS_MAX }), t.Null()]);
const LogoBody = t.Object({ theme: t.Union([t.Literal("light"), t.Literal("dark")]), image: Image });
const IconBody = t.Object({ image: Image });

export function brandEndpoints(deps: Deps) {
  // In batches: anybody can ask, and as often as they like.
  const hasMailServer = createBatchLoader((resellerIds) => resellersWithMailServer(deps, resellerIds), { readsMax: 1 });
  const isOpenToSignUp = createBatchLoader((sellerIds) => sellersOpenToSignUp(deps, sellerIds), { readsMax: 1 });
  const offered = createBatchLoader((sellerIds) => offeredProviders(deps, sellerIds), { readsMax: 1 });
  return new Elysia({ normalize: false })
    .get("/brand/public", async ({ request, set }) => {
      const { resellerId } = await panelHostOf(deps, request);
      set.headers["x-request-id"] = factsOf(request).requestId;
      set.headers["cache-control"] = "no-store";
      const brand = publicBrand(await deps.brands.get(resellerId));
      const sendsMail = resellerId === null ? canMail(deps, 0) : inTime(hasMailServer(String(resellerId)));
      const seller = String(resellerId ?? OPERATOR);
      const [mails, open, identityProviders] = await Promise.all([
        sendsMail,
        inTime(isOpenToSignUp(seller)),
        inTime(offered(seller)),
      ]);
      return {
        ...brand,
        sendsMail: mails === true,
        signUp: mails === true && open === true,
        identityProviders: identityProviders ?? [],
      };
    })
    .use(
      signedIn(deps, "reseller")
        .get("/brand", async ({ person }) => {
          const brand = await loadBrand(deps, person.accountId);
          if (brand === undefined) throw new Refusal("not_found");
          return settingsOf(brand);
        })
        .put(
          "/brand",
          async ({ person, body }) =>
            settingsOf(await saveBrand({ ...deps, by: person.by }, { resellerId: person.accountId, ...body })),
          { body: BrandBody },
        )
        .put(
          "/brand/logo",
          async ({ person, body: { theme, image } }) => {
            const place = theme === "light" ? "logoLight" : "logoDark";
            const picture = { resellerId: person.accountId, place, image: bytesOf(image) } as const;
            return settingsOf(await savePicture({ ...deps, by: person.by }, picture));
          },
          { body: LogoBody },
        )
        .put(
          "/brand/icon",
          async ({ person, body: { image } }) => {
            const picture = { resellerId: person.accountId, place: "icon", image: bytesOf(image) } as const;
            return settingsOf(await savePicture({ ...deps, by: person.by }, picture));
          },
          { body: IconBody },
        ),
    );
}

/** The brand of a host, as pages show it. Picture URLs carry the brand's version, so that they can be cached for good. */
export type PublicBrand = { name: string; logoLight: string | null; logoDark: string | null; support: string | null };

export function publicBrand({ name, version, logoLight, logoDark, support }: Brand): PublicBrand {
  return {
    name,
    logoLight: logoLight === null ? null : `/brand/logo-light?v=${version}`,
    logoDark: logoDark === null ? null : `/brand/logo-dark?v=${version}`,
    support,
  };
}

/** A reseller's own brand settings. `preview`: the shades made from the accent, null without one. Pictures are data: URLs. */
export type BrandSettings = {
  name: string;
  accent: string | null;
  support: string | null;
  language: LanguageTag | null;
  version: string;
  adjusted: boolean;
  preview: { light: Shades; dark: Shades } | null;
  logoLight: string | null;
  logoDark: string | null;
  icon: string | null;
};

function settingsOf({
  name,
  accent,
  support,
  language,
  version,
  logoLight,
  logoDark,
  icon,
}: StoredBrand): BrandSettings {
  const made = accent === null ? null : accentCss(accent);
  return {
    name,
    accent,
    support,
    language,
    version,
    adjusted: made?.adjusted ?? false,
    preview: made && { light: made.light, dark: made.dark },
    // Not by URL: on the service's own host, the same URLs serve another brand.
    logoLight: dataUrl(LOGO_TYPE, logoLight),
    logoDark: dataUrl(LOGO_TYPE, logoDark),
    icon: dataUrl("image/png", icon),
  };
}

function dataUrl(type: string, bytes: Uint8Array | null): string | null {
  return bytes === null ? null : `data:${type};base64,${Buffer.from(bytes).toString("base64")}`;
}

/** Decodes base64. Throws InputError. */
function bytesOf(image: string | null): Uint8Array | null {
  if (image === null) return null;
  if (!BASE64.test(image)) throw new InputError("The picture must be base64.", "image");
  return Buffer.from(image, "base64");
}
