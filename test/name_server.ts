import { createSocket, type RemoteInfo } from "node:dgram";
import { createServer, type Socket } from "node:net";
import { type Answer, decode, encode } from "dns-packet";

/** A name server on loopback whose answers a test decides, and which counts its questions. UDP, and TCP on the same port. */

/** Records of the answer, or what else happens. `silent`: nothing is sent. `cut`: UDP says that the answer does not fit. */
export type Reply = readonly Answer[] | "none" | "silent" | "failed" | "cut";
export type NameServer = {
  /** As NAME_SERVERS has it. */
  address: string;
  /** Every question, as in "A a.example", in the order received. */
  asked: string[];
  close(): void;
};

const RCODES = { none: 3, failed: 2 } as const;
const AVAILABLE = 0x0180;
const CUT = 0x0200;

/** `reply` gets the name and the type of each question. */
export async function startNameServer(
  reply: (name: string, type: string, over: "udp" | "tcp") => Reply,
): Promise<NameServer> {
  const asked: string[] = [];
  const answerTo = (message: Buffer, over: "udp" | "tcp"): Buffer | undefined => {
    const { id, questions = [] } = decode(message);
    const { name = "", type = "A" } = questions[0] ?? {};
    asked.push(`${type} ${name}`);
    const said = reply(name, type, over);
    if (said === "silent") return undefined;
    const answers = typeof said === "string" ? [] : [...said];
    const code = said === "none" || said === "failed" ? RCODES[said] : 0;
    return encode({ id, type: "response", flags: AVAILABLE | (said === "cut" ? CUT : 0) | code, questions, answers });
  };
  const tcp = createServer((socket: Socket) => {
    socket.on("error", () => socket.destroy());
    socket.once("data", (bytes: Buffer) => {
      const answer = answerTo(bytes.subarray(2), "tcp");
      if (answer) socket.end(Buffer.concat([Buffer.of(answer.length >> 8, answer.length & 255), answer]));
    });
  });
  await new Promise<void>((resolve) => tcp.listen(0, "127.0.0.1", resolve));
  const place = tcp.address();
  const port = place !== null && typeof place === "object" ? place.port : 0;
  const udp = createSocket("udp4");
  udp.on("message", (message: Buffer, from: RemoteInfo) => {
    const answer = answerTo(message, "udp");
    if (answer) udp.send(answer, from.port, from.address);
  });
  await new Promise<void>((resolve) => udp.bind(port, "127.0.0.1", resolve));
  return {
    address: `127.0.0.1:${port}`,
    asked,
    close() {
      udp.close();
      tcp.close();
    },
  };
}

export function a(name: string, data: string, ttl = 60): Answer {
  return { type: "A", name, data, ttl };
}
