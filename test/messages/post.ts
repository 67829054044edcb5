import { randomInt } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type ParsedMail, simpleParser } from "mailparser";
import { SMTPServer } from "smtp-server";

/** A real SMTP server whose mails are read, and a real receiver of webhooks. Both do as they are told. */

export type ReceivedMail = ParsedMail & { envelopeTo: string[]; raw: string };

export type MailBox = Awaited<ReturnType<typeof openMailBox>>;

type BoxOptions = {
  host?: string;
  port?: number;
  /** `fromStart`: no STARTTLS. `hidesStartTls`: does not say that it has it, as after an attack on the way. */
  tls?: { key: string; cert: string; fromStart?: boolean; hidesStartTls?: boolean };
};

/** An address of loopback of one's own: resellers' mail servers have one of few ports, and tests run beside each other. */
export function ownAddress(): string {
  return `127.${randomInt(1, 255)}.${randomInt(1, 255)}.${randomInt(1, 255)}`;
}

/** Listens on loopback. `refuses`: the answer to a recipient, as in "550 No such user"; `slowMs`: before each mail is accepted. */
export async function openMailBox({ host = "127.0.0.1", port = 0, tls }: BoxOptions = {}) {
  const mails: ReceivedMail[] = [];
  const does: {
    refuses: (address: string) => string | null;
    slowMs: number;
    most: number;
    now: number;
    users: string[];
    /** Whether each mail came by TLS. */
    secure: boolean[];
    /** How clients called themselves. */
    greetings: string[];
  } = {
    refuses: () => null,
    slowMs: 0,
    most: 0,
    now: 0,
    users: [],
    secure: [],
    greetings: [],
  };
  const server = new SMTPServer({
    authOptional: true,
    ...(tls === undefined
      ? { disabledCommands: ["STARTTLS"] }
      : {
          ...{ key: tls.key, cert: tls.cert, secure: tls.fromStart === true, hideSTARTTLS: tls.hidesStartTls === true },
          ...(tls.hidesStartTls && { disabledCommands: ["STARTTLS"] }),
        }),
    allowInsecureAuth: true,
    onAuth({ username }, _session, done) {
      does.users.push(username ?? "");
      done(null, { user: username ?? "" });
    },
    onRcptTo({ address }, _session, done) {
      const answer = does.refuses(address);
      if (answer === null) return done();
      done(Object.assign(new Error(answer.slice(4)), { responseCode: Number(answer.slice(0, 3)) }));
    },
    onData(stream, session, done) {
      does.secure.push(session.secure);
      does.greetings.push(session.hostNameAppearsAs);
      does.most = Math.max(does.most, ++does.now);
      const pieces: Buffer[] = [];
      stream.on("data", (piece: Buffer) => pieces.push(piece));
      stream.on("end", async () => {
        const raw = Buffer.concat(pieces);
        const parsed = await simpleParser(raw);
        await new Promise((resolve) => setTimeout(resolve, does.slowMs));
        mails.push({
          ...parsed,
          raw: raw.toString("latin1"),
          envelopeTo: session.envelope.rcptTo.map(({ address }) => address),
        });
        does.now--;
        done();
      });
    },
  });
  server.on("error", () => {}); // Clients that break off.
  await new Promise<void>((resolve) => server.listen(port, host, resolve));
  const listening = (server.server.address() as AddressInfo).port;
  return {
    url: `${tls?.fromStart ? "smtps" : "smtp"}://${host}:${listening}`,
    host,
    port: listening,
    mails,
    does,
    /** Mails to one address, in the order in which they arrived. */
    to: (address: string) => mails.filter(({ envelopeTo }) => envelopeTo.includes(address)),
    close: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

export type Call = { headers: Record<string, string>; body: string };

type Answer = { status: number; body?: string; headers?: Record<string, string> } | null;

/** `answer`: what each call gets; null: it hangs. */
export async function openReceiver() {
  const calls: Call[] = [];
  const does: { answer: (call: Call) => Answer | Promise<Answer> } = {
    answer: () => ({ status: 204 }),
  };
  const server: Server = createServer((request: IncomingMessage, response: ServerResponse) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", async () => {
      const call = { headers: request.headers as Record<string, string>, body: Buffer.concat(pieces).toString() };
      calls.push(call);
      const answer = await does.answer(call);
      if (answer !== null) response.writeHead(answer.status, answer.headers).end(answer.body ?? "");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/hook`,
    hostPort: `127.0.0.1:${port}`,
    calls,
    does,
    /** Ends all calls that have no answer yet. */
    hangUp: () => server.closeAllConnections(),
    close: () => {
      server.closeAllConnections();
      return new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
