import { affinityOf } from "../../catalog/affinity.ts";
import type { KeyedRoute, Model, Route } from "../../catalog/catalog.ts";
import { ProviderFailure, ProviderRejection } from "../../catalog/provider_errors.ts";
import type { Deps } from "../../deps.ts";
import { type Body, keepInstead } from "../../http/body.ts";
import type { Admitted } from "../admission.ts";
import { checkOwnAnswer } from "../answer_size.ts";
import type { Caller } from "../authenticate.ts";
import { chatPayload } from "../chat_payload.ts";
import type { Attempt } from "../dispatch.ts";
import { type Namer, namerOf } from "../end_users.ts";
import { checkSent, droppedNames } from "../filtering.ts";
import { serveStream, serveWhole, type TextRequest, unixSeconds } from "../flow.ts";
import { type Outcome, withHold } from "../hold.ts";
import type { MeteredEndpoint } from "../metered.ts";
import { requireModel } from "../models.ts";
import { hasSameRules } from "../parameters.ts";
import type { Prompt } from "../prompt.ts";
import { checkRequestBounds } from "../request_bounds.ts";
import { asksForCharge } from "../request_shapes.ts";
import { reserveChat } from "../reserve.ts";
import {
  type ChatAnswer,
  type ChatCall,
  type OpenedChat,
  openStream,
  streamOfChat,
  type TextCall,
  wholeChat,
} from "../upstream_chat.ts";
import { CREATE_RESPONSE } from "../v1_operations.ts";
import { ChatForm } from "./chat_form.ts";
import { fromChatAnswer, ResponseEvents } from "./from_chat.ts";
import { responseIdOf } from "./item_ids.ts";
import type { OutputFacts } from "./output.ts";
import { type OwnBody, ownBody, ownPlaces } from "./own_parameters.ts";
import { fetchOwnResponse, type OwnCall, openOwnStream, ownPrompt } from "./own_responses.ts";
import { recall } from "./recall.ts";
import { refusal } from "./refusals.ts";
import { checkInput, placeOf, type ResponsesBody, readResponses, refersBack } from "./request.ts";
import { echoOf } from "./response_object.ts";
import { checkReasoning } from "./sealed_reasoning.ts";
import type { Keeper } from "./stored_responses.ts";
import { toChat } from "./to_chat.ts";
import { checkChoice, readTools, type Tools } from "./tools.ts";

/**
 * POST /v1/responses: the steps of chat, with another body. A route with its own /responses gets the request itself,
 * any other route a translation to chat completions. A request may try both, one after the other. Source: API-14,
 * RSP-1, RSP-2.
 */

/** The value of `include` by which a client asks for sealed reasoning. */
const INCLUDE_REASONING = "reasoning.encrypted_content";

/** POST /v1/responses. */
export const RESPONSES: MeteredEndpoint = {
  path: "/responses",
  operation: CREATE_RESPONSE,
  serve: responses,
  streams: true,
};

/** Body → stored conversation → model → reserve → dispatch → settle, for responses. */
async function responses(deps: Deps, caller: Caller, admitted: Admitted): Promise<Response> {
  const { raw } = admitted;
  const received = readResponses(raw);
  const body = refersBack(received) ? await recall(deps, caller, { raw, body: received }) : received;
  if (body !== received) checkInput(body);
  const tools = readTools(body);
  checkChoice(body, tools);
  if (body.stream) caller.record.kind = "stream";
  const model = requireModel(deps, caller, body.model, "text");
  checkHostedChoice(body, tools, model);
  const keeper = keeperOf(deps, caller, { raw, body, isReceived: body === received });
  try {
    return await serveBody(deps, caller, { ...admitted, body, tools, model, keeper });
  } catch (error) {
    keeper?.close();
    throw error;
  }
}

type CheckedRequest = Admitted & { body: ResponsesBody; tools: Tools; model: Model; keeper: Keeper | undefined };

