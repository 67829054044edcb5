import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  check,
  date,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  smallint,
  text,
  uniqueIndex,
} from "drizzle-orm/pg-core";
import { bytea, id, instant } from "./schema_columns.ts";

/** Models, their prices, providers and routes. Prices are micro-USD per million tokens (which is pico-USD a token), or micro-USD an image. */

/** The models for sale. A model without prices is sold by package only. */
export const models = pgTable(
  "models",
  {
    id: text().primaryKey(),
    name: text().notNull(),
    ownedBy: text().notNull(),
    contextLength: integer(),
    status: text({ enum: ["active", "preview", "deprecated"] })
      .notNull()
      .default("active"),
    modality: text({ enum: ["text", "image", "multimodal", "embedding", "rerank"] })
      .notNull()
      .default("text"),
    architecture: jsonb().$type<Record<string, unknown>>(),
    enabled: boolean().notNull().default(true),
    inputMicroUsd: bigint({ mode: "number" }),
    cachedInputMicroUsd: bigint({ mode: "number" }),
    outputMicroUsd: bigint({ mode: "number" }),
    /** All other token prices: FurtherPrices of `catalog/rates.ts`. */
    furtherPrices: jsonb().$type<unknown>().notNull().default({}),
    /** The output cap of a pay-as-you-go request that has none. */
    defaultCapTokens: integer().notNull().default(4096),
    /** How many input tokens a request may use beyond its text: ModelBounds of `catalog/model_bounds.ts`. Source: MON-3. */
    requestTokens: integer().notNull().default(640),
    messageTokens: integer().notNull().default(16),
    imageBaseTokens: integer().notNull().default(2_833),
    imageTileTokens: integer().notNull().default(5_667),
    imageTilePixels: integer().notNull().default(512),
    imageMostTokens: integer().notNull().default(50_000),
    fileMostTokens: integer().notNull().default(1_048_576),
    /** The operator's margin on reservations: bound × margin / 1,000. */
    marginPermille: integer().notNull().default(1000),
    /** Whether it bills hidden tokens; null: unknown, to be learned from its responses. */
    hidesTokens: boolean(),
    /** By what the order of its routes is chosen. Source: PRV-19. */
    routeChoice: text({ enum: ["order", "weight", "price", "latency"] })
      .notNull()
      .default("order"),
    createdAt: instant().notNull().defaultNow(),
  },
  (t) => [
    check("models_status", sql`${t.status} in ('active', 'preview', 'deprecated')`),
    check("models_modality", sql`${t.modality} in ('text', 'image', 'multimodal', 'embedding', 'rerank')`),
    check("models_prices_together", sql`(${t.inputMicroUsd} is null) = (${t.outputMicroUsd} is null)`),
    check(
      "models_price_range",
      sql`${t.inputMicroUsd} between 0 and 1000000000 and ${t.cachedInputMicroUsd} between 0 and ${t.inputMicroUsd} and ${t.outputMicroUsd} between 0 and 1000000000`,
    ),
    check(
      "models_further_prices",
      sql`jsonb_typeof(${t.furtherPrices}) = 'object' and (${t.inputMicroUsd} is not null or ${t.furtherPrices} = '{}')`,
    ),
    check("models_cap", sql`${t.defaultCapTokens} between 1 and 1000000`),
    check(
      "models_bounds",
      sql`${t.requestTokens} between 0 and 1000000 and ${t.messageTokens} between 0 and 10000 and ${t.imageBaseTokens} between 0 and 1000000 and ${t.imageTileTokens} between 0 and 1000000 and ${t.imageTilePixels} between 8 and 100000 and ${t.imageMostTokens} between 0 and 10000000 and ${t.fileMostTokens} between 0 and 100000000`,
    ),
    check("models_margin", sql`${t.marginPermille} between 1000 and 100000`),
    check("models_route_choice", sql`${t.routeChoice} in ('order', 'weight', 'price', 'latency')`),
  ],
);

/** Price of one generated image, by size and quality. */
export const imagePrices = pgTable(
  "image_prices",
  {
    modelId: text()
      .notNull()
      .references(() => models.id),
    size: text().notNull(),
    /** `standard`: for requests without a quality. */
    quality: text().notNull().default("standard"),
    microUsd: bigint({ mode: "number" }).notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.modelId, t.size, t.quality] }),
    check("image_prices_range", sql`${t.microUsd} between 0 and 1000000000`),
    check("image_prices_quality", sql`${t.quality} ~ '^[a-z0-9_-]{1,20}$'`),
  ],
);

