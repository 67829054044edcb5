import { Type } from "@sinclair/typebox";
import { requireAddresses } from "../accounts/domain_checks.ts";
import { instructionsFor, recordsOf } from "../accounts/domain_records.ts";
import {
  addHost,
  findHost,
  type HostRef,
  listHosts,
  type ResellerHost,
  removeHost,
  setHostStatus,
  suspensionOf,
} from "../accounts/hosts_store.ts";
import { Refusal } from "../errors.ts";
import { siteUrl } from "../http/host.ts";
import { resellerInScope } from "./fence.ts";
import { At, NO_NUL, orNull, RowId, text } from "./fields.ts";
import { type Call, changing, type OperationDeps, operation } from "./operation.ts";

/** Resellers' domains: a reseller manages its own, an admin all of them. Source: DOM-1. */

const SELLERS = ["reseller", "admin"] as const;
const HOST_LENGTH_MAX = 400;
const REASON_LENGTH_MAX = 1200;

const HostName = Type.String({ minLength: 1, maxLength: HOST_LENGTH_MAX, pattern: NO_NUL, says: "a host name" });
const OfReseller = { resellerId: Type.Optional(RowId) };
const OfDomain = { ...OfReseller, host: HostName };

const DOMAIN = {
  host: Type.String(),
  resellerId: RowId,
  status: Type.Union([
    Type.Literal("pending"),
    Type.Literal("verifying"),
    Type.Literal("active"),
    Type.Literal("failed"),
    Type.Literal("suspended"),
    Type.Literal("removed"),
  ]),
  byHand: Type.Boolean({ description: "Its status was set by a person, so that it is not checked." }),
  contested: Type.Boolean({ description: "Another account claims it: prove it by the TXT record." }),
  createdAt: At,
  checkedAt: orNull(At),
  nextCheckAt: orNull(At),
  activatedAt: orNull(At),
};
export const DomainDetails = Type.Object(
  {
    ...DOMAIN,
    url: Type.String({ description: "Where customers sign in once it is active." }),
    suspension: orNull(Type.Object({ since: At, reason: orNull(Type.String()) })),
    instructions: Type.String({ description: "The DNS records that it needs, as text." }),
  },
  { title: "DomainDetails" },
);

export const listDomains = operation({
  name: "domains.list",
  says: "Lists the domains of a reseller by name; for an admin, of all resellers.",
  scope: "domains:read",
  roles: SELLERS,
  route: "GET /domains",
  input: OfReseller,
  output: Type.Object({ domains: Type.Array(Type.Object(DOMAIN, { title: "Domain" })) }),
  async run(deps, { caller }, wanted) {
    const isAll = caller.role === "admin" && wanted.resellerId === undefined;
    const resellerId = isAll ? undefined : await resellerInScope(deps, caller, wanted.resellerId);
    return { domains: await listHosts(deps, { resellerId }) };
  },
});

export const getDomain = operation({
  name: "domains.get",
  says: "Returns a domain, with the DNS records that it needs.",
  scope: "domains:read",
  roles: SELLERS,
  route: "GET /domains/{host}",
  input: OfDomain,
  output: DomainDetails,
  run: async (deps, call, wanted) => describeDomain(deps, await domainOf(deps, await refOf(deps, call, wanted))),
});

export const addDomain = operation({
  name: "domains.add",
  says: "Adds a domain of a reseller. It is pending until its DNS records are right.",
  scope: "domains:write",
  roles: SELLERS,
  route: "POST /domains",
  input: OfDomain,
  output: DomainDetails,
  async run(deps, call, wanted) {
    const ref = await refOf(deps, call, wanted);
    // The command line points the record first, and gives the domain.
    if (call.caller.by !== undefined) requireAddresses(deps.config);
    const status = call.caller.by === undefined ? "active" : "pending";
    return describeDomain(deps, await addHost(changing(deps, call), { ...ref, status }));
  },
});

export const suspendDomain = operation({
  name: "domains.suspend",
  says: "Stops serving a domain at once, until it is activated.",
  scope: "domains:write",
  roles: ["admin"],
  route: "POST /domains/{host}/suspend",
  input: { ...OfDomain, reason: Type.Optional(text(REASON_LENGTH_MAX)) },
  output: DomainDetails,
  async run(deps, call, { reason, ...wanted }) {
    const ref = await domainOf(deps, await refOf(deps, call, wanted));
    const why = reason === undefined || reason.trim() === "" ? {} : { reason };
    const change = { host: ref.host, resellerId: ref.resellerId, status: "suspended" as const, ...why };
    return describeDomain(deps, await setHostStatus(changing(deps, call), change));
  },
});

export const activateDomain = operation({
  name: "domains.activate",
  says: "Serves a domain, whatever its DNS check found.",
  scope: "domains:write",
  roles: ["admin"],
  route: "POST /domains/{host}/activate",
  input: OfDomain,
  output: DomainDetails,
  async run(deps, call, wanted) {
    const { host, resellerId } = await domainOf(deps, await refOf(deps, call, wanted));
    return describeDomain(deps, await setHostStatus(changing(deps, call), { host, resellerId, status: "active" }));
  },
});

export const removeDomain = operation({
  name: "domains.remove",
  says: "Removes a domain from its reseller at once.",
  scope: "domains:write",
  roles: SELLERS,
  route: "DELETE /domains/{host}",
  input: OfDomain,
  output: Type.Object({ removed: Type.Boolean() }),
  async run(deps, call, wanted) {
    const ref = await refOf(deps, call, wanted);
    if (!(await removeHost(changing(deps, call), ref, call.caller.role === "admin"))) throw noDomain();
    return { removed: true };
  },
});

type Wanted = { host: string; resellerId?: number | undefined };

/** The domain that is meant. Throws not_found for another reseller's, and InputError if an admin names no reseller. */
async function refOf(deps: OperationDeps, { caller }: Call, { host, resellerId }: Wanted): Promise<HostRef> {
  return { host, resellerId: await resellerInScope(deps, caller, resellerId) };
}

/** Throws not_found, also for another reseller's domain. */
export async function domainOf(deps: OperationDeps, { host, resellerId }: HostRef): Promise<ResellerHost> {
  const found = await findHost(deps, { host, resellerId });
  if (!found) throw noDomain();
  return found;
}

/** A domain with its address, the DNS records it needs, the report of the last check, and its suspension if it is suspended. */
export async function describeDomain(deps: OperationDeps, domain: ResellerHost) {
  const records = recordsOf(domain, deps.config);
  const suspension = domain.status === "suspended" ? await suspensionOf(deps, domain) : undefined;
  return {
    ...summaryOf(domain),
    resellerId: domain.resellerId,
    url: siteUrl(deps, domain.host),
    suspension: suspension ?? null,
    records,
    report: domain.report,
    instructions: instructionsFor(domain.host, records),
  };
}

export function summaryOf(domain: ResellerHost) {
  const { host, status, byHand, contested, failures, createdAt, checkedAt, nextCheckAt, activatedAt } = domain;
  return { host, status, byHand, contested, failures, createdAt, checkedAt, nextCheckAt, activatedAt };
}

function noDomain(): Refusal {
  return new Refusal("not_found");
}