/** Serves a checked request under a hold. Its end closes `keeper`; the caller does, after an error. */
async function serveBody(
  deps: Deps,
  caller: Caller,
  { raw, slots, body, tools, model, keeper }: CheckedRequest,
): Promise<Response> {
  const namer = namerOf(deps, caller);
  const own = model.routes.some((route) => route.ownResponses) ? new OwnForm(body, { model, namer }) : undefined;
  const isOwn = own !== undefined && model.routes.every((route) => route.ownResponses);
  const chat = isOwn ? undefined : new ChatForm({ raw, model, namer, ...toChat(body, { tools, seal: namer }) });
  if (chat === undefined) checkReasoning(namer, body);
  // From here on nothing of the received text is sent or kept. Source: ADM-5.
  keepInstead(raw, [own?.prompt.text ?? "", chat?.raw.text ?? ""]);
  const prompt = largerOf(own?.prompt, chat?.prompt);
  const { max_output_tokens, stream } = body;
  checkRequestBounds(caller, {
    ...{ choices: 1, inputs: 1, promptTokens: prompt.tokens, promptParam: "input" },
    ...{ capTokens: max_output_tokens ?? null, capParam: "max_output_tokens" },
  });
  const affinity = model.hasChoice ? affinityOf(caller.key.accountId, beginningOf(body)) : undefined;
  const facts: OutputFacts = {
    response: {
      id: responseIdOf(caller.requestId),
      createdUnix: unixSeconds(deps),
      modelId: body.model,
      metadata: JSON.stringify(body.metadata ?? {}),
      previousResponseId: body.previous_response_id ?? null,
      store: keeper !== undefined,
      echo: echoOf(body, tools),
    },
    names: tools.names,
    seal: body.include?.includes(INCLUDE_REASONING) ? namer : undefined,
  };
  const toReserve = { model, body: { max_completion_tokens: max_output_tokens }, prompt, choices: 1 };
  return await withHold(
    { deps, caller, model, slots, affinity, promptParam: "input" },
    reserveChat(deps, caller, toReserve),
    (reserved): Promise<Outcome> => {
      // The reserved cap is the client's own, if it sent one.
      const capTokens = reserved.hold.capTokens ?? max_output_tokens ?? null;
      const showsCharge = asksForCharge(body);
      const request = { ...reserved, raw, prompt, choices: 1, showsCharge, own, chat, capTokens, facts, keeper };
      return stream === true ? serveEvents(request) : serveJson(request);
    },
  );
}

function serveJson(request: ResponsesRequest): Promise<Outcome> {
  return serveWhole(request, (route, attempt) => fetchAnswer(request, route, attempt));
}

function serveEvents(request: ResponsesRequest): Promise<Outcome> {
  const { caller, facts } = request;
  const { createdUnix, modelId } = facts.response;
  const plan = {
    ...{ requestId: caller.requestId, createdUnix, modelId },
    wantsUsage: true,
  };
  if (caller.wait) caller.wait.errorText = (envelope) => new ResponseEvents(facts).errorEvents(envelope);
  return serveStream(request, plan, (route, attempt) => openAnswer(request, route, attempt));
}

/** What stores the response; undefined: it is not stored. The input is taken before its text is dropped. */
function keeperOf(
  { storedResponses }: Deps,
  { key, requestId }: Caller,
  { raw, body, isReceived }: { raw: Body; body: ResponsesBody; isReceived: boolean },
): Keeper | undefined {
  if (storedResponses.keepHours === 0 || body.store === false) return undefined;
  const span = raw.spans.get("input");
  const input = isReceived && span ? raw.text.slice(span.start, span.end) : JSON.stringify(body.input);
  return storedResponses.keeper(key, requestId, input);
}

/** The fields that `affinityOf` reads, by their names in chat completions. */
function beginningOf(body: ResponsesBody): Readonly<Record<string, unknown>> {
  const { prompt_cache_key, user, input }: Readonly<Record<string, unknown>> = body;
  return { prompt_cache_key, user, messages: Array.isArray(input) ? input : [{ role: "user", content: input }] };
}

type ResponsesRequest = TextRequest & {
  own: OwnForm | undefined;
  chat: ChatForm | undefined;
  capTokens: number | null;
  facts: OutputFacts;
};

/** Refuses a hosted tool that the model must call and that none of its routes may get. Source: RSP-5. */
function checkHostedChoice({ tool_choice: choice }: ResponsesBody, { hosted }: Tools, model: Model): void {
  if (typeof choice !== "object" || choice === null) return;
  const { type } = choice;
  if (type === "function" || type === "custom" || type === "allowed_tools") return;
  const isServed =
    [...hosted.values()].includes(type) &&
    model.routes.some((route) => route.ownResponses && route.allowedParams.has(`tools.${type}`));
  if (!isServed)
    throw refusal("tool_choice", `The model has no tool of type ${type.slice(0, 64)} here. Use function tools.`);
}

/** The hold must cover whichever of the two forms is sent. */
function largerOf(one: Prompt | undefined, other: Prompt | undefined): Prompt {
  const larger = one === undefined || (other !== undefined && other.tokens > one.tokens) ? other : one;
  if (larger === undefined) throw new Error("a request has at least one form");
  return larger;
}

/** The request for routes with their own /responses. */
class OwnForm {
  readonly prompt: Prompt;
  readonly #request: ResponsesBody;
  readonly #model: Model;
  readonly #namer: Namer;
  /** Filtered by the model's rules; this form is reserved. */
  readonly #body: OwnBody;

