import { connect, type Socket } from "node:net";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";

/**
 * One attack on a replica, in a separate process, so that its work does not delay the measurement of the neighbour.
 * It reads an Assault as JSON from its first argument and prints a Toll as JSON. It stops by itself after `seconds`.
 */

export type Assault = {
  kind:
    | "bombs"
    | "silent"
    | "bodies"
    | "usage"
    | "hosts"
    | "vouchers"
    | "hooks"
    | "docs"
    | "names"
    | "domains"
    | "reads";
  port: number;
  /** API keys that the attacker uses in turn; for names, the headers of a session in the panel, as JSON. */
  secrets: readonly string[];
  /** Concurrent requests: of all keys together for bombs and bodies, of each key for silent and usage. */
  atOnce: number;
  seconds: number;
  /** For what needs the panel: the headers of a session, and the address of the form that is sent. */
  session?: { headers: Record<string, string>; path: string };
};

/** How many answers came with each status; "none": the connection ended or waited without an answer. */
export type Toll = Record<string, number>;

const BODY_BYTES = 20 * 1024 * 1024;
/** The requests a minute that a key has by default, spread evenly. */
const USAGE_EVERY_MS = 100;
const HOSTS_EVERY_MS = 2;
/** The requests a minute that a person may make in the panel by default, spread evenly. */
const FORM_EVERY_MS = 100;
const DOMAIN_EVERY_MS = 1_000;
const CODES = 10_000;
const CODES_END_MS = 30_000;
const READS_EVERY_MS = 5_000;
const DOCS_PER_SECOND = 3_000;
const PANEL_HOST = "panel.tollgate.test";
const CONNECTS_AT_ONCE = 200;
const AGAIN_AFTER_MS = 1_000;

if (import.meta.main) {
  const assault: Assault = JSON.parse(process.argv[2] ?? "");
  process.stdout.write(JSON.stringify(await run(assault)), () => process.exit(0));
}

async function run(assault: Assault): Promise<Toll> {
  const toll: Toll = {};
  const note = (status: string) => {
    toll[status] = (toll[status] ?? 0) + 1;
  };
  const attacks = { bombs, silent, bodies, usage, hosts, vouchers, hooks, docs, names, domains, reads };
  await attacks[assault.kind](assault, note);
  return toll;
}

type Note = (status: string) => void;

/** Bodies of millions of empty objects. */
async function bombs(assault: Assault, note: Note): Promise<void> {
  const head = '{"model":"chat-a","messages":[{"role":"user","content":[';
  const tail = "{}]}]}";
  const body = Buffer.from(head + "{},".repeat(Math.floor((BODY_BYTES - head.length - tail.length) / 3)) + tail);
  await manyBodies(assault, note, { body, heldBackBytes: 0 });
}

/** Bodies that are legitimate except for their number: one long text each, whose last byte never arrives. */
async function bodies(assault: Assault, note: Note): Promise<void> {
  const head = '{"model":"chat-a","messages":[{"role":"user","content":"';
  const tail = '"}]}';
  const body = Buffer.from(head + "x".repeat(BODY_BYTES - head.length - tail.length) + tail);
  await manyBodies(assault, note, { body, heldBackBytes: 1 });
}

async function manyBodies(
  { port, secrets, atOnce, seconds }: Assault,
  note: Note,
  { body, heldBackBytes }: { body: Buffer; heldBackBytes: number },
): Promise<void> {
  const endsAt = performance.now() + seconds * 1000;
  await Promise.all(
    Array.from({ length: atOnce }, async (_, n) => {
      const secret = secrets[n % secrets.length] ?? "";
      const sent = heldBackBytes === 0 ? body : body.subarray(0, -heldBackBytes);
      // A refused client tries again.
      while (performance.now() < endsAt) {
        note(await answerOf({ port, secret, length: body.length, sent, endsAt }));
        await sleep(AGAIN_AFTER_MS);
      }
    }),
  );
}

