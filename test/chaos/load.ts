import type { Random } from "../random.ts";
import type { OfferingSpec, Person, World } from "../world.ts";
import { type Asking, ask, type Conduct, type Heard } from "./client.ts";
import { IMAGE, noteRevoked, type Seat, STOPPED_READER, type Stage, sleep } from "./stage.ts";

/** Concurrent clients of many buyers, through all replicas, and the history of what each of them saw. */

const CLIENTS = 24;
const THINK_MS = [20, 140] as const;
/** A buyer that was refused this often for lack of units or money is replaced by a new one. */
const REFUSALS_OF_A_WORN_BUYER = 12;
const RESTOCK_EVERY_MS = 800;
/** The units of a buyer whose quota is to be used up, and the number of concurrent requests that try to get more. */
const FEW_UNITS = 20;
const STAMPEDE = 40;
const STAMPEDE_EVERY_MS = 2_500;
const FORMER_BUYER_SHARE = 0.12;
const RUSH_SHARE = 0.5;
const NOBODY_THERE_SHARE = 0.05;

export type Kind = "json" | "stream" | "image" | "look";

/** An account with a key, and the refusals that are correct for it. */
export type Buyer = Person & {
  keyId: number;
  secret: string;
  models: readonly string[];
  may: Set<string>;
  refusals: number;
  /** The package it was given, if any. */
  packageId: number | undefined;
};

/** One request in the client's history. */
export type Entry = Heard & {
  n: number;
  replica: number;
  accountId: number;
  keyId: number;
  kind: Kind;
  model: string;
  startedMs: number;
  endedMs: number;
  conduct: Conduct;
  /** Refusals that would be correct. */
  may: ReadonlySet<string>;
};

export type Load = ReturnType<typeof startLoad>;

/** Buyers of some kinds last for the whole run; those of other kinds are replaced when they are used up. */
type Shelf = { make(world: World): Promise<Buyer>; weight: number; lasts: boolean };
type Place = { shelf: Shelf; current: Buyer; former: Buyer | undefined };

const CHAT = ["chat-a", "chat-b", "chat-two-routes"];
/** Buyers with enough for any load come first: with a package, with a reseller's package, with a balance. */
const SHELVES: readonly Shelf[] = [
  { weight: 5, lasts: true, make: (world) => customer(world, { dailyLimit: 1_000_000 }) },
  { weight: 4, lasts: true, make: resellersCustomer },
  { weight: 5, lasts: true, make: (world) => payer(world, 1_000_000_000_000n) },
  {
    weight: 4,
    lasts: false,
    make: (world) => customer(world, { dailyLimit: FEW_UNITS, days: 3 }, ["daily_quota_exceeded"]),
  },
  {
    weight: 4,
    lasts: false,
    make: (world) =>
      customer(world, { dailyLimit: 1000, totalLimit: FEW_UNITS, days: 3 }, [
        "package_quota_exceeded",
        "daily_quota_exceeded",
      ]),
  },
  {
    weight: 4,
    lasts: false,
    make: (world) => customer(world, { dailyLimit: FEW_UNITS, days: 3, carryover: true }, ["carryover_quota_exceeded"]),
  },
  {
    weight: 4,
    lasts: false,
    make: (world) => customer(world, { dailyLimit: 1000, tokenLimit: 4_000 }, ["package_quota_exceeded"]),
  },
  { weight: 4, lasts: false, make: (world) => payer(world, 40_000_000n) },
  { weight: 3, lasts: false, make: packageThenBalance },
  { weight: 3, lasts: false, make: withRequestCeiling },
  { weight: 3, lasts: false, make: withSpendCeiling },
  { weight: 1, lasts: true, make: (world) => customer(world, null, ["package_required"]) },
  { weight: 1, lasts: true, make: revokedFromTheStart },
  { weight: 1, lasts: true, make: scoped },
];

/** Creates the buyers and starts the clients. `finish` waits for requests in flight. */
export async function openLoad(stage: Stage, random: Random) {
  const stock: Place[] = [];
  for (const shelf of SHELVES) stock.push({ shelf, current: await shelf.make(stage.world), former: undefined });
  return startLoad(stage, random, stock);
}

