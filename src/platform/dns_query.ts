import { randomInt } from "node:crypto";
import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { connect, isIP, isIPv4, isIPv6 } from "node:net";
import { type Answer, decode, encode, RECURSION_DESIRED } from "dns-packet";
import ipaddr from "ipaddr.js";

/**
 * Questions to DNS servers, over our own sockets. Does not use `node:dns`: its look-ups take threads of the runtime's pool; on Deno it
 * reports SERVFAIL and REFUSED as "no such record", on Bun it splits TXT records of several pieces.
 */

/** A name without its final dot. Source: RFC 1035 › 2.3.4. */
const NAME_CHARS_MAX = 253;
const LABEL_BYTES_MAX = 63;
/** That can be asked at once. */
export const QUESTIONS_MAX = 16;
const TIMEOUT_MS_MAX = 10_000;
/** Larger answers are not decoded: names that chain pointers cost the square of it (16 KiB: 6 ms). */
const ANSWER_BYTES_MAX = 16 * 1024;
/** Without a TCP connection after this, or after half the time, UDP is used. A lost SYN is sent again after 1 s. */
const CONNECT_MS_MAX = 2000;
/** What has no answer over UDP is asked again after this, of the next server. */
const RESEND_EVERY_MS = 600;
const DNS_PORT = 53;
const PORT_MAX = 65_535;
const ID_MAX = 65_535;
const HEADER_BYTES = 12;

export type DnsRecordType = "A" | "AAAA" | "CNAME" | "TXT";
export type DnsQuestion = { name: string; type: DnsRecordType };
/** Names and addresses are in lower case; characters other than printable ASCII are replaced by "?". */
export type DnsRecord = { name: string; type: DnsRecordType; value: string; ttlSeconds: number };
/**
 * Why a question has no answer: the resolver did not answer in time, is unreachable, refuses such questions, failed itself (SERVFAIL),
 * or sent an invalid DNS message.
 */
export type DnsFailure = "silent" | "unreachable" | "refused" | "failed" | "garbled";
/** With a failure nothing is known. Without one, these are all records, in the order received. */
export type DnsAnswer = { failure: DnsFailure | null; records: DnsRecord[] };

export type DnsServer = { host: string; port: number };
/** `failed`: the servers that have answered with a failure. `cutBy`: the one whose last answer did not fit into a UDP packet. */
type Asked = { request: Buffer; answer?: DnsAnswer; failed: Set<DnsServer>; cutBy?: DnsServer };

/**
 * Asks all questions at once; answers are in the order of the questions. Network errors are failures in the answers. Throws Error for
 * an invalid resolver or name.
 * Uses TCP (RFC 7766): answers of any length fit, none is lost, and an off-path attacker cannot forge one. Falls back to UDP if the
 * resolver does not accept TCP.
 */
export async function queryDns(
  resolver: string,
  questions: readonly DnsQuestion[],
  timeoutMs: number,
): Promise<DnsAnswer[]> {
  const server = parseResolver(resolver);
  const asked = requestsFor(questions);
  const endsAt = performance.now() + Math.min(timeoutMs, TIMEOUT_MS_MAX);
  const failure = await askOverTcp(server, asked, endsAt);
  if (failure === "unreachable") await askOverUdp([server], asked, { endsAt });
  return asked.map(({ answer }) => answer ?? { failure, records: [] });
}

/**
 * The same, of several servers in turn: the next one is asked when one fails or is silent for a moment. Over UDP, and over TCP what
 * does not fit. Once one question has records, the others have `graceMs` more.
 */
export async function queryServers(
  servers: readonly DnsServer[],
  questions: readonly DnsQuestion[],
  { timeoutMs, graceMs }: { timeoutMs: number; graceMs: number },
): Promise<DnsAnswer[]> {
  const asked = requestsFor(questions);
  const endsAt = performance.now() + Math.min(timeoutMs, TIMEOUT_MS_MAX);
  await askOverUdp(servers, asked, { endsAt, graceMs });
  await Promise.all(
    asked.map(async (one) => {
      if (one.cutBy === undefined) return;
      delete one.answer;
      const failure = await askOverTcp(one.cutBy, [one], endsAt);
      one.answer ??= { failure, records: [] };
    }),
  );
  return asked.map(({ answer }) => answer ?? { failure: "silent", records: [] });
}

