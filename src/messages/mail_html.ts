import type { I18n } from "@lingui/core";
import { LANGUAGES, type LanguageTag, languageTag } from "../languages/languages.ts";
import type { MailText } from "./mail_texts.ts";

/**
 * The HTML of mails: tables and inlined CSS, which every mail client supports, and a few rules for those with dark
 * mode. No picture is fetched: the logo is attached. Text that a person wrote is escaped. A mail in a language that is written from right
 * to left says so with attributes and with left and right: not every client knows `start` and `end`. Source: MSG-5, MSG-7, LNG-3.
 */

/** The logo's place among the attachments. */
export const LOGO_ID = "logo";
export const DARK_LOGO_ID = "logo-dark";

/** A brand as mails show it. Colours are #rrggbb. */
export type MailLook = {
  name: string;
  /** An e-mail address or a URL. */
  support: string | null;
  /** Of readers who chose none. */
  language: LanguageTag | null;
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

/** What differs by the direction of the language: attributes, and paddings. */
const DIRECTIONS = {
  ltr: { table: "", cell: "", value: "", url: "", logoPadding: "0 0 16px 4px", namePadding: "8px 16px 8px 0" },
  rtl: {
    table: ' dir="rtl"',
    cell: ' dir="rtl" align="right"',
    value: ' dir="auto" align="right"',
    url: ' dir="ltr" align="right"',
    logoPadding: "0 4px 16px 0",
    namePadding: "8px 0 8px 16px",
  },
} as const;
type Way = (typeof DIRECTIONS)[keyof typeof DIRECTIONS];

/** The mail as HTML. `i18n`: in the language of its text. */
export function mailHtml(
  { subject, title, paragraphs, facts, button, why, unsubscribe }: MailText,
  look: MailLook,
  i18n: I18n,
): string {
  const language = languageTag(i18n.locale) ?? "en";
  const { direction } = LANGUAGES[language];
  const way = DIRECTIONS[direction];
  const body = [
    `<h1 class="ink" style="margin:0 0 16px;font-size:20px;line-height:28px;font-weight:600;color:${INK};${FONT}">${escapeHtml(title)}</h1>`,
    ...paragraphs.map(
      (text) =>
        `<p class="ink" style="margin:0 0 16px;font-size:15px;line-height:23px;color:${INK};${FONT}">${escapeHtml(text)}</p>`,
    ),
    facts.length > 0 ? factTable(facts, way) : "",
    button === null ? "" : buttonHtml(button, look, way),
  ];
  return `<!doctype html>
<html lang="${language}" dir="${direction}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="supported-color-schemes" content="light dark">
<title>${escapeHtml(subject)}</title><style>${DARK}</style></head>
<body class="bg"${way.table} style="margin:0;padding:0;background:#f3f5f6">
<table role="presentation" class="bg"${way.table} width="100%" cellpadding="0" cellspacing="0" border="0" style="background:#f3f5f6"><tr><td align="center" style="padding:32px 12px">
<table role="presentation"${way.table} width="100%" cellpadding="0" cellspacing="0" border="0" style="max-width:560px">
<tr><td${way.cell} style="padding:${way.logoPadding}">${mark(look)}</td></tr>
<tr><td class="card pad"${way.cell} style="background:#ffffff;border:1px solid ${LINE};border-top:4px solid ${look.accent};border-radius:8px;padding:28px 32px">
${body.filter((part) => part !== "").join("\n")}
</td></tr>
<tr><td class="ink2"${way.cell} style="padding:16px 4px 0;font-size:13px;line-height:20px;color:${INK_2};${FONT}">${escapeHtml(why)}${unsubscribeHtml(unsubscribe, i18n)}${supportHtml(look, i18n)}</td></tr>
</table></td></tr></table></body></html>
`;
}

/** The same mail as plain text. */
export function mailPlain(
  { title, paragraphs, facts, button, why, unsubscribe }: MailText,
  { name, support }: MailLook,
  i18n: I18n,
): string {
  const stop = unsubscribe && i18n.t("No more mails of this kind: {page}", { page: unsubscribe });
  const questions = support && i18n.t("Questions: {address}", { address: support });
  const parts = [
    title,
    ...paragraphs,
    facts.map(([name, value]) => i18n.t("{name}: {value}", { name, value })).join("\n"),
    button === null ? "" : `${i18n.t("{label}:", { label: button.label })}\n${button.url}`,
    ["-- ", name, why, stop, questions].filter(Boolean).join("\n"),
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

function factTable(facts: MailText["facts"], way: Way): string {
  const rows = facts.map(
    ([name, value]) =>
      `<tr><td class="ink2 line"${way.cell} valign="top" style="padding:${way.namePadding};border-bottom:1px solid ${LINE};font-size:14px;line-height:20px;color:${INK_2};${FONT}">${escapeHtml(name)}</td>` +
      `<td class="ink line"${way.value} valign="top" style="padding:8px 0;border-bottom:1px solid ${LINE};font-size:14px;line-height:20px;color:${INK};${FONT};overflow-wrap:anywhere">${escapeHtml(value)}</td></tr>`,
  );
  return `<table${way.table} width="100%" cellpadding="0" cellspacing="0" border="0" style="margin:0 0 24px">${rows.join("\n")}</table>`;
}

/** With the URL as text below, because some clients show no links. */
function buttonHtml({ label, url }: NonNullable<MailText["button"]>, { accent, onAccent }: MailLook, way: Way): string {
  const href = escapeHtml(url);
  return `<table role="presentation"${way.table} cellpadding="0" cellspacing="0" border="0" style="margin:8px 0 16px"><tr><td bgcolor="${accent}" style="background:${accent};border-radius:6px">
<a href="${href}" style="display:inline-block;padding:11px 20px;font-size:15px;line-height:22px;font-weight:600;color:${onAccent};text-decoration:none;${FONT}">${escapeHtml(label)}</a></td></tr></table>
<p class="ink2"${way.url} style="margin:0;font-size:13px;line-height:20px;color:${INK_2};${FONT};overflow-wrap:anywhere;word-break:break-all">${href}</p>`;
}

function unsubscribeHtml(url: string | null, i18n: I18n): string {
  return url === null
    ? ""
    : ` <a class="ink2" href="${escapeHtml(url)}" style="color:${INK_2}">${escapeHtml(i18n.t("No more mails of this kind"))}</a>`;
}

function supportHtml({ support }: MailLook, i18n: I18n): string {
  if (support === null) return "";
  const href = support.startsWith("https://") ? support : `mailto:${support}`;
  return `<br>${escapeHtml(i18n.t("Questions:"))} <a class="ink2" href="${escapeHtml(href)}" style="color:${INK_2}">${escapeHtml(support)}</a>`;
}
