import { createHash, generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";
import { ok, PASSWORD, type PanelSession } from "./panel_client.ts";

/** A passkey in software: what a browser and an authenticator send, and what a dishonest one could send. */

const FLAGS = { present: 0x01, verified: 0x04, attested: 0x40 } as const;
const AAGUID_BYTES = 16;

/** What differs from an honest answer. */
export type Lie = {
  origin?: string;
  /** The relying party id that is signed. */
  host?: string;
  challenge?: string;
  type?: string;
  counter?: number;
  /** Whether the device checked a fingerprint or a PIN. */
  verified?: boolean;
  /** Signs with another key. */
  forged?: boolean;
  crossOrigin?: boolean;
};
type Where = { host: string; origin: string };

/** A new passkey. `counter` counts its signatures; 0 stays 0. */
export function softwarePasskey({ host, origin }: Where, { counter = 1 }: { counter?: number } = {}) {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const credentialId = randomBytes(32);
  const id = credentialId.toString("base64url");
  let count = counter;
  const next = (lie: Lie) => lie.counter ?? (counter === 0 ? 0 : count++);
  const clientData = (type: string, challenge: string, lie: Lie) =>
    Buffer.from(
      JSON.stringify({
        type: lie.type ?? type,
        challenge: lie.challenge ?? challenge,
        origin: lie.origin ?? origin,
        crossOrigin: lie.crossOrigin ?? false,
      }),
    );
  const authData = (lie: Lie, attested?: Buffer) => {
    const counted = Buffer.alloc(4);
    counted.writeUInt32BE(next(lie));
    const flags = FLAGS.present | (lie.verified === false ? 0 : FLAGS.verified) | (attested ? FLAGS.attested : 0);
    return Buffer.concat([sha256(lie.host ?? host), Buffer.of(flags), counted, attested ?? Buffer.alloc(0)]);
  };
  const rest = { id, rawId: id, type: "public-key", clientExtensionResults: {}, authenticatorAttachment: "platform" };
  return {
    id,
    /** The answer to creation options. `statement`: an attestation format, and its CBOR map. */
    create(
      { challenge }: { challenge: string },
      { statement = { fmt: "none", attStmt: Buffer.of(0xa0) }, ...lie }: Lie & { statement?: Statement } = {},
    ) {
      const length = Buffer.alloc(2);
      length.writeUInt16BE(credentialId.length);
      const attested = Buffer.concat([Buffer.alloc(AAGUID_BYTES), length, credentialId, coseKey(publicKey)]);
      const attestationObject = Buffer.concat([
        Buffer.of(0xa3),
        ...[cborText("fmt"), cborText(statement.fmt), cborText("attStmt"), statement.attStmt],
        ...[cborText("authData"), cborBytes(authData(lie, attested))],
      ]);
      return {
        ...rest,
        response: {
          clientDataJSON: clientData("webauthn.create", challenge, lie).toString("base64url"),
          attestationObject: attestationObject.toString("base64url"),
          transports: ["internal", "invented"],
        },
      };
    },
    /** The answer to request options. */
    get({ challenge }: { challenge: string }, lie: Lie = {}) {
      const data = authData(lie);
      const json = clientData("webauthn.get", challenge, lie);
      const key = lie.forged ? generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey : privateKey;
      return {
        ...rest,
        response: {
          authenticatorData: data.toString("base64url"),
          clientDataJSON: json.toString("base64url"),
          signature: sign("sha256", Buffer.concat([data, sha256(json)]), key).toString("base64url"),
          userHandle: "AAAA",
        },
      };
    },
  };
}

/** Adds a passkey to the account, on the session's host, with the password. */
export async function addPasskeyTo(
  session: PanelSession,
  { name = "phone", counter }: { name?: string; counter?: number } = {},
): Promise<SoftwarePasskey> {
  const { host } = session;
  const passkey = softwarePasskey({ host, origin: `http://${host}` }, { ...(counter !== undefined && { counter }) });
  const options = ok(await session.post("/settings/passkeys/begin", { proof: { password: PASSWORD } }));
  ok(await session.post("/settings/passkeys", { name, response: passkey.create(options) }));
  return passkey;
}

export type SoftwarePasskey = ReturnType<typeof softwarePasskey>;
export type Statement = { fmt: string; attStmt: Buffer };

/** A statement with a certificate, which would name a server to ask. */
export const CERTIFIED: Statement = {
  fmt: "packed",
  attStmt: Buffer.concat([
    Buffer.of(0xa3),
    ...[cborText("alg"), Buffer.of(0x26), cborText("sig"), cborBytes(randomBytes(70))],
    ...[cborText("x5c"), Buffer.of(0x81), cborBytes(randomBytes(200))],
  ]),
};

/** A public key for ES256. Source: RFC 9052 › 7. */
function coseKey(publicKey: KeyObject): Buffer {
  const { x = "", y = "" } = publicKey.export({ format: "jwk" });
  const coordinate = (text: string) => cborBytes(Buffer.from(text, "base64url"));
  return Buffer.concat([
    Buffer.of(0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21),
    coordinate(x),
    Buffer.of(0x22),
    coordinate(y),
  ]);
}

function cborText(text: string): Buffer {
  return Buffer.concat([Buffer.of(0x60 + text.length), Buffer.from(text)]);
}

function cborBytes(bytes: Buffer): Buffer {
  const head =
    bytes.length < 256 ? Buffer.of(0x58, bytes.length) : Buffer.of(0x59, bytes.length >> 8, bytes.length & 255);
  return Buffer.concat([head, bytes]);
}

function sha256(data: string | Buffer): Buffer {
  return createHash("sha256").update(data).digest();
}
