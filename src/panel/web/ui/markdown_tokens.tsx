import { t } from "@lingui/core/macro";
import { lexer, type MarkedToken, type Token, type Tokens } from "marked";
import { memo, type ReactNode, useMemo } from "react";
import { CopyButton } from "./copy_text.tsx";
import { inPlace } from "./in_place.tsx";
import { Scrolling, ScrollingCode } from "./scrolling.tsx";

/**
 * Markdown as React elements, by the tokens of marked's lexer. Raw HTML stays text, images become links, links are
 * http(s) or mailto and tell the other side nothing. Loaded by markdown.tsx.
 */

/** Longer texts are shown as plain text: parsing them at each new word would block the page. */
const CHARS_MAX = 200_000;
/** Lists in lists in quotes, deeper than this, are shown as text. */
const DEPTH_MAX = 24;

export function MarkdownTokens({ text }: { text: string }) {
  const blocks = useMemo(() => (text.length > CHARS_MAX ? null : lexer(text)), [text]);
  if (blocks === null) return <p className="prose whitespace-pre-wrap">{text}</p>;
  return (
    <div className="prose">
      {inPlace(blocks, (token) => (
        <Block raw={token.raw} token={token} />
      ))}
    </div>
  );
}

/** A finished block is not drawn again while the answer grows, because it depends only on its source. */
const Block = memo(
  ({ token }: { raw: string; token: Token }) => draw(token, 0),
  (before, after) => before.raw === after.raw && before.token.type === after.token.type,
);

function drawAll(tokens: readonly Token[] | undefined, depth: number): ReactNode {
  return tokens && inPlace(tokens, (token) => draw(token, depth + 1));
}

/** The lexer is used without extensions: each token is one of its own kinds. */
function isKnown(token: Token): token is MarkedToken {
  return KINDS.has(token.type);
}
/** Names of the lexer, not a text. */
const KINDS = new Set(
  "blockquote br code codespan def del em escape heading hr html image link list list_item paragraph space strong table text checkbox".split(
    " ",
  ),
);

function draw(token: Token, depth: number): ReactNode {
  if (depth > DEPTH_MAX || !isKnown(token)) return token.raw;
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      // The page has its own h1 and h2, so an answer's headings begin below them.
      const Heading = token.depth <= 1 ? "h3" : token.depth === 2 ? "h4" : "h5";
      return <Heading>{drawAll(token.tokens, depth)}</Heading>;
    }
    case "paragraph":
      return <p>{drawAll(token.tokens, depth)}</p>;
    case "text":
      return token.tokens ? drawAll(token.tokens, depth) : plain(token.text);
    case "escape":
      return plain(token.text);
    case "strong":
      return <strong>{drawAll(token.tokens, depth)}</strong>;
    case "em":
      return <em>{drawAll(token.tokens, depth)}</em>;
    case "del":
      return <del>{drawAll(token.tokens, depth)}</del>;
    case "codespan":
      return <code>{token.text}</code>;
    case "br":
      return <br />;
    case "hr":
      return <hr />;
    case "code":
      return <CodeBlock code={token.text} language={token.lang?.split(/\s/)[0] ?? ""} />;
    case "blockquote":
      return <blockquote>{drawAll(token.tokens, depth)}</blockquote>;
    case "list":
      return drawList(token, depth);
    case "checkbox":
      return <TaskBox isDone={token.checked} />;
    case "list_item":
      return drawAll(token.tokens, depth);
    case "link":
      return <SafeLink href={token.href}>{drawAll(token.tokens, depth)}</SafeLink>;
    case "image":
      // Loading it would tell its host that this answer is read, and from which address.
      return <SafeLink href={token.href}>{plain(token.text) || t`Image`}</SafeLink>;
    case "table":
      return drawTable(token, depth);
    case "html":
      return token.block ? <p className="whitespace-pre-wrap">{token.raw.trimEnd()}</p> : token.raw;
  }
}

function drawList({ items, ordered, start }: Tokens.List, depth: number) {
  const drawn = inPlace(items, (item) => (
    <li>
      {item.task && !hasBox(item.tokens) && <TaskBox isDone={item.checked === true} />}
      {drawAll(item.tokens, depth)}
    </li>
  ));
  return ordered ? <ol start={typeof start === "number" ? start : 1}>{drawn}</ol> : <ul>{drawn}</ul>;
}

function drawTable({ header, rows }: Tokens.Table, depth: number) {
  return (
    <Scrolling label={t`Table`} className="overflow-x-auto">
      <table>
        <thead>
          <tr>{inPlace(header, (cell) => cellOf("th", cell, depth))}</tr>
        </thead>
        <tbody>
          {inPlace(rows, (row) => (
            <tr>{inPlace(row, (cell) => cellOf("td", cell, depth))}</tr>
          ))}
        </tbody>
      </table>
    </Scrolling>
  );
}

function hasBox(tokens: readonly Token[]): boolean {
  return tokens.some(
    (token) =>
      token.type === "checkbox" || ("tokens" in token && token.tokens?.some((inner) => inner.type === "checkbox")),
  );
}

function TaskBox({ isDone }: { isDone: boolean }) {
  return (
    <input
      type="checkbox"
      checked={isDone}
      disabled
      readOnly
      aria-label={isDone ? t({ message: "Done", context: "state of a task" }) : t`To do`}
      className="tick me-2 align-text-bottom"
    />
  );
}

function cellOf(
  Cell: "th" | "td",
  cell: { align: "center" | "left" | "right" | null; tokens: Token[] },
  depth: number,
) {
  return <Cell style={cell.align ? { textAlign: cell.align } : undefined}>{drawAll(cell.tokens, depth)}</Cell>;
}

function CodeBlock({ code, language }: { code: string; language: string }) {
  return (
    <div className="overflow-hidden rounded-md border border-line bg-sunken">
      <div className="flex items-center justify-between border-b border-line py-1 pe-1 ps-4 text-12 text-ink-3">
        {language || t`code`}
        <CopyButton value={code} what={t`the code`} variant="quiet" />
      </div>
      <ScrollingCode className="text-13 wrap-normal">{code}</ScrollingCode>
    </div>
  );
}

/** A link that may be followed, or only its text. */
function SafeLink({ href, children }: { href: string; children: ReactNode }) {
  if (!/^(?:https?:\/\/|mailto:)/i.test(href)) return children;
  return (
    <a href={href} target="_blank" rel="noreferrer nofollow">
      {children}
    </a>
  );
}

const ENTITIES: Record<string, string> = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'" };

/** Text for React: marked leaves the writer's character references in. */
function plain(text: string): string {
  return text.replace(/&(?:amp|lt|gt|quot|#39);/g, (found) => ENTITIES[found] ?? found);
}
