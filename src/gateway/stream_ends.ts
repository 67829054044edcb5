import { Refusal, toEnvelope } from "../errors.ts";
import type { EndReason } from "../ledger/ledger_store.ts";
import type { Relayed } from "./chunks.ts";
import { restarting } from "./dispatch.ts";
import { hasUncounted, type PromptSample } from "./prompt.ts";
import type { RelayEnd } from "./relay.ts";
import type { ReservedRequest } from "./reserve.ts";
import type { AnswerToCount } from "./usage_counts.ts";

/**
 * What each end of a request means: who pays how much, and what the client gets. `streamOutcome` decides the ends of an open stream:
 *
 *   end                  when                                        what is charged                                 the client gets
 *   complete             the provider finished                       what the provider reports, or else our count    [DONE]
 *                                                                    (the larger, if text came behind the report)
 *   client_left          the client left, or read too slowly         the larger of what was relayed (our count)      nothing more
 *                                                                    and what was reported last; `estimated`
 *     isWhole            the same; the model hides tokens, or the    what the provider reports                       nothing more
 *                        prompt has images or files, so it was
 *                        read to its end in the background
 *   broke_after_finish   broke off after a finish_reason that no     as `complete`                                   an error event
 *                        text came behind
 *   broke_off            broke off before, or reported an error      nothing                                         an error event
 *   fell_silent          sent nothing for PROVIDER_IDLE_MS           nothing; it counts as a loss                    an error event
 *   oversized            sent an event that is too large to be read  nothing; it counts as a loss                    an error event
 *   broke_held_up        the same, after the client had taken        as `client_left`                                an error event
 *                        nothing for two seconds
 *   ended_by_us          the replica shuts down                      nothing                                         an error event
 *   failed               a step of ours threw: a defect              nothing                                         an error event
 *
 * Before a stream's first event, `Calls` in dispatch.ts decides, and hold.ts acts on it. A client that leaves before
 * the request was sent to a provider, or when the provider has sent no headers for `PROVIDER_HEADERS_MS`, pays nothing. A client that
 * leaves while a provider works on the request pays its prompt. A client that leaves an answer that is not streamed pays as if it had
 * stayed: the call runs to its end (`serveWhole`, `image` in flow.ts).
 *
 * "Charged" means tokens at the model's prices if the balance pays, and one unit if a package pays. A charged prompt has at least one
 * token. The counting is in charge.ts.
 *
 * Source: END-3, END-5, END-6, END-7, END-8, END-9, END-10, END-11, END-12, END-18.
 */

/** `event`: the error event that the client is sent: `error`, if nothing is charged. */
export type StreamOutcome =
  /** The answer is charged. */
  | { how: "streamed" | "client_left"; answer: AnswerToCount; event?: string }
  /** Nothing is charged. */
  | { how: "failed"; reason: EndReason; error: Refusal; event: string };

/** Says what the end of a stream means, and logs the ends that an operator should know of. Changes nothing. */
export function streamOutcome(
  { deps, caller, model, prompt }: ReservedRequest & { prompt: PromptSample },
  end: RelayEnd,
): StreamOutcome {
  const { requestId } = caller;
  const facts = { requestId, model: model.id };
  switch (end.how) {
    case "complete":
      return { how: "streamed", answer: answerOf(end.relayed) };

    case "client_left":
      if (model.hidesTokens && !end.isWhole)
        deps.log.warn(
          facts,
          "a client left a model that hides tokens, and the answer was not read to its end: tokens not yet reported are not charged",
        );
      else if (hasUncounted(prompt) && !end.isWhole)
        deps.log.warn(
          facts,
          "a client left an answer to images or files that was not read to its end: their bound is charged",
        );
      return { how: "client_left", answer: { ...answerOf(end.relayed), isPart: !end.isWhole } };

    case "broke_after_finish": {
      deps.log.warn({ ...facts, why: end.why }, "a provider's stream broke off when its answer was complete");
      const message = "The model service broke off after the answer was complete. It was charged.";
      const event = errorEvent(new Refusal("provider_unavailable", { message }), requestId);
      return { how: "streamed", answer: answerOf(end.relayed), event };
    }

    case "broke_off":
    case "fell_silent":
    case "oversized": {
      deps.log.warn({ ...facts, why: end.why }, "a provider's stream broke off");
      const message = "The model service broke off. Nothing was charged.";
      const reason = end.how === "fell_silent" ? "timed_out" : "provider_broke_off";
      return failed(reason, new Refusal("provider_unavailable", { message }), requestId);
    }

    case "broke_held_up": {
      deps.log.warn({ ...facts, why: end.why }, "a provider's stream broke off after its client had held it up");
      const message =
        "The model service broke off after the answer had not been read for a while. What was sent is charged.";
      const event = errorEvent(new Refusal("provider_unavailable", { message }), requestId);
      return { how: "client_left", answer: { ...answerOf(end.relayed), isPart: true }, event };
    }

    case "ended_by_us":
      return failed("ended_by_us", restarting(), requestId);

    case "failed":
      deps.log.error({ ...facts, err: end.error }, "an error of ours ended a stream");
      return failed("gateway_failed", new Refusal("internal_error"), requestId);
  }
}

function failed(reason: EndReason, error: Refusal, requestId: string): StreamOutcome & { how: "failed" } {
  return { how: "failed", reason, error, event: errorEvent(error, requestId) };
}

function answerOf({ usage, rawUsage, text, chars, coverage }: Relayed): AnswerToCount {
  return { usage, rawUsage, completionText: text, completionChars: chars, coverage };
}

function errorEvent(refusal: Refusal, requestId: string): string {
  return JSON.stringify(toEnvelope(refusal, requestId));
}
