import { type Account, addAccount, findAccount, findAccountsByEmail } from "../accounts/accounts_store.ts";
import type { HostConfig } from "../accounts/host_names.ts";
import { addHost, findHost, setHostStatus } from "../accounts/hosts_store.ts";
import { loadKeySnapshots } from "../accounts/key_snapshots_store.ts";
import { createKey, type KeyMode, listKeys, revokeKey } from "../accounts/keys_store.ts";
import { addOffering, findOffering, type NewOffering } from "../accounts/offerings_store.ts";
import { hashPassword, verifyPassword } from "../accounts/passwords.ts";
import type { Role } from "../accounts/roles.ts";
import { passwordHashOf, setPassword } from "../accounts/sign_in_store.ts";
import { FACT_NAMES } from "../catalog/dialects.ts";
import { addModel, listModels, updateModel } from "../catalog/models_store.ts";
import { listProviderKeys, removeProviderKey, updateProviderKey } from "../catalog/provider_keys_store.ts";
import { addProvider, listProviders, updateProvider } from "../catalog/providers_store.ts";
import { addRoute, listRoutes } from "../catalog/routes_store.ts";
import { saveSellerDetails, sellerDetails } from "../commerce/invoice_details_store.ts";
import { readPaymentSettings, setInstructions } from "../commerce/payment_settings_store.ts";
import { listRetailPrices, setRetailPrice } from "../commerce/retail_prices_store.ts";
import { OPERATOR } from "../commerce/sellers_store.ts";
import type { Config } from "../config.ts";
import { addBalance, setPayg } from "../ledger/balances_store.ts";
import { assignPackage, listPackages } from "../ledger/packages_store.ts";
import type { Bus } from "../platform/bus.ts";
import { digestOfKey, randomToken } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import type { Credentials } from "./demo_folder.ts";
import type { DemoProvider } from "./demo_provider.ts";

/**
 * Adds people, models, offerings, packages and keys to the demo's database. Each step adds only what is missing, so repeated
 * or interrupted starts end with the same data.
 */

export const RESELLER_HOST = "ai.reseller.localhost";
const NANO_USD = 1_000_000_000n;
/** A balance below this is topped up, so that the demo never runs out of money. */
const BALANCE_LOW_NANO_USD = 1n * NANO_USD;
const PAYG_NANO_USD = 25n * NANO_USD;
const RESELLER_NANO_USD = 100n * NANO_USD;
/** Stands in place of a password that a person changed. */
const CHANGED = "changed in the panel";
/** The demo's own providers. Models and providers that a person added stay unchanged. */
const PROVIDER_NAMES = ["simulated", "provider"];

export type Seeded = {
  credentials: Credentials;
  packageKey: string;
  paygKey: string;
  paygNanoUsd: bigint;
  resellerCustomerKey: string;
};

type Deps = { db: Db; bus: Bus; config: Config };

/** Seeds the database. `known`: the keys and passwords of the last start. Those that still work are kept. */
export async function seed(deps: Deps, provider: DemoProvider, known: Credentials): Promise<Seeded> {
  await seedCatalog(deps, provider);
  const offerings = await seedOfferings(deps, provider);
  const { month } = offerings;

  const people = peopleOf(deps, known);
  await people.ensure("admin", "admin@example.com", "Ada Admin");
  const alice = await people.ensure("customer", "alice@example.com", "Alice, by package");
  const bob = await people.ensure("customer", "bob@example.com", "Bob, by balance");
  const reseller = await people.ensure("reseller", "reseller@example.com", "Rae Reseller");
  const carol = await people.ensure("customer", "carol@example.com", "Carol, the reseller's customer", reseller);

  await ensureHost(deps, reseller);
  await seedSelling(deps, reseller, offerings);
  const paygNanoUsd = await ensureBalance(deps, bob, PAYG_NANO_USD);
  await setPayg(deps, bob.accountId, true);
  await ensureBalance(deps, reseller, RESELLER_NANO_USD);
  await ensurePackage(deps, alice, month, null);
  // The reseller assigns this one and pays the wholesale price.
  await ensurePackage(deps, carol, month, reseller);

  const keys: Record<string, string> = {};
  const key = async (name: string, account: Account, mode: KeyMode) => {
    keys[name] = await ensureKey(deps, { name, account, mode, known: known.keys[name] });
    return keys[name];
  };
  const packageKey = await key("package", alice, "package");
  const paygKey = await key("payg", bob, "payg");
  const resellerCustomerKey = await key("reseller customer", carol, "package");
  return { credentials: { keys, people: people.list }, packageKey, paygKey, paygNanoUsd, resellerCustomerKey };
}

