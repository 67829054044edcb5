import { formatUsd } from "../cli/money.ts";
import type { DemoProvider } from "./demo_provider.ts";
import { RESELLER_HOST, type Seeded } from "./seed.ts";

/** The text that the demo prints once it is ready: addresses, keys, and commands to paste. Pure. */

const LABEL_WIDTH = 14;
const ROLE_WIDTH = 9;

type Facts = { baseUrl: string; provider: DemoProvider; seeded: Seeded; memoryFile: string; logFile: string };

export function welcome({ baseUrl, provider, seeded, memoryFile, logFile }: Facts): string {
  const { packageKey, paygKey, paygNanoUsd } = seeded;
  const { chatModel, imageModel } = provider;
  const row = (label: string, text: string) => `  ${label.padEnd(LABEL_WIDTH)}${text}`;
  const chat = (content: string, over: object = {}) => ({
    model: chatModel,
    messages: [{ role: "user", content }],
    ...over,
  });
  const line = (path: string, key: string, body?: object) => {
    const parts = [
      "curl -sS",
      body === undefined ? "-w '\\n'" : "",
      `${baseUrl}${path}`,
      `-H 'Authorization: Bearer ${key}'`,
    ];
    if (body !== undefined) parts.push("-H 'Content-Type: application/json'", `-d '${JSON.stringify(body)}'`);
    return parts.filter(Boolean).join(" ");
  };
  const image = imageModel && { model: imageModel, prompt: "A toll gate at dawn", size: "1024x1024" };
  const reseller = baseUrl.replace("localhost", RESELLER_HOST);
  const section = (title: string, command: string) => `${title}\n  ${command}\n`;
  return [
    row("Base URL", baseUrl),
    row("Package key", packageKey),
    row("", "200 requests a day for 30 days, with carryover"),
    row("PAYG key", paygKey),
    row("", `pay-as-you-go, from a balance of ${formatUsd(paygNanoUsd)}`),
    row("Models", modelsOf(provider)),
    row("Reseller", reseller),
    row("", "curl and browsers resolve names below localhost. Node and Python do not:"),
    row("", `for their SDKs, add this line to /etc/hosts: 127.0.0.1 ${RESELLER_HOST}`),
    ...panelRows(seeded).map(([label, text]) => row(label, text)),
    row("More", `all people, passwords and keys are in ${memoryFile}`),
    row("Log", logFile),
    ...provider.remarks.map((remark) => row("Note", remark)),
    "",
    "Paste into another terminal:",
    "",
    section(
      "Chat, with the package",
      `${line("/chat/completions", packageKey, chat("Tell me about toll gates."))} -w '\\n'`,
    ),
    section(
      "Stream, pay-as-you-go",
      line(
        "/chat/completions",
        paygKey,
        chat("Tell me a story.", { stream: true, stream_options: { include_usage: true } }),
      ).replace("curl -sS", "curl -sSN"),
    ),
    image
      ? section("Image", `${line("/images/generations", packageKey, { ...image, response_format: "url" })} -w '\\n'`)
      : "Image\n  This provider lists no image model.\n",
    section("Balance", line("/balance", paygKey)),
    section("Usage", line("/usage", packageKey)),
    "Ctrl-C stops everything. The data is kept for the next start.",
  ].join("\n");
}

/** Addresses of the panel, with one sign-in for each role. */
function panelRows({ memory }: Seeded): [label: string, text: string][] {
  const one = (role: string) => memory.people.find((person) => person.role === role);
  const people = ["admin", "customer", "reseller"].flatMap((role) => one(role) ?? []);
  const width = (of: (person: (typeof people)[number]) => string) => Math.max(...people.map((one) => of(one).length));
  const [addressWidth, emailWidth] = [width(({ signInAt }) => signInAt), width(({ email }) => email)];
  return people.map(({ role, email, password, signInAt }, i) => [
    i === 0 ? "Panel" : "",
    `${signInAt.padEnd(addressWidth)}  ${role.padEnd(ROLE_WIDTH)} ${email.padEnd(emailWidth)}  ${password}`,
  ]);
}

/** Models that are printed; a provider may have hundreds. */
const NAMED_MAX = 6;

function modelsOf({ models }: DemoProvider): string {
  const names = models
    .slice(0, NAMED_MAX)
    .map(({ id, prices, imagePrices }) => (prices || imagePrices ? id : `${id} (package only)`));
  const more = models.length - names.length;
  return names.join(", ") + (more > 0 ? ` and ${more} more` : "");
}
