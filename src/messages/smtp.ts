import { isIP, type Socket } from "node:net";
import { domainToASCII } from "node:url";
import { assertCallable, mayBePrivate } from "../catalog/guard.ts";
import type { Config } from "../config.ts";
import { connectToAny } from "../platform/connect_any.ts";
import { type Address, resolveName } from "../platform/names.ts";
import type { Owner } from "../platform/share_limit.ts";
import { within } from "../platform/time_limit.ts";

/**
 * Sends one mail by SMTP. A reseller's server is called only at a public address, which was checked. The operator's is
 * called as configured. Source: MSG-8.
 */

const CONNECT_MS_MAX = 10_000;
const GREETING_MS_MAX = 15_000;
/** The longest silence of the server. */
const IDLE_MS_MAX = 30_000;
/** The longest time for a whole mail. Shorter than a claim. */
const SEND_MS_MAX = 60_000;
const TLS_PORT = 465;
const SUBMISSION_PORT = 587;

/** One address, without the characters that separate, quote or comment addresses. */
const PLAIN_ADDRESS = /^[^\s@,;:<>()[\]\\"\p{Cc}]+@[^\s@,;:<>()[\]\\"\p{Cc}]+$/u;

/** A mail server and its sender. */
export type SmtpServer = {
  host: string;
  port: number;
  /** TLS from the start; otherwise STARTTLS if the server offers it. */
  tls: boolean;
  user: string | null;
  password: string | null;
  from: { name: string; address: string };
  /** The reseller whose server it is: only public addresses are called. null: the operator's, which may be anywhere. */
  owner: Owner | null;
  /**
   * `host:port` pairs that may be private, and may get a password without TLS, because they are in the operator's own
   * network.
   */
  allowPrivate: readonly string[];
};

export type Mail = {
  to: { name: string; address: string };
  subject: string;
  text: string;
  html: string;
  /** The same in each attempt, so that a mail that arrives twice can be recognized. */
  messageId: string;
  headers: Record<string, string>;
  /** Pictures of the HTML. */
  pictures: { id: string; png: Uint8Array }[];
};

/**
 * Why a mail was not accepted. `server`: any other mail would fail too. `mail`: this mail or its address, for now.
 * `refused`: this mail or its address, for good.
 */
export type MailFault = "server" | "mail" | "refused";

/** The error for a mail that was not accepted. The message is for the person who set up the server. */
export class MailError extends Error {
  override readonly name = "MailError";
  readonly fault: MailFault;
  /** The code of the server's answer; null: there was none. */
  readonly status: number | null;

  constructor(
    message: string,
    { fault, status = null, cause }: { fault: MailFault; status?: number | null; cause?: unknown },
  ) {
    super(message, { cause });
    this.fault = fault;
    this.status = status;
  }
}

/** The operator's server, from SMTP_URL and MAIL_FROM; null: there is none. */
export function operatorServer({
  smtpUrl,
  mailFrom,
  messagesAllowPrivate,
}: Pick<Config, "smtpUrl" | "mailFrom" | "messagesAllowPrivate">): SmtpServer | null {
  if (smtpUrl === "" || mailFrom === null) return null;
  const { protocol, hostname, port, username, password } = new URL(smtpUrl);
  const tls = protocol === "smtps:";
  return {
    host: hostname.replace(/^\[|\]$/g, ""),
    port: port === "" ? (tls ? TLS_PORT : SUBMISSION_PORT) : Number(port),
    tls,
    user: username === "" ? null : decodeURIComponent(username),
    password: password === "" ? null : decodeURIComponent(password),
    from: mailFrom,
    owner: null,
    allowPrivate: messagesAllowPrivate,
  };
}

/** A reseller's server: TLS from the start on port 465 only. */
export function resellerServer(
  {
    host,
    port,
    userName,
    fromAddress,
    fromName,
    resellerId,
  }: { host: string; port: number; userName: string | null; fromAddress: string; fromName: string; resellerId: number },
  password: string | null,
  allowPrivate: readonly string[],
): SmtpServer {
  const from = { name: fromName, address: fromAddress };
  const owner = { accountId: resellerId, tenantId: resellerId };
  return { host, port, tls: port === TLS_PORT, user: userName, password, from, owner, allowPrivate };
}