/** Requests whose body is announced and never arrives. */
async function silent({ port, secrets, atOnce, seconds }: Assault, note: Note): Promise<void> {
  const endsAt = performance.now() + seconds * 1000;
  const waiting: Promise<void>[] = [];
  for (let n = 0; n < secrets.length * atOnce; n++) {
    const secret = secrets[n % secrets.length] ?? "";
    waiting.push(answerOf({ port, secret, length: 100, sent: Buffer.alloc(0), endsAt }).then(note));
    if (n % CONNECTS_AT_ONCE === 0) await sleep(10);
  }
  await Promise.all(waiting);
}

type Post = { port: number; secret: string; length: number; sent: Buffer; endsAt: number };

/** The status of a chat request, or "none" if there was none until `endsAt`. */
function answerOf({ port, secret, length, sent, endsAt }: Post): Promise<string> {
  return new Promise((resolve) => {
    const socket: Socket = connect(port, "127.0.0.1", () => {
      socket.write(
        `POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${secret}\r\n` +
          `content-type: application/json\r\ncontent-length: ${length}\r\n\r\n`,
      );
      if (sent.length > 0) socket.write(sent);
    });
    let status = "none";
    const timer = setTimeout(() => socket.destroy(), endsAt - performance.now());
    socket.on("data", (bytes) => {
      if (status === "none") status = bytes.toString("latin1", 9, 12);
      socket.destroy();
    });
    socket.on("error", () => {}); // "close" follows.
    socket.on("close", () => {
      clearTimeout(timer);
      resolve(status);
    });
  });
}

/** Addresses of webhooks whose name server is silent, which the panel looks up. */
async function names({ port, secrets, atOnce, seconds }: Assault, note: Note): Promise<void> {
  const endsAt = performance.now() + seconds * 1000;
  let turn = 0;
  const add = async () => {
    const url = `https://silent${turn++}.example/`;
    try {
      const response = await fetch(`http://127.0.0.1:${port}/api/panel/webhooks`, {
        method: "POST",
        headers: { ...JSON.parse(secrets[0] ?? "{}"), "content-type": "application/json" },
        body: JSON.stringify({ url, kinds: ["balance_low"] }),
        signal: AbortSignal.timeout(Math.max(1, endsAt + 5_000 - performance.now())),
      });
      await response.text();
      note(String(response.status));
    } catch {
      note("none"); // The attack's time is over.
    }
  };
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      while (performance.now() < endsAt) {
        await add();
        await sleep(AGAIN_AFTER_MS);
      }
    }),
  );
}

/** Lists of usage with a filter that matches no record. */
async function usage({ port, secrets, atOnce, seconds }: Assault, note: Note): Promise<void> {
  const endsAt = performance.now() + seconds * 1000;
  const read = async (secret: string) => {
    try {
      const response = await fetch(`http://127.0.0.1:${port}/v1/usage?model=none&limit=1000`, {
        headers: { authorization: `Bearer ${secret}`, host: "localhost" },
        signal: AbortSignal.timeout(Math.max(1, endsAt + 5_000 - performance.now())),
      });
      await response.text();
      note(String(response.status));
    } catch {
      note("none"); // The attack's time is over.
    }
  };
  await Promise.all(
    secrets.map(async (secret) => {
      const open = new Set<Promise<void>>();
      while (performance.now() < endsAt) {
        if (open.size < atOnce) {
          const one: Promise<void> = read(secret).finally(() => open.delete(one));
          open.add(one);
        }
        await sleep(USAGE_EVERY_MS);
      }
      await Promise.all(open);
    }),
  );
}

/** Bursts of reads, half of them of a page of the panel and half of balances, as large as the requests a minute allow. */
async function reads({ port, secrets, atOnce, seconds, session }: Assault, note: Note): Promise<void> {
  if (session === undefined) throw new Error("this attack needs a session");
  const endsAt = performance.now() + seconds * 1000;
  const read = async (path: string, headers: Record<string, string>) => {
    try {
      const signal = AbortSignal.timeout(Math.max(1, endsAt + 20_000 - performance.now()));
      const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers, signal });
      await response.arrayBuffer();
      note(String(response.status));
    } catch {
      note("none");
    }
  };
  const open: Promise<void>[] = [];
  while (performance.now() < endsAt) {
    for (let i = 0; i < atOnce / 2; i++) {
      const key = secrets[i % secrets.length] ?? "";
      open.push(read(session.path, session.headers));
      open.push(read("/v1/balance", { authorization: `Bearer ${key}`, host: "localhost" }));
    }
    await sleep(READS_EVERY_MS);
  }
  await Promise.all(open);
}

