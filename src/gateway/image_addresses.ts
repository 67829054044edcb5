import { type Static, Type } from "@sinclair/typebox";
import { TypeCompiler } from "@sinclair/typebox/compiler";
import { decrypt, deriveKey, encrypt } from "../platform/crypto.ts";

/**
 * The addresses of images that clients get for `response_format: "url"`. An address is on the request's own host and ends in a token,
 * which is encrypted, so that the provider's address cannot be read from it, and bound to the host and a time. Nothing is stored: the
 * token has all that is needed to fetch the image. Source: IMG-4, IMG-5.
 */

const PURPOSE = "image-address";
const PATH = "/v1/images/files/";
/** Longer than the token of the longest URL that the outbound guard accepts, which is 2,048 ASCII characters. */
const TOKEN_CHARS_MAX = 4096;

const ImageToken = Type.Object({
  /** The provider's address, percent-encoded. */
  url: Type.String(),
  /** The provider that answered with it. */
  providerId: Type.Integer(),
  /** The provider's key that the image was ordered with: another key may belong to another account there. */
  keyId: Type.Integer(),
  /** The account that ordered the image, and its tenant: fetching it uses their shares. */
  accountId: Type.Integer(),
  tenantId: Type.Integer(),
  expiresUnixMs: Type.Integer(),
});
export type ImageToken = Static<typeof ImageToken>;
const isToken = TypeCompiler.Compile(ImageToken);

/** The URL of an image. `origin` is that of the request which ordered it, as clients reach it. */
export function imageUrl(secretKey: Uint8Array, origin: string, token: ImageToken): string {
  const sealed = encrypt(deriveKey(secretKey, PURPOSE), JSON.stringify(token), new URL(origin).hostname);
  return `${origin}${PATH}${sealed.toString("base64url")}`;
}

/** What a URL's token says; undefined if it was changed, or made for another host or with another SECRET_KEY. */
export function openImageToken(secretKey: Uint8Array, hostName: string, text: string): ImageToken | undefined {
  const sealed = Buffer.from(text.slice(0, TOKEN_CHARS_MAX), "base64url");
  // Decoding ignores what is no base64url: another spelling is another address.
  if (sealed.toString("base64url") !== text) return undefined;
  try {
    const token: unknown = JSON.parse(decrypt(deriveKey(secretKey, PURPOSE), sealed, hostName));
    return isToken.Check(token) ? token : undefined;
  } catch {
    return undefined; // `decrypt` throws.
  }
}
