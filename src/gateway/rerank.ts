import { type Static, Type } from "@sinclair/typebox";
import type { KeyedRoute } from "../catalog/catalog.ts";
import { ProviderFailure } from "../catalog/provider_errors.ts";
import type { Deps } from "../deps.ts";
import { checker } from "../http/checks.ts";
import { isRecord } from "../platform/records.ts";
import type { Admitted } from "./admission.ts";
import type { Caller } from "./authenticate.ts";
import { numberOf } from "./call_numbers.ts";
import { chargeShown, chatUsage } from "./charge.ts";
import { type Attempt, dispatch } from "./dispatch.ts";
import { namerOf } from "./end_users.ts";
import { type Outcome, withHold } from "./hold.ts";
import type { MeteredEndpoint } from "./metered.ts";
import { requireModel } from "./models.ts";
import { chatGroups, filterParameters, parameterList } from "./parameters.ts";
import { overheadOf, Prompt } from "./prompt.ts";
import type { ListPlaces } from "./provider_json.ts";
import { checkRequestBounds } from "./request_bounds.ts";
import { asksForCharge, UsageOptions } from "./request_shapes.ts";
import { type ReservedRequest, reserveEmbedding } from "./reserve.ts";
import { Usage } from "./response_shapes.ts";
import { noteUsed } from "./route_notes.ts";
import { entriesOf, limitsOf, type WholeCall } from "./upstream_chat.ts";
import type { ReportedUsage } from "./usage_counts.ts";
import { reportOfEntries } from "./usage_reports.ts";
import { usageShown } from "./usage_shown.ts";
import { EXAMPLE_MODELS, meteredOperation } from "./v1_operations.ts";

/**
 * POST /v1/rerank: orders documents by how well they answer a query, in the shape that Cohere, Jina, Voyage and vLLM share. It costs
 * the tokens of its input, as the provider reports them or as the request has them, and what the model costs a request. Source: API-17.
 */

const PATH = "/rerank";
const DOCUMENTS_MAX = 1_000;
const RERANK_BYTES_MAX = 4 * 1024 * 1024;

const Optional = <T extends Parameters<typeof Type.Union>[0][number]>(schema: T) =>
  Type.Optional(Type.Union([schema, Type.Null()]));
const Text = Type.String({ minLength: 1 });

const RerankBody = Type.Object(
  {
    model: Type.String({ minLength: 1, maxLength: 200, description: "The id of a reranking model." }),
    query: Text,
    documents: Type.Array(Type.Union([Text, Type.Object({ text: Text }, { additionalProperties: true })]), {
      minItems: 1,
      maxItems: DOCUMENTS_MAX,
      description: "Texts, or objects with a text. Other fields of an object are not sent.",
    }),
    top_n: Optional(Type.Integer({ minimum: 1, description: "The number of results; all by default." })),
    return_documents: Optional(Type.Boolean({ default: false, description: "Repeat each document in its result." })),
    usage: UsageOptions,
  },
  {
    title: "RerankRequest",
    description:
      "Other fields are accepted. Supported ones are passed on to the model unchanged; the others are dropped, and named in the response header X-Dropped-Params.",
    additionalProperties: true,
  },
);
type RerankBody = Static<typeof RerankBody>;

const RerankAnswer = Type.Object(
  {
    object: Type.Literal("list"),
    model: Type.String({ description: "The model id of the request." }),
    results: Type.Array(
      Type.Object(
        {
          index: Type.Integer({ minimum: 0, description: "The place of the document in the request." }),
          relevance_score: Type.Number({ format: "double" }),
          document: Type.Optional(Type.Object({ text: Type.String() })),
        },
        { title: "RerankResult" },
      ),
      { description: "The most relevant first." },
    ),
    usage: Usage,
  },
  { title: "RerankList" },
);

export const RERANK_PARAMETERS = parameterList([
  { title: "Basics", names: ["model", "query", "documents", "top_n", "return_documents"] },
  ...chatGroups("End user"),
]);

/** POST /v1/rerank. */
export const RERANK: MeteredEndpoint = {
  path: PATH,
  operation: meteredOperation({
    id: "createRerank",
    tag: "Embeddings",
    summary: "Order documents by how well they answer a query",
    description:
      "The balance is charged for the tokens of the input, and for the request if the model has a price a request.",
    body: {
      schema: RerankBody,
      example: {
        model: EXAMPLE_MODELS.rerank,
        query: "What is a toll gate?",
        documents: ["A road with a barrier", "A bird"],
      },
    },
    answer: { schema: RerankAnswer, description: "The documents' places and scores, the most relevant first." },
  }),
  serve: rerank,
};

const checkBody = checker(RerankBody);

/** Body → model → reserve → dispatch → settle, for reranking. */
async function rerank(deps: Deps, caller: Caller, { raw, slots }: Admitted): Promise<Response> {
  const body = checkBody(raw.value);
  const model = requireModel(deps, caller, body.model, "rerank");
  const documents = body.documents.map((document) => (typeof document === "string" ? document : document.text));
  // Models read the query with each document.
  const texts = documents.flatMap((document) => [body.query, document]);
  const prompt = new Prompt(texts, { overheadTokens: overheadOf(documents.length, model) });
  checkRequestBounds(caller, {
    ...{ choices: 1, inputs: documents.length, inputsParam: "documents", promptTokens: prompt.tokens },
    ...{ promptParam: "documents", capTokens: null, capParam: "max_tokens" },
  });
  const reserving = reserveEmbedding(deps, caller, { model, prompt });
  return await withHold({ deps, caller, model, slots, promptParam: "documents" }, reserving, (reserved) =>
    serveRerank({ ...reserved, prompt, choices: 0 }, { body, documents, spans: raw.spans }),
  );
}

