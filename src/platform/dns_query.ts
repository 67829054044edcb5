import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { connect, isIP, isIPv4, isIPv6 } from "node:net";
import ipaddr from "ipaddr.js";

/**
 * Questions to one DNS resolver. Does not use `node:dns`: on Deno it reports SERVFAIL and REFUSED as "no such record", on Bun it
 * splits TXT records of several pieces. Does not use `dns-packet` (30 lines fewer): it reads an A record of three bytes and the next
 * byte as an address, a dot inside a label as two labels, and blocks for 130 ms on chained pointers.
 */

/** A name without its final dot. Source: RFC 1035 › 2.3.4. */
const NAME_CHARS_MAX = 253;
const LABEL_BYTES_MAX = 63;
/** Labels and jumps of one name; a name with more loops. */
const NAME_STEPS_MAX = 128;
const QUESTIONS_MAX = 16;
const TIMEOUT_MS_MAX = 10_000;
/** Without a TCP connection after this, or after half the time, UDP is used. A lost SYN is sent again after 1 s. */
const CONNECT_MS_MAX = 2000;
const RESEND_EVERY_MS = 600;
const DNS_PORT = 53;
const PORT_MAX = 65_535;
const HEADER_BYTES = 12;
const TYPE_CODES = { A: 1, CNAME: 5, TXT: 16, AAAA: 28 } as const;

export type DnsRecordType = keyof typeof TYPE_CODES;
export type DnsQuestion = { name: string; type: DnsRecordType };
/** Names and addresses are in lower case; characters other than printable ASCII are replaced by "?". */
export type DnsRecord = { name: string; type: DnsRecordType; value: string };
/**
 * Why a question has no answer: the resolver did not answer in time, is unreachable, refuses such questions, failed itself (SERVFAIL),
 * or sent an invalid DNS message.
 */
export type DnsFailure = "silent" | "unreachable" | "refused" | "failed" | "garbled";
/** With a failure nothing is known. Without one, these are all records, in the order received. */
export type DnsAnswer = { failure: DnsFailure | null; records: DnsRecord[] };

type Address = { host: string; port: number };
type Asked = { request: Buffer; answer?: DnsAnswer };

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
  if (questions.length > QUESTIONS_MAX) throw new Error(`At most ${QUESTIONS_MAX} DNS questions can be asked at once.`);
  const address = parseResolver(resolver);
  const asked: Asked[] = questions.map((question) => ({ request: encode(question) }));
  const endsAt = performance.now() + Math.min(timeoutMs, TIMEOUT_MS_MAX);
  const failure = await askOverTcp(address, asked, endsAt);
  if (failure === "unreachable") await askOverUdp(address, asked, endsAt);
  return asked.map(({ answer }) => answer ?? { failure, records: [] });
}

/** Resolves when all questions are answered, or with the failure of the others. */
function askOverTcp(address: Address, asked: Asked[], endsAt: number): Promise<DnsFailure> {
  return new Promise((resolve) => {
    const left = endsAt - performance.now();
    let received = Buffer.alloc(0);
    const socket = connect(address);
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
        // One answer per question: a resolver that keeps sending cannot fill the memory.
        if (!takeAnswer(asked, received.subarray(2, 2 + size))) return end("garbled");
        received = received.subarray(2 + size);
      }
      if (asked.every(({ answer }) => answer)) end("silent");
    });
  });
}

/** Asks the unanswered questions; resolves when all are answered or time is up. Ignores messages that may be forged. */
function askOverUdp({ host, port }: Address, asked: Asked[], endsAt: number): Promise<void> {
  return new Promise((resolve) => {
    const socket = createSocket(isIPv4(host) ? "udp4" : "udp6");
    const send = () => {
      for (const { request, answer } of asked) if (!answer) socket.send(request, port, host);
    };
    const end = () => {
      clearTimeout(timer);
      clearInterval(resending);
      socket.close(() => resolve());
    };
    const timer = setTimeout(end, endsAt - performance.now());
    const resending = setInterval(send, RESEND_EVERY_MS);
    // A packet that cannot be sent counts as lost; the next may arrive.
    socket.on("error", () => {});
    socket.on("message", (message, from) => {
      if (from.address !== host || from.port !== port) return;
      if (takeAnswer(asked, message) && asked.every(({ answer }) => answer)) end();
    });
    send();
  });
}

/** Whether the message answers an open question. An answer repeats its question's number and text. */
function takeAnswer(asked: Asked[], message: Buffer): boolean {
  const open = asked.find(
    ({ request, answer }) =>
      !answer &&
      message.subarray(0, 2).equals(request.subarray(0, 2)) &&
      message.subarray(HEADER_BYTES, request.length).equals(request.subarray(HEADER_BYTES)),
  );
  if (open) open.answer = readAnswer(message);
  return open !== undefined;
}

