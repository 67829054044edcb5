import { argv } from "node:process";
import { MailError, operatorServer, sendMail } from "../../src/messages/smtp.ts";

/**
 * Sends one mail by an operator's server, in a process of its own, since a process learns at its start which certificates it trusts. Prints how
 * it ended, as JSON. Arguments: SMTP_URL, and MESSAGES_ALLOW_PRIVATE.
 */

const server = operatorServer({
  smtpUrl: argv[2] ?? "",
  mailFrom: { name: "Operator", address: "mail@operator.example" },
  messagesAllowPrivate: argv[3] ? argv[3].split(",") : [],
});
if (server === null) throw new Error("no server");
const mail = {
  ...{ to: { name: "Ann", address: "ann@example.com" }, subject: "Hello", text: "Hello", html: "<p>Hello</p>" },
  ...{ messageId: "<1.1@operator.example>", headers: {}, pictures: [] },
};
try {
  await sendMail(server, mail);
  console.log(JSON.stringify({ sent: true }));
} catch (error) {
  if (!(error instanceof MailError)) throw error;
  console.log(JSON.stringify({ sent: false, fault: error.fault, message: error.message }));
}