/** Returns the server's answer when it has accepted the mail. Throws MailError. */
export async function sendMail(server: SmtpServer, mail: Mail): Promise<string> {
  // The library would read a comma as the start of a second address.
  if (!PLAIN_ADDRESS.test(mail.to.address)) throw new MailError("This address cannot be mailed.", { fault: "refused" });
  let socket: Socket | undefined;
  try {
    socket = await connected(await addressesOf(server), server.port);
    return await within(
      SEND_MS_MAX,
      submit(server, mail, socket),
      () => new Error(`no end within ${SEND_MS_MAX / 1000} s`),
    );
  } catch (error) {
    throw toMailError(error);
  } finally {
    // Also disconnects a server that sends one byte a minute.
    socket?.destroy();
  }
}

/**
 * The addresses to connect to: those of a reseller's server are checked. Throws GuardError, NameError, and a Refusal while too many
 * names are looked up.
 */
export async function addressesOf({
  host,
  port,
  owner,
  allowPrivate,
}: Pick<SmtpServer, "host" | "port" | "owner" | "allowPrivate">): Promise<Address[]> {
  if (owner !== null) {
    const checked = assertCallable(urlOf(host, port), { allowPrivate, owner, purpose: "The mail server" });
    return (await within(CONNECT_MS_MAX, checked)).addresses;
  }
  const family = isIP(host);
  return family === 0 ? await resolveName(host) : [{ address: host, family: family === 6 ? 6 : 4 }];
}

/** The guard checks URLs. */
function urlOf(host: string, port: number): string {
  return `http://${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
}

/** A connection to the first address that accepts one. */
async function connected(addresses: readonly Address[], port: number): Promise<Socket> {
  const late = new Error("the mail server does not answer");
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(late), CONNECT_MS_MAX);
  try {
    return (await connectToAny(addresses, port, limit.signal)).socket;
  } finally {
    clearTimeout(timer);
  }
}

async function submit(server: SmtpServer, mail: Mail, connection: Socket): Promise<string> {
  const { host, port, tls, user, password, from, allowPrivate } = server;
  const { createTransport } = await import("nodemailer");
  const transport = createTransport({
    connection,
    host,
    port,
    secure: tls,
    // Otherwise an attacker who removes STARTTLS from the server's greeting could read the password.
    requireTLS: user !== null && !mayBePrivate(urlOf(host, port), allowPrivate),
    ...(user !== null && { auth: { user, pass: password ?? "" } }),
    ...(isIP(host) === 0 && { tls: { servername: host } }),
    // The name of this machine would reveal the operator.
    name: domainOf(from.address),
    greetingTimeout: GREETING_MS_MAX,
    socketTimeout: IDLE_MS_MAX,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  const { response } = await transport.sendMail({
    envelope: { from: from.address, to: [mail.to.address] },
    from,
    to: mail.to,
    subject: mail.subject,
    text: mail.text,
    html: mail.html,
    messageId: mail.messageId,
    headers: mail.headers,
    xMailer: false,
    attachments: mail.pictures.map(({ id, png }) => ({
      cid: id,
      filename: `${id}.png`,
      contentType: "image/png",
      contentDisposition: "inline",
      content: Buffer.from(png),
    })),
  });
  return response;
}

/** The domain of an address in its DNS form, because EHLO and message ids are ASCII. */
export function domainOf(address: string): string {
  const domain = address.slice(address.lastIndexOf("@") + 1);
  return domainToASCII(domain) || domain;
}

function toMailError(error: unknown): MailError {
  if (error instanceof MailError) return error;
  const message = error instanceof Error ? error.message : String(error);
  const { code, command, responseCode } = error as { code?: unknown; command?: unknown; responseCode?: unknown };
  const status = typeof responseCode === "number" ? responseCode : null;
  const about = { code, command, status };
  return new MailError(plainWords(message, about), { fault: faultOf(about), status, cause: error });
}

type Failure = { code: unknown; command: unknown; status: number | null };

/** The code by which a server says that it closes the connection. Source: RFC 5321 › 3.8. */
const CLOSING = 421;

/**
 * Only an answer about this mail or its recipient is attributed to the mail. The sender's address is the same in every
 * mail, so a refusal of it is the server's, like a refused sign-in.
 */
function faultOf({ code, command, status }: Failure): MailFault {
  const isAboutMail = (code === "EENVELOPE" || code === "EMESSAGE") && command !== "MAIL FROM" && status !== CLOSING;
  if (!isAboutMail) return "server";
  // Without an answer, the library has refused to send the mail, and would refuse it again.
  return status === null || status >= 500 ? "refused" : "mail";
}

/** Explains errors of TLS; the text of others is clear. */
function plainWords(message: string, { code, command }: Failure): string {
  if (/certificate|altnames/i.test(message)) return `The mail server's TLS certificate is not valid: ${message}`;
  if (code === "ETLS" && command === "STARTTLS")
    return `The mail server did not begin TLS, and the password is not sent without it: ${message}`;
  return message;
}
