import { connect, isIP, isIPv4, isIPv6 } from "node:net";
import ipaddr from "ipaddr.js";

/**
 * Questions to one DNS resolver, over TCP (RFC 7766): long answers need no second way, and nobody off the path can forge one.
 * Not `node:dns`: on Deno it gives SERVFAIL and REFUSED out as "no such record", on Bun it tears long TXT records apart.
 */

/** A name without the dot at its end. Source: RFC 1035 › 2.3.4. */
const NAME_CHARS_MAX = 253;
const LABEL_BYTES_MAX = 63;
/** Labels and jumps of one name; one that needs more leads in circles. */
const NAME_STEPS_MAX = 128;
const QUESTIONS_MAX = 16;
const TIMEOUT_MS_MAX = 10_000;
const DNS_PORT = 53;
const PORT_MAX = 65_535;
const HEADER_BYTES = 12;
const TYPE_CODES = { A: 1, CNAME: 5, TXT: 16, AAAA: 28 } as const;

export type DnsRecordType = keyof typeof TYPE_CODES;
export type DnsQuestion = { name: string; type: DnsRecordType };
/** Lowercase names and addresses; in every value what is not printable ASCII stands as "?". */
export type DnsRecord = { name: string; type: DnsRecordType; value: string };
/**
 * Why a question has no answer: the resolver said nothing in time, takes no connection or hangs up, answers no such
 * questions, could not find out itself (SERVFAIL), or sent what is no DNS message.
 */
export type DnsFailure = "silent" | "unreachable" | "refused" | "failed" | "garbled";
/** With a failure nothing is known; without one the records are all there are, in the order they came. */
export type DnsAnswer = { failure: DnsFailure | null; records: DnsRecord[] };

/**
 * Asks all questions at once over one connection; the answers stand in the order of the questions. What goes wrong on the
 * network is a failure in the answer. Throws Error for a resolver or a name that is none.
 */
export function queryDns(resolver: string, questions: readonly DnsQuestion[], timeoutMs: number): Promise<DnsAnswer[]> {
  if (questions.length > QUESTIONS_MAX) throw new Error(`At most ${QUESTIONS_MAX} DNS questions can be asked at once.`);
  const address = parseResolver(resolver);
  const request = Buffer.concat(questions.map(encodeQuestion));
  return new Promise((resolve) => {
    const answers = new Map<number, DnsAnswer>();
    let received = Buffer.alloc(0);
    const socket = connect(address);
    const end = (failure: DnsFailure) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(questions.map((_, id) => answers.get(id) ?? { failure, records: [] }));
    };
    const timer = setTimeout(end, Math.min(timeoutMs, TIMEOUT_MS_MAX), "silent");
    socket.on("error", () => end("unreachable"));
    socket.on("close", () => end("unreachable"));
    socket.on("data", (bytes: Buffer) => {
      received = Buffer.concat([received, bytes]);
      for (let size = messageSize(received); size !== undefined; size = messageSize(received)) {
        const message = received.subarray(2, 2 + size);
        received = received.subarray(2 + size);
        const id = size < HEADER_BYTES ? -1 : message.readUInt16BE(0);
        // One answer a question: so a resolver that never stops talking fills no memory.
        if (!questions[id] || answers.has(id)) return end("garbled");
        answers.set(id, readAnswer(message));
      }
      if (answers.size === questions.length) end("silent");
    });
    socket.write(request);
  });
}

/** "1.1.1.1", "127.0.0.1:5353", "2620:fe::fe" or "[2620:fe::fe]:5353". Throws Error. */
export function parseResolver(text: string): { host: string; port: number } {
  if (isIP(text) !== 0) return { host: text, port: DNS_PORT };
  const [, ipv6 = "", ipv4 = "", digits] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text) ?? [];
  const port = Number(digits);
  if ((!isIPv4(ipv4) && !isIPv6(ipv6)) || port < 1 || port > PORT_MAX)
    throw new Error(`"${text}" is not a DNS resolver: give an IP address, as in 1.1.1.1 or 127.0.0.1:5353.`);
  return { host: ipv4 || ipv6, port };
}

/** The message with its length before it. The id need not be hard to guess: nobody else can write into the connection. */
function encodeQuestion({ name, type }: DnsQuestion, id: number): Buffer {
  const labels = name.split(".");
  const isName = labels.every((label) => label.length > 0 && label.length <= LABEL_BYTES_MAX);
  if (!isName || name.length > NAME_CHARS_MAX || /[^\x21-\x7e]/.test(name))
    throw new Error(`"${name}" is no DNS name.`);
  // One question, and the wish that the resolver goes and finds out.
  const header = [0, id, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
  const encoded = labels.flatMap((label) => [label.length, ...Buffer.from(label)]);
  const message = [...header, ...encoded, 0, 0, TYPE_CODES[type], 0, 1];
  return Buffer.from([message.length >> 8, message.length & 0xff, ...message]);
}

/** The size of the first message, undefined while it has not come whole. */
function messageSize(received: Buffer): number | undefined {
  const size = received.length < 2 ? Number.POSITIVE_INFINITY : received.readUInt16BE(0);
  return received.length >= 2 + size ? size : undefined;
}

function readAnswer(message: Buffer): DnsAnswer {
  try {
    const failure = failureOf(message.readUInt16BE(2));
    return { failure, records: failure === null ? readRecords(message) : [] };
  } catch {
    // Whatever a broken message leads to below: places that do not exist, addresses that are too short.
    return { failure: "garbled", records: [] };
  }
}

/** Source: RFC 1035 › 4.1.1. */
function failureOf(flags: number): DnsFailure | null {
  const [isAnswer, isFinal, isCut, canFindOut] = [0x8000, 0x0400, 0x0200, 0x0080].map((bit) => (flags & bit) !== 0);
  const code = flags & 0x0f;
  if (!isAnswer || isCut) return "garbled";
  if (code === 5) return "refused";
  // 3 is NXDOMAIN: an answer like any other.
  if (code !== 0 && code !== 3) return "failed";
  // Neither a resolver nor the name's own server: it only points to others, and that is not "no such record".
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

/** The name that begins at `start`, and where what follows it begins. */
function readName(message: Buffer, start: number): { name: string; end: number } {
  const labels: string[] = [];
  let at = start;
  let end: number | undefined;
  for (let steps = 0; steps < NAME_STEPS_MAX; steps++) {
    const size = message.readUInt8(at);
    if (size === 0) return { name: labels.join(".") || ".", end: end ?? at + 1 };
    if (size > LABEL_BYTES_MAX) {
      // The rest of the name stands elsewhere in the message.
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

/** One TXT record, whose pieces of up to 255 bytes belong together. */
function readText(data: Buffer): string {
  const pieces: string[] = [];
  for (let at = 0; at < data.length; at += 1 + data.readUInt8(at)) {
    pieces.push(data.toString("latin1", at + 1, at + 1 + data.readUInt8(at)));
  }
  return pieces.join("").replace(/[^\x20-\x7e]/g, "?");
}