/**
 * The prices of a model from a moment on, one row per change; holds and receipts refer to it. Triggers write it in the
 * transaction that changes `models` or `image_prices` (`note_price_version` in drizzle/0004_prices_changes_audit.sql). Rows
 * never change. `prices` is a PriceParts of `ledger/price.ts`.
 */
export const priceVersions = pgTable(
  "price_versions",
  {
    id: id(),
    modelId: text().notNull(),
    prices: jsonb().$type<unknown>().notNull(),
    validFrom: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [index("price_versions_model").on(t.modelId, t.id)],
);

/** Upstream AI services. Each has at least one row of `provider_keys`. */
export const providers = pgTable(
  "providers",
  {
    id: id(),
    name: text().notNull().unique(),
    baseUrl: text().notNull(),
    /** A name of `catalog/dialects.ts`. Source: DIA-1. */
    dialect: text().notNull().default("generic"),
    /** Facts of the dialect that are different for this provider: FactsOverride of `catalog/dialects.ts`. */
    facts: jsonb().$type<unknown>().notNull().default({}),
    enabled: boolean().notNull().default(true),
    createdAt: instant().notNull().defaultNow(),
  },
  (t) => [
    check("providers_dialect", sql`${t.dialect} ~ '^[a-z0-9.-]{1,40}$'`),
    check("providers_facts", sql`jsonb_typeof(${t.facts}) = 'object'`),
  ],
);

/**
 * The keys of a provider, encrypted with SECRET_KEY, and whether they are in quarantine, which all replicas share. A cooling key has rows
 * in `provider_key_pauses`. Source: PRV-9, PRV-10, PRV-11, PRV-14, PRV-15.
 */
export const providerKeys = pgTable(
  "provider_keys",
  {
    id: id(),
    providerId: bigint({ mode: "number" })
      .notNull()
      .references(() => providers.id),
    name: text().notNull(),
    keyCiphertext: bytea().notNull(),
    weight: integer().notNull().default(1),
    enabled: boolean().notNull().default(true),
    state: text({ enum: ["active", "quarantined"] })
      .notNull()
      .default("active"),
    /** When the state began. */
    since: instant().notNull().defaultNow(),
    /** When a quarantined key is probed next. */
    until: instant(),
    /** The failure that began the quarantine: a FailureKind of src/platform/metrics.ts. */
    why: text(),
    /** Quarantines and failed probes since a request was last served. */
    failures: integer().notNull().default(0),
    probedAt: instant(),
    /** Whose requests met the failure. null: several accounts'. */
    metAccountId: bigint({ mode: "number" }),
    /** null: several payers'. */
    metPayerId: bigint({ mode: "number" }),
    createdAt: instant().notNull().defaultNow(),
  },
  (t) => [
    uniqueIndex("provider_keys_name").on(t.providerId, t.name),
    check("provider_keys_weight", sql`${t.weight} between 1 and 1000`),
    check("provider_keys_state", sql`${t.state} in ('active', 'quarantined')`),
    check("provider_keys_until", sql`(${t.until} is null) = (${t.state} = 'active')`),
  ],
);

/** Pauses that providers asked for, by key and upstream model, because they limit by model. Deleted some time after they end. */
export const providerKeyPauses = pgTable(
  "provider_key_pauses",
  {
    keyId: bigint({ mode: "number" })
      .notNull()
      .references(() => providerKeys.id, { onDelete: "cascade" }),
    model: text().notNull(),
    since: instant().notNull(),
    until: instant().notNull(),
    /** As in `provider_keys`. */
    metAccountId: bigint({ mode: "number" }),
    metPayerId: bigint({ mode: "number" }),
  },
  (t) => [primaryKey({ columns: [t.keyId, t.model] })],
);

/** Routes: a model at a provider. Their model's `routeChoice` says which is tried first. */
export const routes = pgTable(
  "routes",
  {
    id: id(),
    modelId: text()
      .notNull()
      .references(() => models.id),
    providerId: bigint({ mode: "number" })
      .notNull()
      .references(() => providers.id),
    upstreamModel: text().notNull(),
    priority: integer().notNull().default(0),
    weight: integer().notNull().default(1),
    /** Facts that are different for this route. Source: DIA-1. */
    facts: jsonb().$type<unknown>().notNull().default({}),
    /** The provider has a /responses of its own for this model. Source: RSP-2. */
    ownResponses: boolean().notNull().default(false),
    /** Parameters that this route forwards beyond those of src/gateway/parameters.ts. */
    allowedParams: text().array().notNull().default(sql`'{}'`),
    /** Parameters that are not sent on this route, whatever the list says: its provider does not take them. */
    droppedParams: text().array().notNull().default(sql`'{}'`),
    /** What the provider charges the operator, for the choice by price: per million tokens, or per image. null: unknown. */
    costInputMicroUsd: bigint({ mode: "number" }),
    costOutputMicroUsd: bigint({ mode: "number" }),
    costImageMicroUsd: bigint({ mode: "number" }),
    enabled: boolean().notNull().default(true),
  },
  (t) => [
    uniqueIndex("routes_once").on(t.modelId, t.providerId, t.upstreamModel),
    check("routes_weight", sql`${t.weight} between 1 and 1000`),
    check("routes_facts", sql`jsonb_typeof(${t.facts}) = 'object'`),
    check("routes_allowed_params", sql`cardinality(${t.allowedParams}) <= 50`),
    check(
      "routes_dropped_params",
      sql`cardinality(${t.droppedParams}) <= 50 and not ${t.allowedParams} && ${t.droppedParams}`,
    ),
    check("routes_costs_together", sql`(${t.costInputMicroUsd} is null) = (${t.costOutputMicroUsd} is null)`),
    check(
      "routes_cost_range",
      sql`${t.costInputMicroUsd} between 0 and 1000000000 and ${t.costOutputMicroUsd} between 0 and 1000000000 and ${t.costImageMicroUsd} between 0 and 1000000000`,
    ),
  ],
);

/**
 * How much of what was reserved for prompts their answers used, by day and by the part that was mostly reserved for: sums that all
 * replicas add to every few seconds, and that only suggest other bounds. Kept for 30 days. See `catalog/bound_uses.ts`.
 */
export const boundUses = pgTable(
  "bound_uses",
  {
    modelId: text().notNull(),
    /** In UTC. */
    day: date().notNull(),
    part: text({ enum: ["text", "overhead", "images", "files", "output"] }).notNull(),
    /** The bounds of the model under which it was reserved: `boundsKey` in `catalog/bound_advice.ts`. */
    bounds: text().notNull(),
    requests: bigint({ mode: "number" }).notNull(),
    /** Requests that used more than was reserved. */
    overruns: bigint({ mode: "number" }).notNull(),
    /** The most that one request used of what was reserved. */
    mostPermille: integer().notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.modelId, t.day, t.part, t.bounds] }),
    check("bound_uses_part", sql`${t.part} in ('text', 'overhead', 'images', 'files', 'output')`),
  ],
);