/** Unknown host names, a new one each time, without a key. */
async function hosts({ port, atOnce, seconds }: Assault, note: Note): Promise<void> {
  const endsAt = performance.now() + seconds * 1000;
  let names = 0;
  const ask = async () => {
    try {
      const response = await fetch(`http://127.0.0.1:${port}/v1/models`, {
        headers: { host: `n${names++}.strange.example` },
        signal: AbortSignal.timeout(5_000),
      });
      await response.text();
      note(String(response.status));
    } catch {
      note("none");
    }
  };
  const open = new Set<Promise<void>>();
  while (performance.now() < endsAt) {
    if (open.size < atOnce) {
      const one: Promise<void> = ask().finally(() => open.delete(one));
      open.add(one);
    }
    await sleep(HOSTS_EVERY_MS);
  }
  await Promise.all(open);
}

/** Batches of vouchers, each as large as it may be, which end soon, so that they are not open for long. */
async function vouchers(assault: Assault, note: Note): Promise<void> {
  await forms(assault, note, () => ({
    ...{ name: "flood", amountNanoUsd: "1000000000", codes: CODES, usesPerCode: 1 },
    endsAt: new Date(Date.now() + CODES_END_MS).toISOString(),
  }));
}

/** Tests of a webhook whose receiver never answers. */
async function hooks(assault: Assault, note: Note): Promise<void> {
  await forms(assault, note, () => ({}));
}

/** Domains of a reseller: each change of a host reaches what every replica remembers of hosts. */
async function domains(assault: Assault, note: Note): Promise<void> {
  let turn = 0;
  await forms(assault, note, () => ({ host: `d${turn++}-flood.domains.test` }), DOMAIN_EVERY_MS);
}

async function forms(
  { port, seconds, session }: Assault,
  note: Note,
  bodyOf: () => object,
  everyMs = FORM_EVERY_MS,
): Promise<void> {
  if (session === undefined) throw new Error("this attack needs a session");
  const endsAt = performance.now() + seconds * 1000;
  const post = async () => {
    try {
      const response = await fetch(`http://127.0.0.1:${port}${session.path}`, {
        method: "POST",
        headers: { ...session.headers, "content-type": "application/json" },
        body: JSON.stringify(bodyOf()),
        signal: AbortSignal.timeout(Math.max(1, endsAt + 20_000 - performance.now())),
      });
      await response.arrayBuffer();
      note(String(response.status));
    } catch {
      note("none");
    }
  };
  const open: Promise<void>[] = [];
  while (performance.now() < endsAt) {
    open.push(post());
    await sleep(everyMs);
  }
  await Promise.all(open);
}

/** The OpenAPI document, 3,000 times a second, without a key. */
async function docs({ port, atOnce, seconds }: Assault, note: Note): Promise<void> {
  const endsAt = performance.now() + seconds * 1000;
  const open = new Set<Promise<void>>();
  const ask = async () => {
    try {
      const response = await fetch(`http://127.0.0.1:${port}/docs/openapi.json`, { headers: { host: PANEL_HOST } });
      await response.arrayBuffer();
      note(String(response.status));
    } catch {
      note("none");
    }
  };
  const startedMs = performance.now();
  for (let sent = 0; performance.now() < endsAt; await sleep(1)) {
    for (const due = ((performance.now() - startedMs) * DOCS_PER_SECOND) / 1000; sent < due; sent++) {
      if (open.size >= atOnce) continue;
      const one: Promise<void> = ask().finally(() => open.delete(one));
      open.add(one);
    }
  }
  await Promise.all(open);
}
