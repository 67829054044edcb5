import type { StaticDecode } from "@sinclair/typebox";
import type { Command } from "commander";
import { InputError } from "../errors.ts";
import { PAGE_MAX } from "../operations/operation.ts";
import { getSignUp, listSignedUp, setSignUp } from "../operations/sign_up.ts";
import { defineOperations, offeringBy, sellerBy } from "./door.ts";
import { formatUsd, parseUsd } from "./money.ts";
import { SELLER } from "./options.ts";
import { type Output, table } from "./output.ts";

/** The command `sign-up`: how people can sign up with a seller. Source: SUP-1. */

export function addSignUpCommands(program: Command): void {
  const signUp = program.command("sign-up").description("how people make their own account");
  addShow(signUp);
  addSet(signUp);
  addList(signUp);
}

function addShow(signUp: Command): void {
  defineOperations<{ seller?: string }>(
    signUp
      .command("show")
      .description("show whether people can sign up, and how")
      .option("--seller <reseller>", SELLER),
    {},
    async (ask, { seller }) => show(await ask(getSignUp, await sellerBy(ask, seller))),
  );
}

type Set = {
  seller?: string;
  open?: boolean;
  close?: boolean;
  terms?: string;
  privacy?: string;
  trialOffering?: string;
  trialAmount?: string;
  trialPayWith?: string;
  trial?: boolean;
  allowDomains?: string;
  forbidDomains?: string;
  disposable?: string;
};

function addSet(signUp: Command): void {
  defineOperations<Set>(
    signUp
      .command("set")
      .description("change how people can sign up; what is left out stays")
      .option("--seller <reseller>", SELLER)
      .option("--open", "people can sign up")
      .option("--close", "no one can sign up, and links that were mailed do not work")
      .option("--terms <url>", "the https page of the terms that people accept")
      .option("--privacy <url>", "the https page of the privacy policy")
      .option("--trial-offering <offering>", "the package that a new account gets, by id or name")
      .option("--trial-amount <usd>", "or the amount")
      .option("--trial-pay-with <what>", "what a reseller pays a trial's package with: balance or allotment")
      .option("--no-trial", "new accounts get nothing")
      .option("--allow-domains <domains>", "mail domains, separated by commas; all: every domain")
      .option("--forbid-domains <domains>", "mail domains, separated by commas; none: no domain")
      .option("--disposable <allowed>", "whether disposable addresses are allowed: yes or no"),
    { changes: true },
    async (ask, options) => {
      const { seller, open, close, terms, privacy, allowDomains, forbidDomains, disposable } = options;
      if (open && close) throw new InputError("Give --open or --close, not both.");
      return show(
        await ask(setSignUp, {
          ...(await sellerBy(ask, seller)),
          ...((open || close) && { isOpen: open === true }),
          ...(terms !== undefined && { termsUrl: terms }),
          ...(privacy !== undefined && { privacyUrl: privacy }),
          ...(await trialOf(ask, options)),
          ...(allowDomains !== undefined && { allowedDomains: domainsOf(allowDomains, "all") }),
          ...(forbidDomains !== undefined && { forbiddenDomains: domainsOf(forbidDomains, "none") }),
          ...(disposable !== undefined && { disposableAllowed: yesOrNo(disposable) }),
        }),
      );
    },
  );
}

async function trialOf(
  ask: Parameters<typeof offeringBy>[0],
  { trial, trialOffering, trialAmount, trialPayWith }: Set,
) {
  const payWith = trialPayWith === undefined ? {} : { trialPayWith: paymentOf(trialPayWith) };
  if (trial === false) return { ...payWith, trialOfferingId: null, trialAmountNanoUsd: null };
  if (trialOffering !== undefined && trialAmount !== undefined)
    throw new InputError("Give --trial-offering or --trial-amount, not both.");
  if (trialOffering !== undefined)
    return { ...payWith, trialOfferingId: (await offeringBy(ask, trialOffering)).offeringId, trialAmountNanoUsd: null };
  if (trialAmount !== undefined)
    return { ...payWith, trialOfferingId: null, trialAmountNanoUsd: parseUsd(trialAmount) };
  return payWith;
}

function domainsOf(text: string, nothing: "all" | "none"): string[] {
  return text === nothing ? [] : text.split(",");
}

function yesOrNo(text: string): boolean {
  if (text !== "yes" && text !== "no") throw new InputError("--disposable must be yes or no.");
  return text === "yes";
}

function paymentOf(text: string): "balance" | "allotment" {
  if (text === "balance" || text === "allotment") return text;
  throw new InputError("--trial-pay-with must be balance or allotment.");
}

function addList(signUp: Command): void {
  defineOperations<{ seller?: string }>(
    signUp
      .command("list")
      .description("list the accounts that people made by signing up, newest first, with what they accepted")
      .option("--seller <reseller>", SELLER),
    {},
    async (ask, { seller }) => {
      const { rows } = await ask(listSignedUp, { ...(await sellerBy(ask, seller)), limit: PAGE_MAX });
      return {
        text: table(
          ["ID", "E-MAIL", "SIGNED UP", "ACCEPTED", "TERMS", "TRIAL"],
          rows.map((row) => [
            String(row.accountId),
            row.email,
            row.confirmedAt,
            row.acceptedAt,
            row.termsUrl,
            row.trialWhy === null ? row.trial : `${row.trial} (${row.trialWhy})`,
          ]),
          "No one has signed up.",
        ),
        json: { accounts: rows },
      };
    },
  );
}

function show(settings: StaticDecode<typeof getSignUp.output>): Output {
  const { trialOffering, trialAmountNanoUsd, trialPayWith, allowedDomains, forbiddenDomains } = settings;
  const trial = trialOffering
    ? `${trialOffering.name}, paid with the ${trialPayWith}`
    : trialAmountNanoUsd === null
      ? "none"
      : formatUsd(BigInt(trialAmountNanoUsd));
  return {
    text: table(
      ["SIGN-UP", settings.isOpen ? "open" : "closed"],
      [
        ["terms", settings.termsUrl ?? "none"],
        ["privacy policy", settings.privacyUrl ?? "none"],
        ["trial", trial],
        ["trials that wait", String(settings.trialsWaiting)],
        ["allowed domains", allowedDomains.length === 0 ? "all" : allowedDomains.join(", ")],
        ["forbidden domains", forbiddenDomains.length === 0 ? "none" : forbiddenDomains.join(", ")],
        ["disposable addresses", settings.disposableAllowed ? "allowed" : "refused"],
      ],
      "",
    ),
    json: settings,
  };
}