function startLoad(stage: Stage, random: Random, stock: Place[]) {
  const [byPackage, byReseller, byBalance] = stock.map(({ current }) => current);
  if (!byPackage || !byReseller || !byBalance) throw new Error("the shelves are empty");
  const history: Entry[] = [];
  const open = new Set<Asking>();
  const byWeight = stock.flatMap((place) => Array.from({ length: place.shelf.weight }, () => place));
  let rush: { buyers: readonly Buyer[]; untilMs: number } = { buyers: [], untilMs: 0 };
  let over = false;
  let n = 0;

  function chooseBuyer(chance: Random): Buyer {
    if (Date.now() < rush.untilMs && chance.chance(RUSH_SHARE)) return chance.pick(rush.buyers);
    const { current, former } = chance.pick(byWeight);
    return former !== undefined && chance.chance(FORMER_BUYER_SHARE) ? former : current;
  }

  /** Mostly a replica that listens, as a load balancer would choose. */
  function chooseSeat(chance: Random): Seat {
    const running = stage.replicas.filter((seat) => seat.isRunning());
    return chance.pick(running.length === 0 || chance.chance(NOBODY_THERE_SHARE) ? stage.replicas : running);
  }

  async function request(buyer: Buyer, chance: Random, conduct: Conduct, special?: string): Promise<void> {
    const plan = planOf(++n, buyer, chance, special);
    const seat = chooseSeat(chance);
    const { accountId, keyId, secret } = buyer;
    const { kind, model, path, body } = plan;
    const startedMs = Date.now();
    const asking = ask({ port: seat.port, secret, path, body }, conduct);
    open.add(asking);
    const heard = await asking.done;
    open.delete(asking);
    const may = new Set([...plan.may, ...buyer.may]);
    const times = { startedMs, endedMs: Date.now() };
    history.push({ ...heard, ...times, n: plan.n, replica: seat.index, accountId, keyId, kind, model, conduct, may });
    if (heard.status === 402) buyer.refusals++;
  }

  async function client(chance: Random): Promise<void> {
    while (!over) {
      await request(chooseBuyer(chance), chance, conductOf(chance));
      await sleep(chance.whole(...THINK_MS));
    }
  }

  async function restock(): Promise<void> {
    while (!over) {
      await sleep(RESTOCK_EVERY_MS);
      for (const place of stock) {
        const { shelf, current } = place;
        if (over || shelf.lasts || current.refusals < REFUSALS_OF_A_WORN_BUYER) continue;
        const fresh = await stage.books(() => shelf.make(stage.world));
        place.former = current;
        place.current = fresh;
      }
    }
  }

  /** A buyer that will soon have used up its quota or balance. */
  function poorBuyer(chance: Random): Promise<Buyer> {
    const shelf = chance.pick(SHELVES.filter(({ lasts }) => !lasts));
    return stage.books(() => shelf.make(stage.world));
  }

  /** Sends concurrent requests through all replicas, for a quota that suffices for half of them. */
  async function stampedes(chance: Random): Promise<void> {
    while (!over) {
      await sleep(STAMPEDE_EVERY_MS);
      const buyer = await poorBuyer(chance);
      await Promise.all(Array.from({ length: STAMPEDE }, () => request(buyer, chance, {})));
    }
  }

  const clients = Array.from({ length: CLIENTS }, (_, i) => client(random.fork(`client ${i}`)));
  const work = [...clients, restock(), stampedes(random.fork("stampedes"))];

  return {
    history,
    /** The current buyers. */
    buyers: () => stock.map(({ current }) => current),
    /** Buyers whose packages suffice for any load. */
    wide: [byPackage, byReseller],
    /**
     * Lets two buyers with little quota send quickly: units that a replica cannot settle in time may be used by
     * others.
     */
    async hurryPoor(ms: number, chance: Random): Promise<void> {
      const buyers = [await poorBuyer(chance), await poorBuyer(chance)];
      rush = { buyers, untilMs: Date.now() + ms };
    },
    /** For a while, half of all requests come from these buyers. */
    hurry(buyers: readonly Buyer[], ms: number): void {
      rush = { buyers, untilMs: Date.now() + ms };
    },
    /** A share of the active clients leaves at the same time. */
    leave(share: number, chance: Random): void {
      for (const asking of [...open]) if (chance.chance(share)) asking.leave();
    },
    /** Streams whose reader stops. The provider knows them by their words. */
    async stopReading(count: number, chance: Random): Promise<void> {
      const reader = () => request(byPackage, chance, { slow: "stops" }, STOPPED_READER);
      await Promise.all(Array.from({ length: count }, reader));
    },
    /** Sends a small request of a buyer with enough quota to one replica. Returns whether it was served. */
    async serves({ port }: Seat): Promise<boolean> {
      const body = JSON.stringify({ model: "chat-b", messages: [{ role: "user", content: "chaos 0: still there?" }] });
      const call = { port, secret: byBalance.secret, path: "/v1/chat/completions", body };
      return (await ask(call).done).saw === "complete";
    },
    async finish(): Promise<void> {
      over = true;
      await Promise.all(work);
    },
  };
}

/** The place of the request number in prompts, by which the provider's journal is matched. */
export const NUMBERED = /chaos (\d+):/;

type Plan = { n: number; kind: Kind; model: string; path: string; body: string | undefined; may: readonly string[] };

