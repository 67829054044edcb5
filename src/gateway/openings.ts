import { ProviderFailure } from "../catalog/provider_errors.ts";
import { isRecord } from "../platform/records.ts";
import { parseChat } from "./answer_forms.ts";
import { finishOf, isOverContext } from "./finish_reasons.ts";
import { saidIn, saysSomething } from "./said.ts";
import { UsageReports } from "./usage_reports.ts";

/**
 * When an answer has begun, and whether it has anything in it. Before it has begun, nothing is sent to the client, and another route may
 * be tried. Source: END-2, END-21, PRV-3.
 */

/** Judges the events of a stream until one begins the answer. */
export type Opening = {
  /** The event in a payload; undefined if it is none. */
  read(payload: string): Readonly<Record<string, unknown>> | undefined;
  /** Whether the event begins the answer. */
  begins(event: Readonly<Record<string, unknown>>): boolean;
  /** The stream has ended, and no event has begun the answer. Returns whether it is empty. Throws ProviderFailure if it is no answer. */
  ended(): boolean;
};

/** The opening of a chat: role, filter results and empty texts are no answer yet. */
export function chatOpening(): Opening {
  let isFinished = false;
  let fillsContext = false;
  const reports = new UsageReports();
  return {
    read: (payload) => parseChat(payload)?.value,
    begins(event) {
      reports.read(event);
      const { choices } = event;
      if (!Array.isArray(choices)) return false;
      isFinished ||= choices.some((choice) => finishOf(choice) !== undefined);
      fillsContext ||= choices.some(isOverContext);
      return choices.some(
        (choice) => isRecord(choice) && (saysSomething(saidIn(choice, "delta")) || isRefusal(choice)),
      );
    },
    ended() {
      if (!isFinished) throw new ProviderFailure("not_json", "the stream ended without an answer");
      return isFree(reports, fillsContext);
    },
  };
}

/**
 * Whether a whole chat answer is empty: it has nothing that a model wrote, and counts no tokens of it. Throws ProviderFailure of kind
 * `not_json` if it has no message at all.
 */
export function isEmptyAnswer(choices: readonly unknown[], reports: UsageReports): boolean {
  if (!choices.some((choice) => isRecord(choice) && (isRecord(saidIn(choice, "message")) || isRefusal(choice))))
    throw new ProviderFailure("not_json", "the answer has no message");
  if (choices.some((choice) => isRecord(choice) && (saysSomething(saidIn(choice, "message")) || isRefusal(choice))))
    return false;
  return isFree(reports, choices.some(isOverContext));
}

/** Whether an answer without a word is free. Throws ProviderFailure if it says that the prompt left no room for one. */
function isFree(reports: UsageReports, fillsContext: boolean): boolean {
  if (hasTokens(reports)) return false;
  if (fillsContext) throw new ProviderFailure("context_length", "the prompt leaves no room for an answer");
  return true;
}

/** Whether tokens of the answer were counted: by themselves, or in a total that is more than the prompt. */
function hasTokens({ usage }: UsageReports): boolean {
  if (usage === undefined) return false;
  return usage.completionTokens > 0 || (usage.totalTokens ?? 0) > usage.promptTokens;
}

/** A filter has refused the answer. */
function isRefusal(choice: unknown): boolean {
  return finishOf(choice) === "content_filter";
}