async function seedCatalog(deps: Deps, provider: DemoProvider): Promise<void> {
  const providerId = await ensureProvider(deps, provider);
  const models = new Map((await listModels(deps)).map((model) => [model.id, model]));
  const routes = await listRoutes(deps);
  for (const wanted of provider.models) {
    const model = models.get(wanted.id);
    const { upstreamModel, ...input } = wanted;
    if (!model) await addModel(deps, { ownedBy: provider.name, ...input });
    else if (!model.enabled) await updateModel(deps, wanted.id, { enabled: true });
    if (!routes.some((route) => route.modelId === wanted.id && route.providerId === providerId)) {
      await addRoute(deps, { modelId: wanted.id, upstreamModel, providerId });
    }
  }
  // The other provider is disabled, so its models are too.
  const offered = new Set(provider.models.map(({ id }) => id));
  for (const { id, enabled } of models.values()) {
    const ownRoutes = routes.filter(({ modelId }) => modelId === id);
    const isOfDemo =
      ownRoutes.length > 0 && ownRoutes.every(({ providerName }) => PROVIDER_NAMES.includes(providerName));
    if (enabled && isOfDemo && !offered.has(id)) await updateModel(deps, id, { enabled: false });
  }
}

async function ensureProvider(deps: Deps, { name, baseUrl, apiKey, dialect }: DemoProvider): Promise<number> {
  const known = await listProviders(deps);
  for (const other of known) {
    if (other.name !== name && other.enabled && PROVIDER_NAMES.includes(other.name)) {
      await updateProvider(deps, other.id, { enabled: false });
    }
  }
  const own = known.find((row) => row.name === name);
  if (!own) return addProvider(deps, { name, baseUrl, apiKey, dialect });
  const isMoved = own.baseUrl !== baseUrl;
  // A person may have set another dialect for a real provider, and facts. They belong to what answers at that address.
  const played = name === "simulated" || isMoved ? dialect : own.dialect;
  const changed = played !== own.dialect && { dialect: played, facts: NO_FACTS };
  const [first, ...more] = await listProviderKeys(deps, [own.id]);
  // The simulated provider gets a new port and key at each start. Keys that a person added belong to the old address.
  if (isMoved) for (const { id } of more) await removeProviderKey(deps, id);
  else if (first && more.length > 0) {
    await updateProviderKey(deps, first.id, { apiKey });
    await updateProvider(deps, own.id, { ...changed, enabled: true });
    return own.id;
  }
  await updateProvider(deps, own.id, { baseUrl, apiKey, ...changed, enabled: true });
  return own.id;
}

/** Every fact as the dialect says. */
const NO_FACTS = Object.fromEntries(FACT_NAMES.map((name) => [name, null]));

type Offerings = { day: number; week: number; month: number };

async function seedOfferings(deps: Deps, { chatModel }: DemoProvider): Promise<Offerings> {
  const timeZone = deps.config.billingTimeZone;
  const ensure = async (wanted: Omit<NewOffering, "timeZone">) =>
    ((await findOffering(deps, { name: wanted.name })) ?? (await addOffering(deps, { ...wanted, timeZone })))
      .offeringId;
  const day = await ensure({
    name: "Day pass, 500 requests",
    kind: "daily",
    dailyLimit: 500,
    wholesaleNanoUsd: NANO_USD / 2n,
  });
  const week = await ensure({
    name: "Week, 50 a day, one model",
    kind: "custom",
    days: 7,
    dailyLimit: 50,
    modelIds: [chatModel],
    wholesaleNanoUsd: 1n * NANO_USD,
  });
  const month = await ensure({
    name: "Month, 200 a day, carried over",
    kind: "custom",
    days: 30,
    dailyLimit: 200,
    carryover: true,
    wholesaleNanoUsd: 12n * NANO_USD,
  });
  return { day, week, month };
}

/** Prices, and a bank account to pay to, for the operator's and for the reseller's customers. What a person has set stays. */
async function seedSelling(deps: Deps, reseller: Account, { day, week, month }: Offerings): Promise<void> {
  const sellers = [
    {
      sellerId: OPERATOR,
      name: "Demo Operator Ltd",
      prices: [
        [day, 1],
        [week, 2],
        [month, 20],
      ],
    },
    {
      sellerId: reseller.accountId,
      name: "Rae Reseller",
      prices: [
        [day, 2],
        [month, 29],
      ],
    },
  ] as const;
  for (const { sellerId, name, prices } of sellers) {
    if ((await listRetailPrices(deps, sellerId)).size === 0)
      for (const [offeringId, usd] of prices)
        await setRetailPrice(deps, {
          sellerId,
          offeringId,
          priceNano: BigInt(usd) * NANO_USD,
          belowWholesale: false,
        });
    if ((await readPaymentSettings(deps, sellerId)).instructions === null)
      await setInstructions(
        deps,
        sellerId,
        `Transfer the amount to ${name}\nIBAN DE00 0000 0000 0000 0000 00\n(This is a demo: nobody gets the money.)`,
      );
    if ((await sellerDetails(deps, sellerId)).name === null)
      await saveSellerDetails(deps, sellerId, { name, address: "1 Toll Road\n12345 Demo City", taxLine: null });
  }
}

