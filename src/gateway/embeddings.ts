import type { Deps } from "../deps.ts";
import { EMBEDDING_TOKENS_MAX } from "../limits.ts";
import type { Admitted } from "./admission.ts";
import type { Caller } from "./authenticate.ts";
import { chargeShown, chatUsage } from "./charge.ts";
import { dispatch } from "./dispatch.ts";
import { namerOf } from "./end_users.ts";
import { type Outcome, withHold } from "./hold.ts";
import type { MeteredEndpoint } from "./metered.ts";
import { requireModel } from "./models.ts";
import { EMBEDDING_PARAMETERS, filterParameters } from "./parameters.ts";
import { embeddingPromptOf, type Prompt } from "./prompt.ts";
import { checkRequestBounds } from "./request_bounds.ts";
import { asksForCharge, readEmbedding } from "./request_shapes.ts";
import { type ReservedRequest, reserveEmbedding } from "./reserve.ts";
import { noteUsed } from "./route_notes.ts";
import { answerBytesOf, type EmbeddingCall, fetchEmbeddings } from "./upstream_embeddings.ts";
import { usageShown } from "./usage_shown.ts";
import { CREATE_EMBEDDING } from "./v1_operations.ts";

/** POST /v1/embeddings. Source: EMB-1. */
export const EMBEDDINGS: MeteredEndpoint = {
  path: "/embeddings",
  operation: CREATE_EMBEDDING,
  serve: embeddings,
  numbersMax: EMBEDDING_TOKENS_MAX,
};

/**
 * Body → model → reserve → dispatch → settle, for embeddings. They cost the tokens of their input: as the provider reports them, or
 * else as the request has them. Source: EMB-1, EMB-5.
 */
async function embeddings(deps: Deps, caller: Caller, { raw, slots }: Admitted): Promise<Response> {
  const body = readEmbedding(raw);
  caller.record.kind = "embedding";
  const model = requireModel(deps, caller, body.fields.model, "embedding");
  const namer = namerOf(deps, caller);
  const { changed } = filterParameters({
    list: EMBEDDING_PARAMETERS,
    body: body.fields,
    spans: raw.spans,
    by: model,
    namer,
  });
  const prompt = embeddingPromptOf(body.input, { raw, changed, model });
  checkRequestBounds(caller, {
    ...{ choices: 1, inputs: body.input.count, promptTokens: prompt.tokens, promptParam: "input" },
    ...{ capTokens: null, capParam: "max_tokens" },
  });
  raw.room.grow(Math.min(answerBytesOf(body), deps.config.bodyBytesMax));
  const reserving = reserveEmbedding(deps, caller, { model, prompt });
  return await withHold({ deps, caller, model, slots, promptParam: "input" }, reserving, (reserved) =>
    serveEmbeddings({ ...reserved, prompt, choices: 0 }, { body, raw, namer }),
  );
}

async function serveEmbeddings(
  request: ReservedRequest & { prompt: Prompt; choices: number },
  { body, raw, namer }: Pick<EmbeddingCall, "body" | "raw" | "namer">,
): Promise<Outcome> {
  const { deps, caller, model } = request;
  const call = {
    provider: deps.provider,
    requestId: caller.requestId,
    body,
    raw,
    namer,
    totalMs: deps.config.providerTotalMs,
    large: deps.largeEmbeddings,
  };
  // The call runs to its end even if the client leaves, and is settled. Source: END-7.
  const result = await dispatch(request, "finish", (route, attempt) => fetchEmbeddings({ ...call, ...attempt }, route));
  if (result.how === "failed") return result;
  const { answer, route } = result;
  const { data, usage: reported, rawUsage, dropped } = answer;
  const usage = await chatUsage(request, { usage: reported, rawUsage, completionText: "" });
  noteUsed(request, { route, kind: "whole", usage });
  const charge = chargeShown({ ...request, showsCharge: asksForCharge(body.fields) }, usage.chargeNanoUsd);
  const shown = usageShown({ counted: usage, charge });
  const text = `{"object":"list","data":${data},"model":${JSON.stringify(model.id)},"usage":${shown}}`;
  return { how: "answered", usage, text, dropped };
}
