import type { FoundToken } from "../accounts/token_lookup.ts";
import { requireLiving } from "../accounts/tokens_store.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { isInNetworks, networkOf } from "../http/client_address.ts";
import { type Host, panelHostOf } from "../http/host.ts";
import { factsOf } from "../http/request_facts.ts";
import { inTime } from "../platform/time_limit.ts";
import { askedCall, countDelivery } from "./asked_calls.ts";
import { inBatchPlace } from "./batch_places.ts";
import type { Call } from "./operation.ts";

/** Who asks through the management API: host, token, network, rate. Source: MGT-2. */

const BEARER = /^bearer +(\S+) *$/i;

export type Bearer = { token: FoundToken; host: Host };

/** Throws host_not_allowed, invalid_token, too_many_requests. */
export async function bearerOf(deps: Deps, request: Request): Promise<Bearer> {
  const host = await panelHostOf(deps, request);
  const facts = factsOf(request);
  const [, secret = ""] = BEARER.exec(request.headers.get("authorization") ?? "") ?? [];
  const token = await inTime(deps.apiTokens.find(secret));
  if (token === undefined || !isServedOn(token, host) || !isFrom(token, facts.peerAddress())) {
    await deps.limiter.take(`token-guess:${networkOf(facts.peerAddress())}`);
    throw new Refusal("invalid_token");
  }
  facts.accountId = token.accountId;
  await deps.limiter.take(`token:${token.tokenId}`);
  return { token, host };
}

/** On a reseller's domain only its own tokens work: nothing there tells of the operator. */
function isServedOn({ tenantId }: FoundToken, { resellerId }: Host): boolean {
  return resellerId === null || resellerId === tenantId;
}

function isFrom({ networks }: FoundToken, address: string): boolean {
  return networks === null || isInNetworks(address, networks);
}

/** The call of an operation with a token. `beforeCommit` runs in each transaction, after the token was checked once more. */
export function callWith(
  deps: Deps,
  { token, host }: Bearer,
  { request, beforeCommit }: { request: Request; beforeCommit?: NonNullable<Call["caller"]["by"]>["beforeCommit"] },
): Call {
  const { accountId, madeBy, member, tenantId, role, tokenId, scopes } = token;
  const { signal } = request;
  const facts = factsOf(request);
  const leaveRead = () => facts.leaveRead?.();
  const by = {
    accountId: madeBy,
    worksIn: accountId,
    tokenId,
    requestId: facts.requestId,
    leaveRead,
    beforeCommit: async (tx: Parameters<NonNullable<typeof beforeCommit>>[0]) => {
      await requireLiving(tx, token);
      await beforeCommit?.(tx);
    },
  };
  const asker = { session: { accountId, tenantId }, leaveRead };
  return {
    caller: { accountId, role, member, tenantId, scopes, by },
    hostName: host.name,
    signal,
    read(work) {
      leaveRead();
      return deps.longReads.run({ side: "api", accountId, tenantId }, { signal }, work);
    },
    callOut: (kind, work) => askedCall(deps, { person: asker, kind }, work),
    countDelivery: () => countDelivery(deps, asker),
    makeBatch(sellerId, work) {
      leaveRead();
      return inBatchPlace(deps.batchPlaces, { sellerId, signal }, work);
    },
  };
}
