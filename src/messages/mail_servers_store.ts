import { eq, sql } from "drizzle-orm";
import { checkEmail, checkName } from "../accounts/input_checks.ts";
import { InputError, sentence } from "../errors.ts";
import { BRAND_NAME_CHARS_MAX, MAIL_PASSWORD_CHARS_MAX, MAIL_PORTS, MAIL_USER_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { encrypt } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import { mailServers } from "../platform/schema_outbox.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import { forgetBreaker } from "./mail_breakers_store.ts";

/** Resellers' own mail servers. A password is stored encrypted and never read by a page. Source: MSG-8. */

const HOST = /^(?=.{1,253}$)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$/;

/** As the page shows it. */
export type MailServer = {
  host: string;
  port: number;
  userName: string | null;
  hasPassword: boolean;
  fromAddress: string;
  fromName: string;
};
export type StoredMailServer = Omit<MailServer, "hasPassword"> & { smtpPasswordCiphertext: Uint8Array | null };
/** `password` undefined: the stored one stays; null: none. */
export type MailServerSpec = Omit<MailServer, "hasPassword"> & { password?: string | null };

export async function findMailServer({ db }: { db: Db }, resellerId: number): Promise<StoredMailServer | undefined> {
  const [row] = await db.orm.select().from(mailServers).where(eq(mailServers.resellerId, resellerId));
  return row;
}

/** Which of these resellers have a server. By id as text, as a batch loader asks. */
export async function resellersWithMailServer(
  { db }: { db: Db },
  resellerIds: readonly string[],
): Promise<Map<string, true>> {
  const rows = await db.orm
    .select({ resellerId: mailServers.resellerId })
    .from(mailServers)
    .where(sql`${mailServers.resellerId} = any(${`{${resellerIds.join(",")}}`}::text::bigint[])`);
  return new Map(rows.map(({ resellerId }) => [String(resellerId), true]));
}

/** What pages may see of a server. */
export function shownMailServer({
  host,
  port,
  userName,
  smtpPasswordCiphertext,
  fromAddress,
  fromName,
}: StoredMailServer): MailServer {
  return { host, port, userName, hasPassword: smtpPasswordCiphertext !== null, fromAddress, fromName };
}

/** Sets a reseller's server. The caller has checked that its host is public. Throws InputError. */
export async function saveMailServer(
  deps: ChangeDeps & { config: { secretKey: Uint8Array } },
  resellerId: number,
  spec: MailServerSpec,
): Promise<void> {
  const { secretKey } = deps.config;
  const { password, ...plain } = checkMailServer(spec);
  await changing(deps, async (tx) => {
    if (password) await holdSecretKey(tx, secretKey);
    const [before] = await tx.select().from(mailServers).where(eq(mailServers.resellerId, resellerId)).for("update");
    // A stored password is used only for the server that it was entered for: another server would learn it.
    if (password === undefined && before?.smtpPasswordCiphertext && before.host !== plain.host)
      throw new InputError("Enter the password again: it is for another server.", "password");
    const smtpPasswordCiphertext =
      password === undefined
        ? plain.userName === null
          ? null
          : (before?.smtpPasswordCiphertext ?? null)
        : password === null
          ? null
          : encrypt(secretKey, password);
    if (plain.userName !== null && smtpPasswordCiphertext === null)
      throw new InputError("Enter the password of this user name.", "password");
    const set = { ...plain, smtpPasswordCiphertext, updatedAt: sql`clock_timestamp()` };
    await tx
      .insert(mailServers)
      .values({ resellerId, ...set })
      .onConflictDoUpdate({ target: mailServers.resellerId, set });
    await forgetBreaker(tx, resellerId);
  });
}

export async function removeMailServer(deps: ChangeDeps, resellerId: number): Promise<void> {
  await changing(deps, async (tx) => {
    await tx.delete(mailServers).where(eq(mailServers.resellerId, resellerId));
    await forgetBreaker(tx, resellerId);
  });
}

/** The checked and normalized values. Throws InputError. */
function checkMailServer({ host, port, userName, fromAddress, fromName, password }: MailServerSpec): MailServerSpec {
  const name = host.trim().toLowerCase().replace(/\.$/, "");
  if (!HOST.test(name)) throw new InputError("Enter the server's name, as in mail.example.com.", "host");
  if (!MAIL_PORTS.includes(port))
    throw new InputError(
      sentence("The port must be one of {mailPorts}.", { mailPorts: MAIL_PORTS.join(", ") }),
      "port",
    );
  const user = userName?.trim() ?? "";
  if (user.length > MAIL_USER_CHARS_MAX || /\p{Cc}/u.test(user))
    throw new InputError(
      sentence("The user name must be plain text of at most {mailUserCharsMax} characters.", {
        mailUserCharsMax: MAIL_USER_CHARS_MAX,
      }),
      "userName",
    );
  if (password && (password.length > MAIL_PASSWORD_CHARS_MAX || /\p{Cc}/u.test(password)))
    throw new InputError(
      sentence("The password must be plain text of at most {mailPasswordCharsMax} characters.", {
        mailPasswordCharsMax: MAIL_PASSWORD_CHARS_MAX,
      }),
      "password",
    );
  let sender: string;
  try {
    sender = checkEmail(fromAddress);
  } catch {
    throw new InputError("This is not an e-mail address.", "fromAddress"); // The check would name another field.
  }
  if (/[,;<>"\\()]/.test(sender)) throw new InputError("This is not an e-mail address.", "fromAddress");
  return {
    ...{ host: name, port, userName: user === "" ? null : user, fromAddress: sender },
    fromName: checkName(fromName, { param: "fromName", charsMax: BRAND_NAME_CHARS_MAX }),
    ...(password !== undefined && { password: password === "" ? null : password }),
  };
}