type Asked = { body: RerankBody; documents: readonly string[]; spans: Admitted["raw"]["spans"] };

async function serveRerank(
  request: ReservedRequest & { prompt: Prompt; choices: number },
  asked: Asked,
): Promise<Outcome> {
  const { model } = request;
  const { body, documents } = asked;
  // The call runs to its end even if the client leaves, and is settled. Source: END-7.
  const result = await dispatch(request, "finish", (route, attempt) =>
    fetchScores(request, { ...asked, route, attempt }),
  );
  if (result.how === "failed") return result;
  const { scores, usage: reported, rawUsage, dropped } = result.answer;
  const usage = await chatUsage(request, { usage: reported, rawUsage, completionText: "" });
  noteUsed(request, { route: result.route, kind: "whole", usage });
  const results = scores.slice(0, body.top_n ?? documents.length).map(({ index, score }) => ({
    index,
    relevance_score: score,
    ...(body.return_documents === true && { document: { text: documents[index] } }),
  }));
  const charge = chargeShown({ ...request, showsCharge: asksForCharge(body) }, usage.chargeNanoUsd);
  const shown = usageShown({ counted: usage, charge });
  const head = JSON.stringify({ object: "list", model: model.id, results });
  return { how: "answered", usage, text: `${head.slice(0, -1)},"usage":${shown}}`, dropped };
}

type Fields = Readonly<Record<string, unknown>>;
type Score = { index: number; score: number };
type RerankResult = {
  scores: Score[];
  usage: ReportedUsage | undefined;
  rawUsage: unknown;
  dropped: string | undefined;
};

/** Calls a route and reads its scores. Throws ProviderFailure if they are not of the documents. */
async function fetchScores(
  { deps, caller }: ReservedRequest,
  { body, documents, spans, route, attempt }: Asked & { route: KeyedRoute; attempt: Attempt },
): Promise<RerankResult> {
  const filter = { list: RERANK_PARAMETERS, body, spans, by: route, namer: namerOf(deps, caller) };
  const { changed, dropped } = filterParameters(filter);
  const fields = Object.fromEntries(
    [...spans.keys()].map((name) => [name, changed.has(name) ? changed.get(name) : body[name as keyof RerankBody]]),
  );
  // The documents are ours to repeat.
  const sent = JSON.stringify({ ...fields, model: route.upstreamModel, documents, return_documents: undefined });
  const { provider, answerMemory, config } = deps;
  const call: WholeCall = {
    ...{ provider, answerMemory, payer: caller.key, requestId: caller.requestId, totalMs: config.providerTotalMs },
    ...attempt,
  };
  const text = await provider.postWhole(route, PATH, sent, limitsOf(call, RERANK_BYTES_MAX));
  const { list, fields: answer } = entriesOf(text, PLACES, { route, sent });
  const { usage, raw: rawUsage } = reportOfEntries(answer, list ?? []);
  return {
    scores: scoresOf(indexed(list, answer), {
      most: documents.length,
      least: Math.min(body.top_n ?? documents.length, documents.length),
    }),
    usage: usage && { ...usage, completionTokens: 0 },
    rawUsage,
    dropped,
  };
}

/** Members of a result with its score, and with the place of its document. NVIDIA's rankings have logits, Sentence Transformers' ids of a corpus. */
const SCORES = ["relevance_score", "score", "relevance", "similarity", "logit", "rerank_score", "relevanceScore"];
const INDEXES = ["index", "document_index", "doc_index", "corpus_id"];
const PLACES: ListPlaces = {
  lists: ["results", "data", "rankings", "scores", "result", "output"],
  entry: SCORES,
};

/** Bare scores with the places of their documents, if these are a list of their own beside them. */
function indexed(list: readonly unknown[] | undefined, { indices, indexes = indices }: Fields) {
  if (list === undefined || !Array.isArray(indexes) || list.some(isRecord)) return list;
  return list.map((score, place): unknown => ({ index: indexes[place], score }));
}

/** The scores, the highest first. Bare numbers are those of the documents in their order. */
function scoresOf(list: readonly unknown[] | undefined, { most, least }: { most: number; least: number }): Score[] {
  if (list === undefined) throw failure("the answer has no results");
  const seen = new Set<number>();
  const scores = list.map((item: unknown, place): Score => {
    const given = isRecord(item) ? item : { index: place, score: item };
    const { document } = given;
    const places = [...INDEXES.map((name) => given[name]), isRecord(document) ? document.index : undefined];
    const index = numberOf(places.find((one) => one !== undefined));
    const score = scoreIn(SCORES.map((name) => given[name]).find((one) => one !== undefined));
    if (index === undefined || index >= most || seen.has(index))
      throw failure("a result is not of a document of the request");
    if (typeof score !== "number" || !Number.isFinite(score)) throw failure("a result has no score");
    seen.add(index);
    return { index, score };
  });
  if (scores.length < least) throw failure(`the answer has ${scores.length} results of ${least}`);
  return scores.sort((a, b) => b.score - a.score);
}

/** A score, also as a text. */
function scoreIn(score: unknown): unknown {
  return typeof score === "string" && /^-?\d{1,20}(?:\.\d{1,20})?(?:e-?\d{1,3})?$/i.test(score) ? Number(score) : score;
}

function failure(why: string): ProviderFailure {
  return new ProviderFailure("not_json", why);
}
