import { Elysia, t } from "elysia";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { EMAIL_CHARS_MAX } from "../../limits.ts";
import { type DeliveryFilter, listDeliveries, outboxState, sendAgain } from "../../messages/deliveries_store.ts";
import { kindsFor, OPTIONAL_KINDS } from "../../messages/kinds.ts";
import { listDownServers, noteMailServer } from "../../messages/mail_breakers_store.ts";
import { mutedKinds, setMailed } from "../../messages/mail_choices_store.ts";
import {
  findMailServer,
  type MailServerSpec,
  removeMailServer,
  saveMailServer,
  shownMailServer,
} from "../../messages/mail_servers_store.ts";
import { canMail, smtpServerOf, testMail } from "../../messages/senders.ts";
import { addressesOf, MailError, operatorServer, sendMail } from "../../messages/smtp.ts";
import { askedCall, countDelivery } from "../../operations/asked_calls.ts";
import type { Owner } from "../../platform/share_limit.ts";
import { within } from "../../platform/time_limit.ts";
import { Id, IdParam, orNull, whole } from "./fields.ts";
import { mailerOf, type Person, signedIn } from "./panel_session.ts";

/** Mail: waiting and failed deliveries, a reseller's mail server, and each person's choice of mails. Source: MSG-11. */

/** Shorter than a browser's time limit. */
const TEST_MS_MAX = 20_000;

const Status = t.Union([t.Literal("waiting"), t.Literal("sent"), t.Literal("failed")]);
const Text = t.String({ maxLength: 1_000 });
const ServerBody = t.Object({
  host: Text,
  port: t.Integer(),
  userName: orNull(Text),
  password: t.Optional(orNull(Text)),
  fromAddress: t.String({ maxLength: EMAIL_CHARS_MAX }),
  fromName: Text,
});

export function messagesEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(outboxEndpoints(deps))
    .use(mailServerEndpoints(deps))
    .use(choiceEndpoints(deps));
}

function outboxEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get(
      "/messages",
      async ({ person, query }) => {
        const [{ rows, hasMore }, state, mails, downServers] = await Promise.all([
          listDeliveries(deps, { ...query, ...scopeOf(person), viewerId: person.accountId }),
          outboxState(deps, scopeOf(person)),
          canMail(deps, person.role === "admin" ? 0 : person.accountId),
          listDownServers(deps, scopeOf(person)),
        ]);
        return { messages: rows, hasMore, state, canMail: mails, downServers };
      },
      { query: t.Object({ status: t.Optional(Status), before: t.Optional(Id), limit: t.Optional(whole(1, 100)) }) },
    )
    .post(
      "/messages/:id/send-again",
      async ({ person, params }) => {
        await countDelivery(deps, person);
        await sendAgain(deps, { deliveryId: params.id, ...scopeOf(person) });
        return { waiting: true };
      },
      { params: IdParam },
    );
}

/** An admin sees every delivery, a reseller those to its customers. */
function scopeOf({ role, accountId }: Person): Pick<DeliveryFilter, "tenantId"> {
  return role === "admin" ? {} : { tenantId: accountId };
}

function mailServerEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get("/mail-server", async ({ person }) => {
      if (person.role === "admin") return { server: null, from: operatorServer(deps.config)?.from ?? null };
      const stored = await findMailServer(deps, person.accountId);
      return { server: stored === undefined ? null : shownMailServer(stored), from: null };
    })
    .put(
      "/mail-server",
      async ({ person, body }) => {
        ownServerOnly(person);
        await askedCall(deps, { person, kind: "receiver" }, () => checkPublic(deps, person, body));
        await saveMailServer({ ...deps, by: person.by }, person.accountId, body);
        return { saved: true };
      },
      { body: ServerBody },
    )
    .delete("/mail-server", async ({ person }) => {
      ownServerOnly(person);
      await removeMailServer({ ...deps, by: person.by }, person.accountId);
      return { removed: true };
    })
    .post("/mail-server/test", ({ person }) =>
      askedCall(deps, { person, kind: "receiver" }, () => sendTest(deps, person)),
    );
}

function ownServerOnly({ role }: Person): void {
  if (role === "admin") throw new InputError("The operator's mail server is set with SMTP_URL and MAIL_FROM.");
}

/** Throws InputError for a server that is not at a public address. */
async function checkPublic(deps: Deps, owner: Owner, { host, port }: MailServerSpec): Promise<void> {
  const allowPrivate = deps.config.messagesAllowPrivate;
  try {
    await addressesOf({ host: host.trim().toLowerCase(), port, owner, allowPrivate });
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new InputError(error instanceof Error ? error.message : "This server cannot be looked up.", "host");
  }
}

/** Sends a mail to the person's own address. `problem`: the server's answer; null: it has accepted the mail. */
async function sendTest(
  deps: Deps,
  { role, accountId, self: { accountId: personId, email, name } }: Person,
): Promise<{ to: string; problem: string | null }> {
  const tenantId = role === "admin" ? 0 : accountId;
  const server = await smtpServerOf(deps, tenantId);
  if (server === null) throw new InputError("No mail server is set.");
  try {
    const mail = await testMail(deps, { tenantId, personId, to: { name, address: email }, server });
    await within(
      TEST_MS_MAX,
      sendMail(server, mail),
      () => new MailError("The mail server is too slow.", { fault: "server" }),
    );
    // The server answers, so waiting mails need not wait for a probe.
    const met = { tenantId, answer: "answered", why: "", probe: null, random: 0 } as const;
    await noteMailServer(deps, met);
    return { to: email, problem: null };
  } catch (error) {
    if (!(error instanceof MailError)) throw error;
    return { to: email, problem: error.message.slice(0, 300) };
  }
}

function choiceEndpoints(deps: Deps) {
  return signedIn(deps)
    .get("/settings/mails", async ({ person }) => {
      const { role, member, self } = person;
      const [muted, mails] = await Promise.all([mutedKinds(deps, self.accountId), canMail(deps, mailerOf(person))]);
      const kinds = kindsFor(role, OPTIONAL_KINDS, member);
      return { canMail: mails, kinds: kinds.map((kind) => ({ kind, mailed: !muted.includes(kind) })) };
    })
    .put(
      "/settings/mails",
      async ({ person, body }) => {
        await setMailed({ ...deps, by: person.by }, { accountId: person.self.accountId, ...body });
        return { saved: true };
      },
      { body: t.Object({ kind: t.String({ maxLength: 100 }), mailed: t.Boolean() }) },
    );
}
