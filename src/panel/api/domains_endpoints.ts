import { Elysia, t } from "elysia";
import { requireAddresses } from "../../accounts/domain_checks.ts";
import { instructionsFor, recordsOf } from "../../accounts/domain_records.ts";
import {
  addHost,
  findHost,
  type HostRef,
  listHosts,
  pageOfHosts,
  type ResellerHost,
  removeHost,
  setHostStatus,
  suspensionOf,
} from "../../accounts/hosts_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { siteUrl } from "../../http/host.ts";
import { Id, NO_NUL, whole } from "./fields.ts";
import { once } from "./form_once.ts";
import { longRead, signedIn } from "./panel_session.ts";

/** Resellers' domains: a reseller manages its own, an admin all of them. Source: DOM-1. */

const HOST_LENGTH_MAX = 400;
const PAGE_MAX = 200;
const REASON_LENGTH_MAX = 1200;
const CURSOR = /^([1-9]\d{0,14})\/([a-z0-9.-]+)$/;

const HostName = t.String({ minLength: 1, maxLength: HOST_LENGTH_MAX, pattern: NO_NUL, says: "a host name" });
const DomainParams = t.Object({ host: HostName });
const ResellerDomainParams = t.Object({ resellerId: Id, host: HostName });
const Status = t.Union([
  t.Literal("pending"),
  t.Literal("verifying"),
  t.Literal("active"),
  t.Literal("failed"),
  t.Literal("suspended"),
  t.Literal("removed"),
]);

export function domainsEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(ownEndpoints(deps)).use(adminEndpoints(deps));
}

function ownEndpoints(deps: Deps) {
  const { serverAddresses, dnsResolvers: resolvers } = deps.config;
  return signedIn(deps, "reseller")
    .get("/domains", async ({ person: { accountId: resellerId } }) => {
      const domains = (await listHosts(deps, { resellerId })).map(summaryOf);
      return { domains, serverAddresses, resolvers };
    })
    .post(
      "/domains",
      async ({ person, request, body: { host } }) => {
        requireAddresses(deps.config);
        const wanted = { host, resellerId: person.accountId };
        return describe(deps, await once(deps, { person, request }, () => addHost({ ...deps, by: person.by }, wanted)));
      },
      { body: t.Object({ host: HostName }) },
    )
    .get(
      "/domains/:host",
      async ({ person, params: { host } }) =>
        describe(deps, await domainOf(deps, { host, resellerId: person.accountId })),
      { params: DomainParams },
    )
    .post(
      "/domains/:host/check",
      async ({ person, params: { host } }) =>
        describe(deps, await deps.domainChecks.now({ host, resellerId: person.accountId }, person.by)),
      { params: DomainParams },
    )
    .delete(
      "/domains/:host",
      async ({ person, params: { host } }) => {
        const ref = { host, resellerId: person.accountId };
        if (!(await removeHost({ ...deps, by: person.by }, ref, false))) throw new Refusal("not_found");
        return { removed: true };
      },
      { params: DomainParams },
    );
}

function adminEndpoints(deps: Deps) {
  const ofReseller = { params: ResellerDomainParams };
  return signedIn(deps, "admin")
    .get(
      "/admin/domains",
      async ({ person, query: { status = null, q = "", before, limit }, request: { signal } }) => {
        const page = { status, q, before: before === undefined ? null : cursorOf(before) };
        const { rows, hasMore } = await longRead(deps, { person, signal }, (reading) =>
          pageOfHosts(reading, { ...page, ...(limit !== undefined && { limit }) }),
        );
        return { domains: rows.map((row) => ({ ...summaryOf(row), ...ownerOf(row) })), hasMore };
      },
      {
        query: t.Object({
          status: t.Optional(t.Union([Status, t.Literal("failing")])),
          q: t.Optional(t.String({ maxLength: HOST_LENGTH_MAX, pattern: NO_NUL, says: "part of a host name" })),
          /** The last row of the previous page, as in "12/ai.example.com". */
          before: t.Optional(
            t.String({ maxLength: HOST_LENGTH_MAX, pattern: CURSOR.source, says: "the last row of the previous page" }),
          ),
          limit: t.Optional(whole(1, PAGE_MAX)),
        }),
      },
    )
    .get(
      "/admin/domains/:resellerId/:host",
      async ({ params }) => describe(deps, await domainOf(deps, params)),
      ofReseller,
    )
    .post(
      "/admin/domains/:resellerId/:host/check",
      async ({ person, params }) => describe(deps, await deps.domainChecks.now(params, person.by)),
      ofReseller,
    )
    .post(
      "/admin/domains/:resellerId/:host/suspend",
      async ({ person, params, body: { reason } }) => {
        const wanted = { ...(await domainOf(deps, params)), status: "suspended" as const };
        const why = reason === undefined || reason.trim() === "" ? {} : { reason };
        return describe(deps, await setHostStatus({ ...deps, by: person.by }, { ...wanted, ...why }));
      },
      { ...ofReseller, body: t.Object({ reason: t.Optional(t.String({ maxLength: REASON_LENGTH_MAX })) }) },
    )
    .post(
      "/admin/domains/:resellerId/:host/activate",
      async ({ person, params }) => {
        const wanted = { ...(await domainOf(deps, params)), status: "active" as const };
        return describe(deps, await setHostStatus({ ...deps, by: person.by }, wanted));
      },
      ofReseller,
    )
    .delete(
      "/admin/domains/:resellerId/:host",
      async ({ person, params }) => {
        if (!(await removeHost({ ...deps, by: person.by }, params, true))) throw new Refusal("not_found");
        return { removed: true };
      },
      ofReseller,
    );
}

/** Throws not_found, also for another reseller's domain. */
async function domainOf(deps: Deps, { host, resellerId }: HostRef): Promise<ResellerHost> {
  const found = await findHost(deps, { host, resellerId });
  if (!found) throw new Refusal("not_found");
  return found;
}

function summaryOf(domain: ResellerHost) {
  const { host, status, byHand, contested, failures, createdAt, checkedAt, nextCheckAt, activatedAt } = domain;
  return { host, status, byHand, contested, failures, createdAt, checkedAt, nextCheckAt, activatedAt };
}

function ownerOf({ resellerId, resellerName }: { resellerId: number; resellerName: string }) {
  return { resellerId, resellerName };
}

/** A domain with its address, the DNS records it needs, the report of the last check, and its suspension if it is suspended. */
async function describe(deps: Deps, domain: ResellerHost) {
  const records = recordsOf(domain, deps.config);
  const suspension = domain.status === "suspended" ? await suspensionOf(deps, domain) : undefined;
  return {
    ...summaryOf(domain),
    /** Where customers sign in once it is active. */
    url: siteUrl(deps, domain.host),
    suspension: suspension ?? null,
    records,
    report: domain.report,
    instructions: instructionsFor(domain.host, records),
  };
}

function cursorOf(before: string): HostRef {
  const [, id = "", host = ""] = CURSOR.exec(before) ?? [];
  return { resellerId: Number(id), host };
}