/** Finds people by e-mail address or creates them, with their known password or a new one. Collects them in `list`. */
function peopleOf(deps: Deps, known: Credentials) {
  const list: Credentials["people"] = [];
  return {
    list,
    async ensure(role: Role, email: string, name: string, reseller?: Account): Promise<Account> {
      const resellerId = reseller?.accountId ?? null;
      const knownPassword = known.people.find((person) => person.email === email)?.password;
      const found = (await findAccountsByEmail(deps, email)).find((account) => account.resellerId === resellerId);
      const password = await ensurePassword(deps, found, knownPassword);
      const { panelUrl } = deps.config;
      const belongsToReseller = role === "reseller" || resellerId !== null;
      const signInAt = belongsToReseller ? panelUrl.replace("localhost", RESELLER_HOST) : panelUrl;
      list.push({ email, role, password, signInAt });
      if (found) return found;
      return addAccount(deps, { role, email, name, resellerId, passwordHash: await hashPassword(password) });
    },
  };
}

/** The password of a person, or what stands in its place. An unknown one of an account is replaced, a changed one is kept. */
async function ensurePassword(deps: Deps, account: Account | undefined, known: string | undefined): Promise<string> {
  const password = known === undefined || (known === CHANGED && !account) ? randomToken(12) : known;
  if (!account) return password;
  const { accountId } = account;
  if (known === undefined) await setPassword(deps, { accountId, passwordHash: await hashPassword(password) });
  else if (!(await verifyPassword(await passwordHashOf(deps, accountId), known))) return CHANGED;
  return password;
}

async function ensureHost(deps: Deps, { accountId }: Account): Promise<void> {
  const found = await findHost(deps, { host: RESELLER_HOST });
  if (found?.status === "active") return;
  if (found) return void (await setHostStatus(deps, { host: RESELLER_HOST, status: "active" }));
  // RESELLER_HOST is a subdomain of our own host, which only the operator may add. Without own hosts the check passes.
  const config: HostConfig = { baseUrl: "", aliasUrl: "", panelUrl: "", allowLocalHosts: false };
  await addHost({ ...deps, config }, { host: RESELLER_HOST, resellerId: accountId, status: "active" });
}

/** Tops up a low balance. Returns the balance in nano-USD. */
async function ensureBalance(deps: Deps, { accountId }: Account, nanoUsd: bigint): Promise<bigint> {
  const account = await findAccount(deps, accountId);
  if (account && account.balanceNanoUsd >= BALANCE_LOW_NANO_USD) return account.balanceNanoUsd;
  return addBalance(deps, { accountId, nanoUsd, kind: "top_up", reason: "demo", actorId: null });
}

async function ensurePackage(
  deps: Deps,
  { accountId }: Account,
  offeringId: number,
  payer: Account | null,
): Promise<void> {
  const known = await listPackages(deps, accountId);
  if (known.some(({ state }) => state === "active")) return;
  // The reseller, not the demo, renews an expired package of the reseller's customer.
  if (payer && known.length > 0) return;
  await assignPackage(deps, { accountId, offeringId, when: "now", payerId: payer?.accountId ?? null, actorId: null });
}

/** Returns the known key if it still works for this account. Otherwise creates one and revokes older ones of the same name. */
async function ensureKey(
  deps: Deps,
  { name, account, mode, known }: { name: string; account: Account; mode: KeyMode; known: string | undefined },
): Promise<string> {
  const { accountId } = account;
  const digest = known === undefined ? undefined : digestOfKey(known);
  const snapshot = digest === undefined ? undefined : (await loadKeySnapshots(deps, [digest])).get(digest);
  if (
    known !== undefined &&
    snapshot?.accountId === accountId &&
    snapshot.mode === mode &&
    snapshot.status === "enabled"
  ) {
    return known;
  }
  for (const key of (await listKeys(deps, { accountId })).rows) {
    if (key.name === name && key.status !== "revoked") await revokeKey(deps, { accountId, keyId: key.keyId });
  }
  const wanted = { accountId, name, mode, modelIds: null, hosts: null, expiresAt: null };
  return (await createKey(deps, wanted)).secret;
}