function requestsFor(questions: readonly DnsQuestion[]): Asked[] {
  if (questions.length > QUESTIONS_MAX) throw new Error(`At most ${QUESTIONS_MAX} DNS questions can be asked at once.`);
  return questions.map((question) => ({ request: requestOf(question), failed: new Set() }));
}

/** Resolves when all questions are answered, or with the failure of the others. */
function askOverTcp(server: DnsServer, asked: Asked[], endsAt: number): Promise<DnsFailure> {
  return new Promise((resolve) => {
    const left = endsAt - performance.now();
    let received = Buffer.alloc(0);
    const socket = connect(server);
    const end = (failure: DnsFailure) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(failure);
    };
    let timer = setTimeout(end, Math.min(left / 2, CONNECT_MS_MAX), "unreachable");
    socket.on("connect", () => {
      clearTimeout(timer);
      timer = setTimeout(end, endsAt - performance.now(), "silent");
      socket.write(Buffer.concat(asked.flatMap(({ request }) => [lengthOf(request), request])));
    });
    socket.on("error", () => end("unreachable"));
    socket.on("close", () => end("unreachable"));
    socket.on("data", (bytes: Buffer) => {
      received = Buffer.concat([received, bytes]);
      while (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) {
        const size = received.readUInt16BE(0);
        const message = received.subarray(2, 2 + size);
        const open = questionOf(asked, message);
        // One answer per question: a resolver that keeps sending cannot fill the memory.
        if (!open) return end("garbled");
        open.answer = readAnswer(message);
        received = received.subarray(2 + size);
      }
      if (asked.every(({ answer }) => answer)) end("silent");
    });
  });
}

/** Asks the unanswered questions; resolves when all are answered or time is up. Ignores messages that may be forged. */
function askOverUdp(
  servers: readonly DnsServer[],
  asked: Asked[],
  { endsAt, graceMs }: { endsAt: number; graceMs?: number },
): Promise<void> {
  return new Promise((resolve) => {
    const sockets = new Map<"udp4" | "udp6", UdpSocket>();
    let turn = 0;
    let timer = setTimeout(end, endsAt - performance.now());
    const resending = setInterval(send, RESEND_EVERY_MS);
    send();

    function end(): void {
      clearTimeout(timer);
      clearInterval(resending);
      for (const socket of sockets.values()) socket.close();
      resolve();
    }

    function send(): void {
      const server = servers[turn++ % servers.length];
      if (server) for (const { request, answer } of asked) if (!answer) sendTo(server, request);
    }

    /** By a socket of the server's family: its port is the system's choice, which a forger must guess. */
    function sendTo({ host, port }: DnsServer, request: Buffer): void {
      const family = isIPv4(host) ? "udp4" : "udp6";
      let socket = sockets.get(family);
      if (!socket) {
        socket = createSocket(family);
        // A packet that cannot be sent counts as lost; the next may arrive.
        socket.on("error", () => {});
        socket.on("message", (message, from) => {
          const server = servers.find((one) => one.host === from.address && one.port === from.port);
          if (server) take(server, message);
        });
        sockets.set(family, socket);
      }
      socket.send(request, port, host);
    }

    function take(server: DnsServer, message: Buffer): void {
      const one = questionOf(asked, message);
      if (!one) return;
      const answer = readAnswer(message);
      if (answer.failure !== null) one.failed.add(server);
      if (isCut(message)) one.cutBy = server;
      const next = servers.find((other) => !one.failed.has(other));
      if (answer.failure !== null && one.cutBy === undefined && next) {
        sendTo(next, one.request);
        return;
      }
      one.answer = answer;
      if (asked.every((other) => other.answer)) end();
      else if (graceMs !== undefined && answer.records.length > 0) {
        clearTimeout(timer);
        timer = setTimeout(end, Math.min(graceMs, endsAt - performance.now()));
      }
    }
  });
}

/** The open question that the message answers. An answer repeats its question's number and text. */
function questionOf(asked: Asked[], message: Buffer): Asked | undefined {
  return asked.find(
    ({ request, answer }) =>
      !answer &&
      message.subarray(0, 2).equals(request.subarray(0, 2)) &&
      message.subarray(HEADER_BYTES, request.length).equals(request.subarray(HEADER_BYTES)),
  );
}

