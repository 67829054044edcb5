import type { Bus } from "../platform/bus.ts";
import { every } from "../platform/every.ts";
import type { Failpoint } from "../platform/failpoints.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/time_limit.ts";
import {
  type Claimed,
  claimDeliveries,
  clean,
  finishDelivery,
  type Outcome,
  type Sending,
  type ServerAnswer,
  type Shares,
} from "./claims_store.ts";
import { type OutboxState, outboxState } from "./deliveries_store.ts";
import { endpointToCall, pauseFailing, UNREADABLE_SECRET } from "./endpoints_store.ts";
import { countDownServers, type DownCounts, noteMailServer } from "./mail_breakers_store.ts";
import { writeNotices } from "./notices_store.ts";
import { routeMessages } from "./routing_store.ts";
import { canMail, mailOf, type SenderDeps, smtpServerOf } from "./senders.ts";
import { MailError, sendMail } from "./smtp.ts";
import { callWebhook, GONE } from "./webhook_call.ts";

/**
 * Delivers the outbox in one replica, concurrently with the others: routes new messages, claims what is due, and sends
 * it. Source: MSG-1, MSG-3, MSG-4.
 */

/** How often each replica looks for new messages and due deliveries. */
const TICK_MS = 1_000;
/** Deliveries that one replica sends concurrently. */
const AT_ONCE = 16;
/**
 * A delivery that takes longer frees its place, so that hanging servers do not delay others. Their total is limited
 * too.
 */
const SLOW_MS = 2_000;
const WITH_SLOW_AT_ONCE = 256;
/** Of them for one tenant and one account: a slow mail server delays only its own mails, slow endpoints only their account's calls. */
const SHARES: Shares = { tenant: 8, tenantCalls: 64, accountCalls: 3 };
/** A new claim is made when at most this many are left, so that one claim takes several. */
const FILL_BELOW = 4;
/** How old the figures for /metrics may be. */
const STATE_EVERY_MS = 15_000;
/** Shown instead of an error that only the log may contain. */
const UNWRITTEN = "The message could not be written, because of an internal error.";
/** A replica that shuts down waits this long for mails in progress. Another replica sends unfinished ones again. */
const CLOSE_MS_MAX = 2_500;

export type Messages = {
  /** As last counted. `oldestSeconds`: the age of what has waited longest. */
  status(): { waiting: number; oldestSeconds: number; failed: number; serversDown: DownCounts };
  /** Runs one round now: routes, claims and sends until nothing is due. For tests. */
  run(): Promise<void>;
  close(): Promise<void>;
};

type MessagesOptions = SenderDeps & {
  bus: Bus;
  log: Log;
  /** 0 to 1. */
  random: () => number;
  /** Monotonic, ms. Only tests set it. */
  nowMs?: () => number;
  failpoint?: Failpoint;
  /** 0: only `run` delivers. */
  tickMs?: number;
};

/** Starts delivering. */
export function startMessages(options: MessagesOptions): Messages {
  const { log, tickMs = TICK_MS } = options;
  const postman = new Postman(options);
  // A round that fails loses nothing: it is all in the database.
  const failure = "messages could not be delivered";
  const job =
    tickMs > 0 ? every({ name: "messages", ms: tickMs, run: () => postman.round(), log, failure }) : undefined;
  return {
    status: () => postman.status(),
    async run() {
      await postman.round();
      await postman.idle();
    },
    async close() {
      postman.close();
      await within(CLOSE_MS_MAX, Promise.all([job?.close(), postman.idle()])).catch((err: unknown) =>
        log.warn({ err }, "a message was still being sent at shutdown; another replica may send it again"),
      );
    },
  };
}

class Postman {
  readonly #options: MessagesOptions;
  readonly #nowMs: () => number;
  /** Deliveries in progress, and when they began. */
  readonly #running = new Map<Promise<void>, { claimed: Claimed; startedMs: number }>();
  #closed = false;
  #filling: Promise<void> | undefined;
  #state: OutboxState = { waiting: 0, oldestAt: null, oldestSeconds: 0, failed: 0 };
  #serversDown: DownCounts = { operator: 0, reseller: 0 };
  #countedMs = Number.NEGATIVE_INFINITY;

  constructor(options: MessagesOptions) {
    this.#options = options;
    this.#nowMs = options.nowMs ?? (() => performance.now());
  }

