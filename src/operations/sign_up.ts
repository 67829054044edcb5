import { Type } from "@sinclair/typebox";
import { setSignUpSettings, signUpSettingsOf } from "../commerce/sign_up_settings_store.ts";
import { listSignedUp as list, type SignedUp } from "../commerce/sign_ups_store.ts";
import { waitingTrials } from "../commerce/trials_store.ts";
import { MAIL_DOMAIN_CHARS_MAX, MAIL_DOMAINS_MAX, TERMS_URL_CHARS_MAX } from "../limits.ts";
import { canMail } from "../messages/senders.ts";
import type { Db } from "../platform/db.ts";
import { Seller, sellerInScope } from "./fence.ts";
import { Amount, At, orNull, PositiveNanoUsd, RowId, text } from "./fields.ts";
import { changing, listOperation, operation } from "./operation.ts";

/** Sign-up with a seller: its settings, and who signed up. Source: SUP-1. */

const SELLERS = ["reseller", "admin"] as const;
const PayWith = Type.Union([Type.Literal("balance"), Type.Literal("allotment")]);
/** Of one list and all of its text; the store names the domain that is wrong. */
const Domains = Type.Array(text(MAIL_DOMAIN_CHARS_MAX), { maxItems: MAIL_DOMAINS_MAX });
const Url = orNull(text(TERMS_URL_CHARS_MAX));

const SignUpShape = Type.Object(
  {
    sellerId: Type.Integer({ minimum: 0 }),
    isOpen: Type.Boolean(),
    termsUrl: orNull(Type.String()),
    privacyUrl: orNull(Type.String()),
    trialOffering: orNull(Type.Object({ offeringId: RowId, name: Type.String() })),
    trialAmountNanoUsd: orNull(Amount),
    trialPayWith: PayWith,
    allowedDomains: Type.Array(Type.String(), { description: "Empty: all domains are allowed." }),
    forbiddenDomains: Type.Array(Type.String()),
    disposableAllowed: Type.Boolean(),
    trialsWaiting: Type.Integer({ description: "Trials that the seller cannot pay for yet." }),
  },
  { title: "SignUp" },
);

export const getSignUp = operation({
  name: "sign_up.get",
  says: "Returns how people can sign up with a seller.",
  scope: "sign_up:read",
  roles: SELLERS,
  route: "GET /sign_up",
  input: Seller,
  output: SignUpShape,
  run: async (deps, { caller }, { sellerId }) => shown(deps, await sellerInScope(deps, caller, sellerId)),
});

export const setSignUp = operation({
  name: "sign_up.set",
  says: "Changes how people can sign up with a seller. What is left out stays as it is.",
  scope: "sign_up:write",
  roles: SELLERS,
  route: "PATCH /sign_up",
  input: {
    ...Seller,
    isOpen: Type.Optional(Type.Boolean()),
    termsUrl: Type.Optional(Url),
    privacyUrl: Type.Optional(Url),
    trialOfferingId: Type.Optional(orNull(RowId)),
    trialAmountNanoUsd: Type.Optional(orNull(PositiveNanoUsd)),
    trialPayWith: Type.Optional(PayWith),
    allowedDomains: Type.Optional(Domains),
    forbiddenDomains: Type.Optional(Domains),
    disposableAllowed: Type.Optional(Type.Boolean()),
  },
  output: SignUpShape,
  async run(deps, call, { trialOfferingId, trialAmountNanoUsd, trialPayWith, ...wanted }) {
    const sellerId = await sellerInScope(deps, call.caller, wanted.sellerId);
    const trial = { offeringId: trialOfferingId, amountNanoUsd: trialAmountNanoUsd, payWith: trialPayWith };
    const hasTrial = Object.values(trial).some((value) => value !== undefined);
    await setSignUpSettings(
      changing(deps, call),
      { ...wanted, sellerId, ...(hasTrial && { trial }) },
      await canMail(deps, sellerId),
    );
    return shown(deps, sellerId);
  },
});

export const listSignedUp = listOperation({
  name: "sign_up.accounts",
  says: "Lists the accounts that people made by signing up, newest first, with what they accepted and their trial.",
  scope: "sign_up:read",
  roles: SELLERS,
  route: "GET /sign_up/accounts",
  filter: Seller,
  before: Type.Optional(RowId),
  item: Type.Object(
    {
      accountId: RowId,
      name: Type.String(),
      email: Type.String(),
      confirmedAt: At,
      acceptedAt: At,
      termsUrl: Type.String(),
      privacyUrl: Type.String(),
      trial: Type.Union([
        Type.Literal("none"),
        Type.Literal("taken"),
        Type.Literal("domain"),
        Type.Literal("waits"),
        Type.Literal("given"),
      ]),
      trialWhy: orNull(
        Type.Union([
          Type.Literal("balance"),
          Type.Literal("allotment"),
          Type.Literal("offering"),
          Type.Literal("payg"),
        ]),
      ),
    },
    { title: "SignedUp" },
  ),
  cursor: ({ accountId }: SignedUp) => accountId,
  list: async (deps, { caller }, { sellerId, ...page }) =>
    list(deps, { ...page, sellerId: await sellerInScope(deps, caller, sellerId) }),
});

async function shown(deps: { db: Db }, sellerId: number) {
  const [{ trial, trialName, ...settings }, trialsWaiting] = await Promise.all([
    signUpSettingsOf(deps, sellerId),
    waitingTrials(deps, sellerId),
  ]);
  const { offeringId } = trial;
  return {
    ...settings,
    sellerId,
    trialOffering: offeringId === null ? null : { offeringId, name: trialName ?? "" },
    trialAmountNanoUsd: trial.amountNanoUsd,
    trialPayWith: trial.payWith,
    trialsWaiting,
  };
}