/**
 * How a route did in a span of time: sums that all replicas add to every few seconds. No decision about money depends on them.
 * Rows of 5 minutes are kept for an hour, rows of an hour for a day, rows of a UTC day for
 * 31 days. See `catalog/route_stats.ts`.
 */
export const routeStats = pgTable(
  "route_stats",
  {
    routeId: bigint({ mode: "number" }).notNull(),
    /** `stream`: its durations are those to the first event; `whole`: to the end of the answer. */
    kind: text({ enum: ["stream", "whole"] }).notNull(),
    /** In minutes: 5 or 60. */
    span: smallint().notNull(),
    begins: instant().notNull(),
    /** Attempts that the provider answered, failed or refused. */
    requests: bigint({ mode: "number" }).notNull(),
    errors: bigint({ mode: "number" }).notNull(),
    /** As reported by the provider. */
    inputTokens: bigint({ mode: "number" }).notNull(),
    cachedTokens: bigint({ mode: "number" }).notNull(),
    /** What the provider says that answers cost the operator, and what these answers cost by the model's prices. */
    costNanoUsd: bigint({ mode: "number" }).notNull().default(0),
    pricedNanoUsd: bigint({ mode: "number" }).notNull().default(0),
    /** The number of answers in each bucket of durations. */
    durations: integer().array().notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.routeId, t.span, t.begins, t.kind] }),
    index("route_stats_begins").on(t.span, t.begins),
    check("route_stats_kind", sql`${t.kind} in ('stream', 'whole')`),
    check("route_stats_span", sql`${t.span} in (5, 60, 1440)`),
  ],
);
