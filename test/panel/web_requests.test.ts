import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { ERROR_TABLE } from "../../src/errors.ts";
import { END_REASONS } from "../../src/ledger/ledger_store.ts";
import { noticeText } from "../../src/panel/web/pages/home/notices.ts";
import { readAnswer } from "../../src/panel/web/pages/playground/chat_stream.ts";
import {
  nextStep,
  reasonName,
  reasonText,
  refusalName,
  whatNowText,
} from "../../src/panel/web/pages/usage/request_text.ts";

/** How the panel words requests and refusals, and reads a streamed response. */

const NOW = Date.parse("2026-11-21T17:48:00Z");
/** Codes that are never counted as refusals of an account. */
const UNCOUNTED = [
  "not_found",
  "method_not_allowed",
  "internal_error",
  "session_required",
  "second_factor_required",
  "read_only",
  "insufficient_role",
  "already_exists",
  "invalid_token",
  "insufficient_scope",
  "csrf_failed",
];

describe("words", () => {
  test("every counted refusal has a name and a text of its own", () => {
    const counted = Object.keys(ERROR_TABLE).filter((code) => !UNCOUNTED.includes(code));
    for (const code of counted) {
      expect(refusalName(code)).not.toMatch(/exceeded|required|unavailable|_/);
      expect(whatNowText({ code, now: NOW })).not.toBe(whatNowText({ code: "no_such_code", now: NOW }));
    }
  });

  test("every end reason of the ledger has a text", () => {
    for (const reason of [...END_REASONS, "late", "overrun_refused"]) {
      expect(reasonText(reason)).not.toStartWith("It ended with");
      expect(reasonName(reason)).not.toContain("_");
    }
    expect(reasonText("of_a_later_release")).toBe("It ended with: of a later release.");
  });

  test("a past refusal names no waiting time, and links to the page that helps", () => {
    expect(whatNowText({ code: "provider_unavailable", now: NOW })).not.toContain("in 5 s");
    expect(nextStep("insufficient_balance")?.href).toBe("/billing?ask=top_up");
    expect(nextStep("too_many_requests")).toBeNull();
  });

  test("a used-up daily quota shows when it resets in the package's time zone; on the last day it links to a new package", () => {
    const facts = { zone: "Europe/Berlin", now: NOW, isCustomer: true };
    const notice = { kind: "allowance_used_up" as const, name: "Starter", carryover: false };
    const words = noticeText({ ...notice, resetsAt: "2026-11-21T23:00:00.000Z" }, facts);
    expect(words.body).toStartWith("More in 5 h 12 min, at 00:00 Berlin");
    expect(words.step).toBeNull();
    const last = noticeText({ ...notice, resetsAt: null }, facts);
    expect(last.step?.href).toBe("/billing?ask=package");
  });
});

describe("reading a stream", () => {
  /** What the next response sends; each path of its own. */
  const scripts = new Map<string, (response: ServerResponse) => void>();
  let server: Server;
  let url = "";

  beforeAll(async () => {
    server = createServer((request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      scripts.get(request.url ?? "")?.(response);
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterAll(() => server.close());

  const event = (delta: object) => `data: ${JSON.stringify({ choices: [{ delta }] })}\n\n`;

  /** `onPiece` runs when a piece of the answer was read. */
  type Reading = { onPiece?: () => void; signal?: AbortSignal };

  async function read(script: (response: ServerResponse) => void, { onPiece, signal }: Reading = {}) {
    const path = `/${scripts.size}`;
    scripts.set(path, script);
    const response = await fetch(url + path, { signal: signal ?? null });
    if (response.body === null) throw new Error("the response has no body");
    let text = "";
    let thoughts = "";
    const end = await readAnswer(response.body, (piece) => {
      text += piece.text;
      thoughts += piece.thoughts;
      onPiece?.();
    });
    return { end, text, thoughts };
  }

  test("text and reasoning are read apart, wherever the bytes are split", async () => {
    const sent = [
      event({ reasoning_content: "Hm." }),
      ": keep-alive\n\n",
      event({ content: "Łódź " }),
      event({ content: "🌙" }),
    ];
    const bytes = Buffer.from(`${sent.join("")}data: [DONE]\n\n`);
    const answer = await read(async (response) => {
      for (let from = 0; from < bytes.length; from += 7) {
        response.write(bytes.subarray(from, from + 7));
        await new Promise((done) => setImmediate(done));
      }
      response.end();
    });
    expect(answer).toEqual({ end: "complete", text: "Łódź 🌙", thoughts: "Hm." });
  });

  test("text, refusal and reasoning are read from a response's events; its last event ends it", async () => {
    const of = (type: string, delta?: string) =>
      `event: ${type}\ndata: ${JSON.stringify({ type, delta, error: null })}\n\n`;
    const said = [
      of("response.created"),
      of("response.reasoning_summary_text.delta", "Hm."),
      of("response.output_text.delta", "Łódź "),
      of("response.refusal.delta", "no"),
      of("response.function_call_arguments.delta", "{}"),
    ].join("");
    const answer = { text: "Łódź no", thoughts: "Hm." };
    for (const [last, end] of [
      ["response.completed", "complete"],
      ["response.incomplete", "complete"],
      ["response.failed", "broke_off"],
    ] as const)
      expect(await read((response) => response.end(said + of(last)))).toEqual({ ...answer, end });
    expect(await read((response) => response.end(said))).toEqual({ ...answer, end: "broke_off" });
  });

  test("an error event ends it: earlier text stays, later text is ignored", async () => {
    const error = `data: ${JSON.stringify({ error: { code: "provider_unavailable" }, request_id: "r" })}\n\n`;
    const answer = await read((response) => response.end(event({ content: "a" }) + error + event({ content: "b" })));
    expect(answer).toEqual({ end: "broke_off", text: "a", thoughts: "" });
  });

  test("an end without [DONE], a cut connection and invalid events count as broken off", async () => {
    expect((await read((response) => response.end(event({ content: "a" })))).end).toBe("broke_off");
    let cutNow = () => {};
    const script = (response: ServerResponse) => {
      cutNow = () => response.destroy();
      response.write(event({ content: "a" }));
    };
    const cut = await read(script, { onPiece: () => cutNow() });
    expect(cut).toEqual({ end: "broke_off", text: "a", thoughts: "" });
    expect((await read((response) => response.end("data: <html>\n\ndata: [DONE]\n\n"))).end).toBe("broke_off");
  });

  test("an endless event is cut off, to limit memory", async () => {
    const answer = await read((response) => {
      response.on("error", () => {});
      response.write("data: ");
      for (let i = 0; i < 40; i++) response.write("x".repeat(64 * 1024));
    });
    expect(answer.end).toBe("broke_off");
  });

  test("a stop by the user is an AbortError, not a broken stream", async () => {
    const stop = new AbortController();
    const { signal } = stop;
    const reading = read((response) => response.write(event({ content: "a" })), {
      signal,
      onPiece: () => stop.abort(),
    });
    await expect(reading).rejects.toThrow(expect.objectContaining({ name: "AbortError" }));
  });
});