function planOf(n: number, buyer: Buyer, chance: Random, special?: string): Plan {
  const words = chance.chance(0.12) ? chance.whole(150, 500) : chance.whole(4, 50);
  const prompt = `chaos ${n}: Write ${words} words ${special ?? "about tolls"}.`;
  const model = special === undefined ? chance.pick(buyer.models) : "chat-a";
  const chat = (fields: Record<string, unknown> = {}, may: readonly string[] = []): Plan => ({
    n,
    kind: fields.stream === true ? "stream" : "json",
    model,
    path: "/v1/chat/completions",
    body: JSON.stringify({ model, messages: [{ role: "user", content: prompt }], ...fields }),
    may,
  });
  if (special !== undefined) return chat({ stream: true });
  const what = chance.next();
  if (what < 0.4) return chat(chance.chance(0.3) ? { max_tokens: chance.whole(5, 60) } : {});
  if (what < 0.6) return chat({ stream: true });
  if (what < 0.85) return chat({ stream: true, stream_options: { include_usage: true } });
  if (what < 0.91) {
    const body = JSON.stringify({ ...IMAGE, prompt: `chaos ${n}: a toll gate` });
    return { n, kind: "image", model: IMAGE.model, path: "/v1/images/generations", body, may: IMAGE_REFUSALS };
  }
  if (what < 0.94) return chat({ model: "no-such-model" }, ["model_not_found"]);
  if (what < 0.96) return chat({ messages: [] }, ["invalid_request"]);
  if (what < 0.97) return chat({ model: "chat-unpriced" }, ["payg_pricing_unavailable", "model_not_in_package"]);
  const path = chance.pick(["/v1/models", "/v1/balance", "/v1/usage?limit=20"]);
  return { n, kind: "look", model: "", path, body: undefined, may: [] };
}

/** An image has its own price, which a small balance or a scope does not cover. */
const IMAGE_REFUSALS = ["insufficient_balance", "key_spend_limit_exceeded", "model_not_in_package"];

function conductOf(chance: Random): Conduct {
  const what = chance.next();
  if (what < 0.18) return { leaveAfterMs: chance.whole(0, chance.chance(0.5) ? 120 : 1200) };
  if (what < 0.24) return { slow: "sips" };
  return {};
}

type KeySpec = { mode?: "package" | "payg"; modelIds?: string[] };

async function buyerOf(world: World, person: Person, may: readonly string[], keySpec: KeySpec = {}): Promise<Buyer> {
  const key = await world.addKey(person, keySpec);
  return { ...person, ...key, models: CHAT, may: new Set(may), refusals: 0, packageId: undefined };
}

async function customer(world: World, spec: OfferingSpec | null, may: readonly string[] = []): Promise<Buyer> {
  const person = await world.addCustomer();
  const packageId = spec === null ? undefined : await world.givePackage(person, spec);
  return { ...(await buyerOf(world, person, may)), packageId };
}

/** Each of its requests takes its reseller's lock too. */
async function resellersCustomer(world: World): Promise<Buyer> {
  const { accountId: resellerId } = await world.addReseller();
  const person = await world.addCustomer(resellerId);
  const packageId = await world.givePackage(person, { dailyLimit: 1_000_000 });
  return { ...(await buyerOf(world, person, [])), packageId };
}

async function payer(world: World, nanoUsd: bigint): Promise<Buyer> {
  const person = await world.addCustomer();
  await world.setBalance(person, nanoUsd);
  return buyerOf(world, person, ["insufficient_balance"], { mode: "payg" });
}

async function packageThenBalance(world: World): Promise<Buyer> {
  const person = await world.addCustomer();
  await world.givePackage(person, { dailyLimit: FEW_UNITS, days: 3 });
  await world.setBalance(person, 25_000_000n);
  return buyerOf(world, person, ["daily_quota_exceeded", "insufficient_balance"]);
}

async function withRequestCeiling(world: World): Promise<Buyer> {
  const buyer = await customer(world, { dailyLimit: 100_000 }, ["key_request_limit_exceeded"]);
  await world.sql`update keys set daily_units_max = ${FEW_UNITS} where id = ${buyer.keyId}`;
  return buyer;
}

async function withSpendCeiling(world: World): Promise<Buyer> {
  const buyer = await payer(world, 500_000_000n);
  await world.sql`update keys set daily_spend_max_nano_usd = 30000000 where id = ${buyer.keyId}`;
  buyer.may.add("key_spend_limit_exceeded");
  return buyer;
}

async function revokedFromTheStart(world: World): Promise<Buyer> {
  const buyer = await customer(world, {}, ["invalid_api_key"]);
  await world.sql`update keys set status = 'revoked' where id = ${buyer.keyId}`;
  await noteRevoked(world, buyer.keyId);
  return buyer;
}

/** Its package leaves out the model it asks for half of the time. */
async function scoped(world: World): Promise<Buyer> {
  const person = await world.addCustomer();
  const packageId = await world.givePackage(person, { dailyLimit: 1_000_000, modelIds: ["chat-a"] });
  const buyer = await buyerOf(world, person, ["model_not_in_package"]);
  return { ...buyer, packageId, models: ["chat-a", "chat-b"] };
}