  constructor(request: ResponsesBody, { model, namer }: { model: Model; namer: Namer }) {
    this.#request = request;
    this.#model = model;
    this.#namer = namer;
    this.#body = ownBody(request, model, namer);
    checkSent(this.#body.unsent);
    checkOwnAnswer(this.#body.fields, model);
    this.prompt = ownPrompt(this.#body, model);
  }

  bodyFor(route: Route): OwnBody {
    const body = hasSameRules(route, this.#model) ? this.#body : ownBody(this.#request, route, this.#namer);
    if (body.unsent === undefined) return body;
    throw new ProviderFailure("unknown_model", `the route does not take ${body.unsent}`);
  }

  /** A provider's rejection, with the client's path of the field. */
  rejectionOf(error: unknown, route: Route): unknown {
    if (!(error instanceof ProviderRejection) || error.param === null) return error;
    const places = ownPlaces(this.#request, route);
    const param = error.param.replace(/^(input|tools)\.?\[?(\d+)\]?/, (path, name: "input" | "tools", i: string) => {
      const place = places[name][Number(i)];
      if (place === undefined) return path;
      return name === "input" ? placeOf(this.#request, place) : `tools.${place}`;
    });
    return new ProviderRejection(error.message, { status: error.status, param });
  }
}

function fetchAnswer(request: ResponsesRequest, route: KeyedRoute, attempt: Attempt): Promise<ChatAnswer> {
  return ask(callFor(request, route, attempt), {
    own: async (call, dropped) => ({ ...(await fetchOwnResponse(call, route)), dropped }),
    translated: fetchTranslated,
  });
}

function openAnswer(request: ResponsesRequest, route: KeyedRoute, attempt: Attempt): Promise<OpenedChat> {
  return ask(callFor(request, route, attempt), {
    own: async (call, dropped) => ({ ...(await openOwnStream(call, route)), dropped }),
    translated: openTranslated,
  });
}

type RouteCall = { request: ResponsesRequest; route: KeyedRoute; call: TextCall };
type Translated = RouteCall & { chat: ChatForm };

function callFor(request: ResponsesRequest, route: KeyedRoute, attempt: Attempt): RouteCall {
  return { request, route, call: callOf(request, attempt) };
}

/** How a route is asked in each form of the request. */
type Ways<T> = {
  own: (call: OwnCall, dropped: string | undefined) => Promise<T>;
  translated: (translated: Translated) => Promise<T>;
};

/** Asks a route in its form of the request. Rejections of the provider name the fields of this API. */
async function ask<T>({ request, route, call }: RouteCall, ways: Ways<T>): Promise<T> {
  const { own, chat, facts, capTokens } = request;
  if (route.ownResponses && own !== undefined) {
    const body = own.bodyFor(route);
    try {
      return await ways.own({ ...call, body, capTokens, response: facts.response }, droppedNames(body.dropped));
    } catch (error) {
      throw own.rejectionOf(error, route);
    }
  }
  if (chat === undefined) throw new Error("the request has no translation for this route");
  try {
    return await ways.translated({ request, route, call, chat });
  } catch (error) {
    throw chat.rejectionOf(error);
  }
}

async function fetchTranslated({ request, chat, call, route }: Translated): Promise<ChatAnswer> {
  const chatCall = chatCallOf(request, chat, call);
  const payload = chatPayload(chatCall, route);
  const { value, reports, coverage, isEmpty } = await wholeChat(chatCall, route, payload);
  return {
    ...fromChatAnswer(value, request.facts),
    usage: reports.usage,
    rawUsage: reports.raw,
    coverage,
    dropped: chat.droppedWith(payload.dropped),
    isEmpty,
  };
}

async function openTranslated({ request, chat, call, route }: Translated): Promise<OpenedChat> {
  const opened = await openStream(call, route, streamOfChat(chatCallOf(request, chat, call), route));
  const holdsCalls = isGemini(route) || keepLate.get(route.id) !== false;
  opened.rewriter = new ResponseEvents({
    ...request.facts,
    holdsCalls,
    onCallsEnded: (late) => keepLate.set(route.id, late || keepLate.get(route.id) === true),
  });
  opened.dropped = chat.droppedWith(opened.dropped);
  return opened;
}

/**
 * By route: whether a signature has come behind its call in this process. Calls wait where one has, and where no call has been seen yet: a
 * client that has read an id must not find another one at the end.
 */
const keepLate = new Map<number, boolean>();

/** Gemini's signatures may come behind the names of their calls. */
function isGemini({ upstreamModel }: KeyedRoute): boolean {
  return /gemini/i.test(upstreamModel);
}

function callOf({ deps, caller }: ResponsesRequest, attempt: Attempt): TextCall {
  const { provider, answerMemory, config } = deps;
  const { providerFirstByteMs: firstByteMs, providerTotalMs: totalMs } = config;
  return { provider, answerMemory, payer: caller.key, requestId: caller.requestId, firstByteMs, totalMs, ...attempt };
}

function chatCallOf({ model, capTokens }: ResponsesRequest, chat: ChatForm, call: TextCall): ChatCall {
  const { body, raw, namer, filtered } = chat;
  return { ...call, body, raw, namer, filtered, model, capTokens };
}