/** "1.1.1.1", "127.0.0.1:5353", "2620:fe::fe" or "[2620:fe::fe]:5353". Throws Error. */
export function parseResolver(text: string): DnsServer {
  if (isIP(text) !== 0) return { host: canonical(text), port: DNS_PORT };
  const [, ipv6 = "", ipv4 = "", digits] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text) ?? [];
  const port = Number(digits);
  if ((!isIPv4(ipv4) && !isIPv6(ipv6)) || port < 1 || port > PORT_MAX)
    throw new Error(`"${text}" is not a DNS resolver: give an IP address, as in 1.1.1.1 or 127.0.0.1:5353.`);
  return { host: canonical(ipv4 || ipv6), port };
}

/** The form in which the system reports the sender of a packet. */
function canonical(host: string): string {
  return ipaddr.parse(host).toString();
}

/** Whether a question about this name, without a final dot, can be sent. */
export function isDnsName(name: string): boolean {
  const labels = name.split(".");
  const fits = labels.every((label) => label.length > 0 && label.length <= LABEL_BYTES_MAX);
  return fits && name.length <= NAME_CHARS_MAX && !/[^\x21-\x7e]/.test(name);
}

function requestOf({ name, type }: DnsQuestion): Buffer {
  if (!isDnsName(name)) throw new Error(`"${name}" is not a DNS name.`);
  return encode({
    id: randomInt(ID_MAX + 1),
    type: "query",
    flags: RECURSION_DESIRED,
    questions: [{ name: name.toLowerCase(), type }],
  });
}

function lengthOf({ length }: Buffer): Buffer {
  return Buffer.of(length >> 8, length & 0xff);
}

function readAnswer(message: Buffer): DnsAnswer {
  try {
    if (message.length > ANSWER_BYTES_MAX) throw new RangeError("the message is too long");
    const failure = failureOf(message.readUInt16BE(2));
    return { failure, records: failure === null ? (decode(message).answers ?? []).flatMap(toRecord) : [] };
  } catch {
    // A malformed message makes the reads above throw.
    return { failure: "garbled", records: [] };
  }
}

/** Whether the answer is incomplete because it does not fit into the packet. */
function isCut(message: Buffer): boolean {
  return message.length >= HEADER_BYTES && (message.readUInt16BE(2) & 0x8200) === 0x8200;
}

/** Source: RFC 1035 › 4.1.1. */
function failureOf(flags: number): DnsFailure | null {
  const [isAnswer, isFinal, isPartial, canFindOut] = [0x8000, 0x0400, 0x0200, 0x0080].map((bit) => (flags & bit) !== 0);
  const code = flags & 0x0f;
  if (!isAnswer || isPartial) return "garbled";
  if (code === 5) return "refused";
  // 3 is NXDOMAIN, which is a valid answer.
  if (code !== 0 && code !== 3) return "failed";
  // Neither recursive nor authoritative: a referral does not mean "no such record".
  return isFinal || canFindOut ? null : "refused";
}

/** None for other types. Throws RangeError. */
function toRecord(answer: Answer): DnsRecord[] {
  const about = { name: plainName(answer.name), ttlSeconds: "ttl" in answer ? (answer.ttl ?? 0) : 0 };
  switch (answer.type) {
    case "A":
    case "AAAA":
      return [{ ...about, type: answer.type, value: readAddress(answer.data, answer.type) }];
    case "CNAME":
      return [{ ...about, type: "CNAME", value: plainName(answer.data) }];
    case "TXT":
      return [{ ...about, type: "TXT", value: readText(answer.data) }];
    default:
      return [];
  }
}

function plainName(name: string): string {
  return name.toLowerCase().replace(/[^a-z0-9_.-]/g, "?");
}

/** The library reads on when a record is too short. */
function readAddress(text: string, type: "A" | "AAAA"): string {
  if (isIP(text) !== (type === "A" ? 4 : 6)) throw new RangeError("the record is not an address");
  return canonical(text);
}

/** One TXT record, joined from its pieces of up to 255 bytes. */
function readText(data: unknown): string {
  const pieces = Array.isArray(data) ? data : [data];
  const text = pieces.map((piece) => (Buffer.isBuffer(piece) ? piece.toString("latin1") : String(piece))).join("");
  return text.replace(/[^\x20-\x7e]/g, "?");
}