  status() {
    const { waiting, oldestAt, oldestSeconds: atCount, failed } = this.#state;
    const oldestSeconds = oldestAt === null ? 0 : atCount + (this.#nowMs() - this.#countedMs) / 1000;
    return { waiting, oldestSeconds, failed, serversDown: this.#serversDown };
  }

  close(): void {
    this.#closed = true;
  }

  /** Resolves when no delivery is in progress. */
  async idle(): Promise<void> {
    while (this.#running.size > 0 || this.#filling !== undefined)
      await Promise.all([...this.#running.keys(), this.#filling]);
  }

  /** Writes notices and routes; starts what is due. */
  async round(): Promise<void> {
    const { db } = this.#options;
    await writeNotices({ db });
    const operatorMails = await canMail(this.#options, 0);
    for (let isMore = true; isMore && !this.#closed; ) ({ isMore } = await routeMessages({ db }, { operatorMails }));
    await this.#fill();
    if (this.#nowMs() - this.#countedMs >= STATE_EVERY_MS) {
      this.#serversDown = await countDownServers({ db });
      this.#state = await outboxState({ db });
      this.#countedMs = this.#nowMs();
    }
  }

  #sending(): Sending[] {
    const slowSinceMs = performance.now() - SLOW_MS;
    return [...this.#running.values()].map(({ claimed: { tenantId, accountId, channel }, startedMs }) => ({
      ...{ tenantId, accountId, channel },
      isSlow: startedMs <= slowSinceMs,
    }));
  }

  /** How many more may be sent. */
  #places(sending: readonly Sending[]): number {
    const fast = sending.filter(({ isSlow }) => !isSlow).length;
    return Math.min(AT_ONCE - fast, WITH_SLOW_AT_ONCE - sending.length);
  }

  /**
   * Claims as many deliveries as there are free places, one claim at a time. Each end of a delivery starts a new
   * claim.
   */
  #fill(): Promise<void> {
    this.#filling ??= this.#claim().finally(() => (this.#filling = undefined));
    return this.#filling;
  }

  async #claim(): Promise<void> {
    while (!this.#closed) {
      const sending = this.#sending();
      const max = this.#places(sending);
      if (max <= 0) return;
      const claimed = await claimDeliveries(this.#options, { max, shares: SHARES, sending });
      if (claimed.length === 0) return;
      for (const one of claimed) this.#start(one);
    }
  }

  #start(claimed: Claimed): void {
    const { log } = this.#options;
    const sending: Promise<void> = this.#deliver(claimed)
      .catch((err: unknown) => log.warn({ err }, "the end of a delivery could not be stored; it is sent again"))
      .finally(() => {
        this.#running.delete(sending);
        // The next round meets the same failure and reports it.
        if (!this.#closed && this.#places(this.#sending()) >= AT_ONCE - FILL_BELOW) this.#fill().catch(() => {});
      });
    this.#running.set(sending, { claimed, startedMs: performance.now() });
  }

  async #deliver(claimed: Claimed): Promise<void> {
    const { log, random, failpoint } = this.#options;
    const outcome = await this.#attempt(claimed);
    failpoint?.("after_send");
    const { deliveryId, kind, tenantId, channel, endpointId } = claimed;
    if (outcome.server !== undefined) await this.#noteServer(claimed, outcome.server, outcome.answer);
    const ended = await finishDelivery(this.#options, claimed, { outcome, random: random() });
    if (ended === "failed") log.warn({ deliveryId, kind, tenantId, channel }, "a message was given up");
    if (!outcome.ok && endpointId !== null) {
      const why = outcome.status === null ? outcome.answer : `Status ${outcome.status}`;
      const paused = await pauseFailing(this.#options, endpointId, { isGone: outcome.status === GONE, why });
      if (paused) log.info({ endpointId, tenantId }, "a webhook that failed for days was switched off");
    }
  }

  async #noteServer({ tenantId, probe }: Claimed, answer: ServerAnswer, why: string): Promise<void> {
    const { log, random } = this.#options;
    // Only a probe's answer closes a breaker: for most mails there is none.
    if (probe === null && answer !== "failed") return;
    const met = { tenantId, answer, why: clean(why), probe, random: random() };
    const change = await noteMailServer(this.#options, met);
    if (change === "opened") log.warn({ tenantId, why: met.why }, "a mail server does not answer; its mails wait");
    if (change === "closed") log.info({ tenantId }, "a mail server answers again");
  }

  /**
   * Never throws: an attempt without a result would be repeated forever, before all other deliveries to its recipient.
   */
  async #attempt(claimed: Claimed): Promise<Outcome> {
    const startMs = performance.now();
    try {
      return claimed.channel === "mail" ? await this.#mail(claimed) : await this.#call(claimed);
    } catch (err) {
      const { deliveryId, kind, tenantId, channel } = claimed;
      this.#options.log.error({ err, deliveryId, kind, tenantId, channel }, "a message could not be written");
      const tookMs = performance.now() - startMs;
      return { ok: false, isFinal: false, status: null, answer: UNWRITTEN, tookMs, server: "not_asked" };
    }
  }

  async #mail(claimed: Claimed): Promise<Outcome> {
    const startMs = performance.now();
    const ended = (outcome: Omit<Outcome, "tookMs">): Outcome => ({ ...outcome, tookMs: performance.now() - startMs });
    try {
      const { expiresAt } = claimed.data;
      if (typeof expiresAt === "string" && Date.parse(expiresAt) <= claimed.claimedUnixMs)
        throw new MailError("The link in this mail has expired.", { fault: "refused" });
      const server = await smtpServerOf(this.#options, claimed.tenantId);
      if (server === null) throw new MailError("No mail server is set any more.", { fault: "refused" });
      const answer = await sendMail(server, await mailOf(this.#options, claimed, server));
      return ended({ ok: true, isFinal: true, status: 250, answer, server: "answered" });
    } catch (error) {
      if (!(error instanceof MailError)) throw error;
      const { fault, status, message } = error;
      const server = fault === "server" ? "failed" : status === null ? "not_asked" : "answered";
      return ended({ ok: false, isFinal: fault === "refused", status, answer: message, server });
    }
  }

  async #call(claimed: Claimed): Promise<Outcome> {
    const { endpointId, messageId, kind, data, createdAt, concernsId, accountId, tenantId } = claimed;
    const { db, config } = this.#options;
    const uncalled = { ok: false, status: null, tookMs: 0 };
    const endpoint =
      endpointId === null ? undefined : await endpointToCall({ db, secretKey: config.secretKey }, endpointId);
    if (endpoint === undefined) return { ...uncalled, isFinal: true, answer: "The endpoint is switched off." };
    if (endpoint.secrets.length === 0) return { ...uncalled, isFinal: false, answer: UNREADABLE_SECRET };
    return await callWebhook({
      ...endpoint,
      messageId: `msg_${messageId}`,
      body: JSON.stringify({ type: kind, timestamp: createdAt, data: { accountId: concernsId, ...data } }),
      allowPrivate: config.messagesAllowPrivate,
      owner: { accountId, tenantId },
    });
  }
}
