import { type Static, Type } from "@sinclair/typebox";
import { Elysia, t } from "elysia";
import {
  answerEmailChange,
  beginEmailChange,
  cancelEmailChange,
  findEmailChange,
} from "../../accounts/email_changes_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { readBody } from "../../http/body.ts";
import { checker } from "../../http/checks.ts";
import { siteUrl } from "../../http/host.ts";
import { canMail } from "../../messages/senders.ts";
import { inTime } from "../../platform/time_limit.ts";
import { digestOf, Proof, provePerson } from "./own_proof.ts";
import { mailerOf, signedIn, signedOut } from "./panel_session.ts";
import { checkOrigin } from "./session_auth.ts";
import { type Arrival, arrivalOf, limited, SIGN_IN_BODY } from "./sign_in.ts";

/** A person's change of their own e-mail address: the request, and the links that confirm it. */

const TOKEN_CHARS_MAX = 100;
const LinkParams = t.Object({ token: t.String({ maxLength: TOKEN_CHARS_MAX }) });
const AnswerBody = Type.Object(
  { answer: Type.Union([Type.Literal("confirm"), Type.Literal("cancel")]) },
  { additionalProperties: false },
);
const checkAnswer = checker(AnswerBody);

export function emailChangeEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(linkEndpoints(deps)).use(ownEndpoints(deps));
}

/** Without a session: a link is opened where its mail is read. Opening it changes nothing, since mail scanners open links too. */
function linkEndpoints(deps: Deps) {
  return signedOut()
    .get(
      "/email-changes/:token",
      async ({ request, params }) => {
        const opened = await openChange(deps, await arrivalOf(deps, request), params.token);
        const { side, newEmail, isConfirmed, expiresAt } = opened;
        return { side, newEmail, isConfirmed, expiresAt };
      },
      { params: LinkParams },
    )
    .post(
      "/email-changes/:token",
      async ({ request, params }) => {
        const arrival = await arrivalOf(deps, request);
        checkOrigin(request);
        const body = checkAnswer((await readBody(deps, request, SIGN_IN_BODY)).value);
        return { outcome: await answerChange(deps, arrival, { ...body, token: params.token }) };
      },
      { params: LinkParams, parse: "none" },
    );
}

function ownEndpoints(deps: Deps) {
  return signedIn(deps)
    .post(
      "/settings/email",
      async ({ person, request, body: { email, proof } }) => {
        const {
          self: { accountId },
          host,
          by,
        } = person;
        if (!(await canMail(deps, mailerOf(person))))
          throw new InputError("No mail is sent from here, so the address cannot be changed.");
        await provePerson(deps, { person, request }, proof);
        const wanted = { accountId, email, sessionDigest: digestOf(person), site: siteUrl(deps, host.name) };
        return beginEmailChange({ ...deps, by }, wanted);
      },
      { body: t.Object({ email: t.String({ maxLength: 1000 }), proof: Proof }) },
    )
    .post("/settings/email/cancel", async ({ person }) => ({
      cancelled: await cancelEmailChange({ ...deps, by: person.by }, person.self.accountId),
    }));
}

/** Throws not_found if the link is unknown, ended, expired or of another tenant; too_many_requests. */
async function openChange(deps: Deps, { host, network }: Arrival, token: string) {
  return limited(
    deps,
    { shared: [`link:${network}`], own: [] },
    async () => (await inTime(findEmailChange(deps, { token, resellerId: host.resellerId }))) ?? ended(),
  );
}

/** Throws as `openChange`, and InputError. */
async function answerChange(
  deps: Deps,
  arrival: Arrival,
  { token, answer }: Static<typeof AnswerBody> & { token: string },
): Promise<"waiting" | "changed" | "cancelled"> {
  const opened = await openChange(deps, arrival, token);
  const by = { accountId: opened.accountId, requestId: arrival.requestId };
  const outcome = await inTime(answerEmailChange({ ...deps, by }, opened, answer));
  if (outcome === undefined) throw ended();
  return outcome;
}

function ended(): Refusal {
  return new Refusal("not_found", {
    message: "This link no longer works. The change was made, cancelled or replaced, or the link has expired.",
  });
}