/** "1.1.1.1", "127.0.0.1:5353", "2620:fe::fe" or "[2620:fe::fe]:5353". Throws Error. */
export function parseResolver(text: string): Address {
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

function encode({ name, type }: DnsQuestion): Buffer {
  const labels = name.toLowerCase().split(".");
  const isName = labels.every((label) => label.length > 0 && label.length <= LABEL_BYTES_MAX);
  if (!isName || name.length > NAME_CHARS_MAX || /[^\x21-\x7e]/.test(name))
    throw new Error(`"${name}" is not a DNS name.`);
  // One question, with recursion desired.
  const header = [randomInt(256), randomInt(256), 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
  const encoded = labels.flatMap((label) => [label.length, ...Buffer.from(label)]);
  return Buffer.from([...header, ...encoded, 0, 0, TYPE_CODES[type], 0, 1]);
}

function lengthOf({ length }: Buffer): Buffer {
  return Buffer.of(length >> 8, length & 0xff);
}

function readAnswer(message: Buffer): DnsAnswer {
  try {
    const failure = failureOf(message.readUInt16BE(2));
    return { failure, records: failure === null ? readRecords(message) : [] };
  } catch {
    // A malformed message makes the reads below throw.
    return { failure: "garbled", records: [] };
  }
}

/** Source: RFC 1035 › 4.1.1. */
function failureOf(flags: number): DnsFailure | null {
  const [isAnswer, isFinal, isCut, canFindOut] = [0x8000, 0x0400, 0x0200, 0x0080].map((bit) => (flags & bit) !== 0);
  const code = flags & 0x0f;
  if (!isAnswer || isCut) return "garbled";
  if (code === 5) return "refused";
  // 3 is NXDOMAIN, which is a valid answer.
  if (code !== 0 && code !== 3) return "failed";
  // Neither recursive nor authoritative: a referral does not mean "no such record".
  return isFinal || canFindOut ? null : "refused";
}

function readRecords(message: Buffer): DnsRecord[] {
  let at = HEADER_BYTES;
  for (let left = message.readUInt16BE(4); left > 0; left--) at = readName(message, at).end + 4;
  const records: DnsRecord[] = [];
  for (let left = message.readUInt16BE(6); left > 0; left--) {
    const { name, end } = readName(message, at);
    const code = message.readUInt16BE(end);
    const start = end + 10;
    at = start + message.readUInt16BE(end + 8);
    if (at > message.length) throw new RangeError("the record is longer than its message");
    const data = message.subarray(start, at);
    if (code === TYPE_CODES.A) records.push({ name, type: "A", value: readAddress(data, 4) });
    if (code === TYPE_CODES.AAAA) records.push({ name, type: "AAAA", value: readAddress(data, 16) });
    if (code === TYPE_CODES.CNAME) records.push({ name, type: "CNAME", value: readName(message, start).name });
    if (code === TYPE_CODES.TXT) records.push({ name, type: "TXT", value: readText(data) });
  }
  return records;
}

/** The name that begins at `start`, and the offset after it. */
function readName(message: Buffer, start: number): { name: string; end: number } {
  const labels: string[] = [];
  let at = start;
  let end: number | undefined;
  for (let steps = 0; steps < NAME_STEPS_MAX; steps++) {
    const size = message.readUInt8(at);
    if (size === 0) return { name: labels.join(".") || ".", end: end ?? at + 1 };
    if (size > LABEL_BYTES_MAX) {
      // A pointer to the rest of the name.
      end ??= at + 2;
      at = message.readUInt16BE(at) & 0x3fff;
    } else {
      labels.push(
        message
          .toString("latin1", at + 1, at + 1 + size)
          .toLowerCase()
          .replace(/[^a-z0-9_-]/g, "?"),
      );
      at += 1 + size;
    }
  }
  throw new RangeError("the name does not end");
}

function readAddress(data: Buffer, size: 4 | 16): string {
  if (data.length !== size) throw new RangeError("the address has a wrong length");
  return ipaddr.fromByteArray([...data]).toString();
}

/** One TXT record, joined from its pieces of up to 255 bytes. */
function readText(data: Buffer): string {
  const pieces: string[] = [];
  for (let at = 0; at < data.length; at += 1 + data.readUInt8(at)) {
    pieces.push(data.toString("latin1", at + 1, at + 1 + data.readUInt8(at)));
  }
  return pieces.join("").replace(/[^\x20-\x7e]/g, "?");
}
