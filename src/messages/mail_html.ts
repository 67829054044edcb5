import type { MailText } from "./mail_texts.ts";

/**
 * The HTML of mails: tables and inlined CSS, which every mail client supports, and a few rules for those with dark
 * mode. No picture is fetched: the logo is attached. Text that a person wrote is escaped. Source: MSG-5, MSG-7.
 */

/** The logo's place among the attachments. */
export const LOGO_ID = "logo";
export const DARK_LOGO_ID = "logo-dark";

/** A brand as mails show it. Colours are #rrggbb. */
export type MailLook = {
  name: string;
  /** An e-mail address or a URL. */
  support: string | null;
  accent: string;
  onAccent: string;
  /** PNG files. */
  logoLight: Uint8Array | null;
  logoDark: Uint8Array | null;
};

const INK = "#16202a";
const INK_2 = "#4a5763";
const LINE = "#dde3e7";
const FONT = "font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif";

/** Mail clients without dark mode ignore it; others would otherwise guess inverted colours. */
const DARK = `@media (prefers-color-scheme: dark) {
  .bg { background: #10151a !important; }
  .card { background: #1a2128 !important; border-left-color: #323c45 !important; border-right-color: #323c45 !important; border-bottom-color: #323c45 !important; }
  .ink { color: #eef2f4 !important; }
  .ink2 { color: #b8c3cb !important; }
  .line { border-color: #323c45 !important; }
  .light-only { display: none !important; }
  .dark-only { display: block !important; }
  .chip { background: #ffffff !important; padding: 6px 8px !important; }
}
@media (max-width: 480px) { .pad { padding-left: 20px !important; padding-right: 20px !important; } }`;

/** The mail as HTML. */
export function mailHtml(
  { subject, title, paragraphs, facts, button, why, unsubscribe }: MailText,
  look: MailLook,
): string {
  const body = [
    `<h1 class="ink" style="margin:0 0 16px;font-size:20px;line-height:28px;font-weight:600;color:${INK};${FONT}">${escapeHtml(title)}</h1>`,
    ...paragraphs.map(
      (text) =>
        `<p class="ink" style="margin:0 0 16px;font-size:15px;line-height:23px;color:${INK};${FONT}">${escapeHtml(text)}</p>`,
    ),
    facts.length > 0 ? factTable(facts) : "",
    button === null ? "" : buttonHtml(button, look),
  ];
  return `<!doctype html>
<html lang="en" dir="ltr"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="supported-color-schemes" content="light dark">
<title>${escapeHtml(subject)}</title><style>${DARK}</style></head>
<body class="bg" style="margin:0;padding:0;background:#f3f5f6">
<table role="presentation" class="bg" width="100%" cellpadding="0" cellspacing="0" border="0" style="background:#f3f5f6"><tr><td align="center" style="padding:32px 12px">
<table role="presentation" width="100%" cellpadding="0" cellspacing="0" border="0" style="max-width:560px">
<tr><td style="padding:0 0 16px 4px">${mark(look)}</td></tr>
<tr><td class="card pad" style="background:#ffffff;border:1px solid ${LINE};border-top:4px solid ${look.accent};border-radius:8px;padding:28px 32px">
${body.filter((part) => part !== "").join("\n")}
</td></tr>
<tr><td class="ink2" style="padding:16px 4px 0;font-size:13px;line-height:20px;color:${INK_2};${FONT}">${escapeHtml(why)}${unsubscribeHtml(unsubscribe)}${supportHtml(look)}</td></tr>
</table></td></tr></table></body></html>
`;
}

/** The same mail as plain text. */
export function mailPlain(
  { title, paragraphs, facts, button, why, unsubscribe }: MailText,
  { name, support }: MailLook,
): string {
  const stop = unsubscribe === null ? "" : `\nNo more mails of this kind: ${unsubscribe}`;
  const parts = [
    title,
    ...paragraphs,
    facts.map(([fact, value]) => `${fact}: ${value}`).join("\n"),
    button === null ? "" : `${button.label}:\n${button.url}`,
    `-- \n${name}\n${why}${stop}${support === null ? "" : `\nQuestions: ${support}`}`,
  ];
  return `${parts.filter((part) => part !== "").join("\n\n")}\n`;
}

export function escapeHtml(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("'", "&#39;");
}

function mark({ name, logoLight, logoDark }: MailLook): string {
  const picture = (cid: string, more: string) =>
    `<img src="cid:${cid}" alt="${escapeHtml(name)}" height="32" style="height:32px;max-width:240px;border:0;${more}">`;
  if (logoLight === null && logoDark === null)
    return `<span class="ink" style="font-size:17px;line-height:24px;font-weight:600;color:${INK};${FONT}">${escapeHtml(name)}</span>`;
  // A logo for light backgrounds keeps a light background in dark mode.
  if (logoDark === null)
    return `<span class="chip" style="display:inline-block;border-radius:6px">${picture(LOGO_ID, "display:block")}</span>`;
  if (logoLight === null)
    return `<span style="display:inline-block;border-radius:6px;background:#10151a;padding:6px 8px">${picture(DARK_LOGO_ID, "display:block")}</span>`;
  return `<span class="light-only" style="display:block">${picture(LOGO_ID, "display:block")}</span>
<!--[if !mso]><!--><span class="dark-only" style="display:none">${picture(DARK_LOGO_ID, "display:block")}</span><!--<![endif]-->`;
}

function factTable(facts: MailText["facts"]): string {
  const rows = facts.map(
    ([name, value]) =>
      `<tr><td class="ink2 line" valign="top" style="padding:8px 16px 8px 0;border-bottom:1px solid ${LINE};font-size:14px;line-height:20px;color:${INK_2};${FONT}">${escapeHtml(name)}</td>` +
      `<td class="ink line" valign="top" style="padding:8px 0;border-bottom:1px solid ${LINE};font-size:14px;line-height:20px;color:${INK};${FONT};overflow-wrap:anywhere">${escapeHtml(value)}</td></tr>`,
  );
  return `<table width="100%" cellpadding="0" cellspacing="0" border="0" style="margin:0 0 24px">${rows.join("\n")}</table>`;
}

/** With the URL as text below, because some clients show no links. */
function buttonHtml({ label, url }: NonNullable<MailText["button"]>, { accent, onAccent }: MailLook): string {
  const href = escapeHtml(url);
  return `<table role="presentation" cellpadding="0" cellspacing="0" border="0" style="margin:8px 0 16px"><tr><td bgcolor="${accent}" style="background:${accent};border-radius:6px">
<a href="${href}" style="display:inline-block;padding:11px 20px;font-size:15px;line-height:22px;font-weight:600;color:${onAccent};text-decoration:none;${FONT}">${escapeHtml(label)}</a></td></tr></table>
<p class="ink2" style="margin:0;font-size:13px;line-height:20px;color:${INK_2};${FONT};overflow-wrap:anywhere;word-break:break-all">${href}</p>`;
}

function unsubscribeHtml(url: string | null): string {
  return url === null
    ? ""
    : ` <a class="ink2" href="${escapeHtml(url)}" style="color:${INK_2}">No more mails of this kind</a>`;
}

function supportHtml({ support }: MailLook): string {
  if (support === null) return "";
  const href = support.startsWith("https://") ? support : `mailto:${support}`;
  return `<br>Questions: <a class="ink2" href="${escapeHtml(href)}" style="color:${INK_2}">${escapeHtml(support)}</a>`;
}
