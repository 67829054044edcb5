import { Elysia, t } from "elysia";
import { type HostRef, listHosts, pageOfHosts } from "../../accounts/hosts_store.ts";
import type { Deps } from "../../deps.ts";
import {
  activateDomain,
  addDomain,
  describeDomain,
  domainOf,
  getDomain,
  removeDomain,
  summaryOf,
  suspendDomain,
} from "../../operations/domains.ts";
import { Id, NO_NUL, whole } from "./fields.ts";
import { bodyOf, operate } from "./operate.ts";
import { longRead, signedIn } from "./panel_session.ts";

/** Resellers' domains: a reseller manages its own, an admin all of them. Source: DOM-1. */

const HOST_LENGTH_MAX = 400;
const PAGE_MAX = 200;
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
    .post("/domains", operate(deps, addDomain), { body: bodyOf(addDomain, "resellerId") })
    .get("/domains/:host", operate(deps, getDomain), { params: DomainParams })
    .post(
      "/domains/:host/check",
      async ({ person, params: { host } }) =>
        describeDomain(deps, await deps.domainChecks.now({ host, resellerId: person.accountId }, person.by)),
      { params: DomainParams },
    )
    .delete("/domains/:host", operate(deps, removeDomain), { params: DomainParams });
}

function adminEndpoints(deps: Deps) {
  const ofReseller = { params: ResellerDomainParams };
  /** An unknown reseller in a path reads like an unknown domain. */
  const known = {
    async add({ params }: { params: Record<string, unknown> }) {
      await domainOf(deps, { host: String(params.host), resellerId: Number(params.resellerId) });
      return {};
    },
  };
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
      async ({ params }) => describeDomain(deps, await domainOf(deps, params)),
      ofReseller,
    )
    .post(
      "/admin/domains/:resellerId/:host/check",
      async ({ person, params }) => describeDomain(deps, await deps.domainChecks.now(params, person.by)),
      ofReseller,
    )
    .post("/admin/domains/:resellerId/:host/suspend", operate(deps, suspendDomain, known), {
      ...ofReseller,
      body: bodyOf(suspendDomain, "resellerId", "host"),
    })
    .post("/admin/domains/:resellerId/:host/activate", operate(deps, activateDomain, known), ofReseller)
    .delete("/admin/domains/:resellerId/:host", operate(deps, removeDomain, known), ofReseller);
}

function ownerOf({ resellerId, resellerName }: { resellerId: number; resellerName: string }) {
  return { resellerId, resellerName };
}

function cursorOf(before: string): HostRef {
  const [, id = "", host = ""] = CURSOR.exec(before) ?? [];
  return { resellerId: Number(id), host };
}
