import { reportIn } from "../../catalog/error_reports.ts";
import { isRecord } from "../../platform/records.ts";
import { parseChat } from "../answer_forms.ts";
import { ChoiceRepair } from "../chat_shape.ts";
import type { Relayed, StreamRewriter } from "../chunks.ts";
import { finishOf } from "../finish_reasons.ts";
import type { ReportedUsage } from "../usage_counts.ts";
import { UsageReports } from "../usage_reports.ts";
import type { CountedUsage, ShownCharge } from "../usage_shown.ts";
import { Output, type OutputFacts } from "./output.ts";
import { type ResponseState, usageJson } from "./response_object.ts";

/** Translates answers of chat completions into responses: whole ones, and streams chunk by chunk. Source: RSP-8, RSP-9, RSP-10. */

/** Why an answer is incomplete, by the chat's finish_reason. */
const INCOMPLETE: Readonly<Record<string, string>> = {
  length: "max_output_tokens",
  max_tokens: "max_output_tokens",
  content_filter: "content_filter",
};

/** The status of an answer that ended normally. Beyond the limits of an output it is cut, as by a limit of tokens. */
function stateOf(finish: string | undefined, { isFull }: Output): Pick<ResponseState, "status" | "incompleteReason"> {
  const incompleteReason = INCOMPLETE[finish ?? ""] ?? (isFull ? "max_output_tokens" : undefined);
  return { status: incompleteReason === undefined ? "completed" : "incomplete", incompleteReason };
}

/** The response for a whole chat answer, made once the charge is known. */
export type WholeResponse = {
  completionText: string;
  completionChars: number;
  text: (counted: CountedUsage, charge?: ShownCharge) => string;
};

/** Translates a whole answer by its first choice. `value` is the parsed answer. */
export function fromChatAnswer(value: Readonly<Record<string, unknown>>, facts: OutputFacts): WholeResponse {
  const output = new Output(facts, { isStreamed: false });
  const repair = new ChoiceRepair(facts.response.id, "message");
  const [choice] = Array.isArray(value.choices) ? repair.repaired(value.choices) : [];
  if (isRecord(choice)) output.take(choice.message);
  const written = output.written.soFar;
  const state = stateOf(finishOf(choice), output);
  return {
    completionText: written.text,
    completionChars: written.chars,
    text: (counted, charge) => output.end({ ...state, usage: usageJson(counted, charge) }),
  };
}

/** Turns the chunks of a chat stream into the events of a response. */
export class ResponseEvents implements StreamRewriter {
  finished = false;
  readonly endsWithDone = true;
  readonly isOver = false;
  readonly #output: Output;
  #finish: string | undefined;
  /** How much text there was with the first finish reason. */
  #finishedAt: number | undefined;
  readonly #reports = new UsageReports();
  readonly #repair: ChoiceRepair;
  /** As JSON; undefined if nothing was charged. */
  #usageJson: string | undefined;
  #response: string | undefined;

  constructor(facts: OutputFacts) {
    this.#output = new Output(facts, { isStreamed: true });
    this.#repair = new ChoiceRepair(facts.response.id, "delta");
  }

  get relayed(): Relayed {
    const { usage, raw: rawUsage } = this.#reports;
    const { written } = this.#output;
    return { ...written.soFar, usage, rawUsage, coverage: this.#reports.coverageOf(written.length) };
  }

  get usage(): ReportedUsage | undefined {
    return this.#reports.usage;
  }

  get wentOn(): boolean {
    return this.#finishedAt !== undefined && this.#output.written.length > this.#finishedAt;
  }

  rewrite(payload: string): string | undefined {
    const chunk = parseChat(payload)?.value;
    if (chunk === undefined) throw new Error("the provider sent an event that is not a JSON object");
    if (reportIn(chunk) !== undefined) throw new Error("the provider sent an error event");
    this.#reports.read(chunk);
    const [choice] = Array.isArray(chunk.choices) ? this.#repair.repaired(chunk.choices) : [];
    if (isRecord(choice)) {
      this.#output.take(choice.delta);
      this.#finish ??= finishOf(choice);
      this.finished = this.#finish !== undefined;
      if (this.finished) this.#finishedAt ??= this.#output.written.length;
    }
    this.#reports.mark(this.#output.written.length);
    return this.#output.events() || undefined;
  }

  counted(usage: CountedUsage, charge?: ShownCharge): void {
    this.#usageJson = usageJson(usage, charge);
  }

  response(): string {
    this.#response ??= this.#output.end({ ...stateOf(this.#finish, this.#output), usage: this.#usageJson });
    return this.#response;
  }

  lastEvents(): string {
    this.response();
    return this.#output.events();
  }

  errorEvents(error: string | undefined): string {
    this.#output.end({ status: "failed", error: responseError(error), usage: this.#usageJson });
    return this.#output.events();
  }
}

/**
 * The error of a response that failed in mid-stream. Clients know few codes; after this one they try again.
 * `error`: an error envelope as JSON.
 */
export function responseError(error: string | undefined): NonNullable<ResponseState["error"]> {
  const envelope: unknown = error === undefined ? undefined : JSON.parse(error);
  const { message } = isRecord(envelope) && isRecord(envelope.error) ? envelope.error : {};
  return { code: "server_error", message: typeof message === "string" ? message : "The response failed." };
}
