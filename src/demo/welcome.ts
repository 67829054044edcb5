import { formatUsd } from "../cli/money.ts";
import { AGENTS_SDK_MODEL, type DemoProvider } from "./demo_provider.ts";
import { RESELLER_HOST, type Seeded } from "./seed.ts";

/** The text that the demo prints when it is ready: addresses, keys, and commands to paste. Pure. */

const LABEL_WIDTH = 14;
const ROLE_WIDTH = 9;
/** A provider may have hundreds of models. */
const MODELS_SHOWN_MAX = 8;

type Facts = { baseUrl: string; provider: DemoProvider; seeded: Seeded; credentialsFile: string; logFile: string };

export function welcome({ baseUrl, provider, seeded, credentialsFile, logFile }: Facts): string {
  const { packageKey, paygKey, paygNanoUsd, resellerCustomerKey } = seeded;
  const { chatModel, imageModel, embeddingModel } = provider;
  const row = (label: string, text: string) => `  ${label.padEnd(LABEL_WIDTH)}${text}`;
  const chat = (content: string, over: object = {}) => ({
    model: chatModel,
    messages: [{ role: "user", content }],
    ...over,
  });
  const curl = (path: string, key: string, body?: object) => {
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
  const json = (title: string, ...call: Parameters<typeof curl>) => section(title, `${curl(...call)} -w '\\n'`);
  return [
    row("Base URL", baseUrl),
    row("Package key", packageKey),
    row("", "200 requests a day for 30 days, with carryover"),
    row("PAYG key", paygKey),
    row("", `pay-as-you-go, from a balance of ${formatUsd(paygNanoUsd)}`),
    row("SDKs", `export OPENAI_BASE_URL=${baseUrl} OPENAI_API_KEY=${packageKey}`),
    row("Models", modelsOf(provider)),
    ...(provider.name === "simulated"
      ? [row("", `and ${AGENTS_SDK_MODEL}: sim-small, by the name that OpenAI's Agents SDKs ask for`)]
      : []),
    ...resellerRows(reseller, resellerCustomerKey).map(([label, text]) => row(label, text)),
    ...panelRows(seeded).map(([label, text]) => row(label, text)),
    row("More", `all people, passwords and keys are in ${credentialsFile}`),
    row("Log", `${logFile} (warnings; LOG_LEVEL=info for every request)`),
    ...provider.notes.map((note) => row("Note", note)),
    "",
    "Paste into another terminal:",
    "",
    json("Chat, with the package", "/chat/completions", packageKey, chat("Tell me about toll gates.")),
    section(
      "Stream, pay-as-you-go",
      curl(
        "/chat/completions",
        paygKey,
        chat("Tell me a story.", { stream: true, stream_options: { include_usage: true } }),
      ).replace("curl -sS", "curl -sSN"),
    ),
    json("Responses", "/responses", paygKey, { model: chatModel, input: "Tell me about toll gates." }),
    image
      ? json("Image", "/images/generations", packageKey, { ...image, response_format: "url" })
      : "Image\n  This provider lists no image model.\n",
    ...(embeddingModel
      ? [
          section(
            "Embeddings",
            `${curl("/embeddings", paygKey, { model: embeddingModel, input: ["A toll gate", "A road"], dimensions: 8 })} -w '\\n'`,
          ),
        ]
      : []),
    section("Balance", curl("/balance", paygKey)),
    section("Usage", curl("/usage", packageKey)),
    "Ctrl-C stops everything. The data is kept for the next start.",
  ].join("\n");
}

/** The base URL on a reseller's own domain, with a key of its customer. */
function resellerRows(baseUrl: string, customerKey: string): [label: string, text: string][] {
  return [
    ["Reseller", `${baseUrl}  the base URL on a reseller's own domain`],
    ["", `${customerKey}  a key of the reseller's customer, for that URL`],
    ["", "curl and browsers resolve subdomains of localhost. Node and Python do not:"],
    ["", `to use their SDKs, add this line to /etc/hosts: 127.0.0.1 ${RESELLER_HOST}`],
  ];
}

/** Addresses of the panel, with one sign-in for each role. */
function panelRows({ credentials }: Seeded): [label: string, text: string][] {
  const firstOf = (role: string) => credentials.people.find((person) => person.role === role);
  const people = ["admin", "customer", "reseller"].flatMap((role) => firstOf(role) ?? []);
  const addressWidth = Math.max(...people.map(({ signInAt }) => signInAt.length));
  const emailWidth = Math.max(...people.map(({ email }) => email.length));
  return people.map(({ role, email, password, signInAt }, i) => [
    i === 0 ? "Panel" : "",
    `${signInAt.padEnd(addressWidth)}  ${role.padEnd(ROLE_WIDTH)} ${email.padEnd(emailWidth)}  ${password}`,
  ]);
}

function modelsOf({ name, models }: DemoProvider): string {
  const listed = name === "simulated" ? models.filter(({ id }) => id !== AGENTS_SDK_MODEL) : models;
  const names = listed
    .slice(0, MODELS_SHOWN_MAX)
    .map(({ id, prices, imagePrices }) => (prices || imagePrices ? id : `${id} (package only)`));
  const more = listed.length - names.length;
  return names.join(", ") + (more > 0 ? ` and ${more} more` : "");
}
