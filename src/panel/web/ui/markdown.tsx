import { lazy, Suspense } from "react";

/**
 * Text of an answer, with Markdown drawn as React elements: none of it can become HTML. Until the parser is loaded, or
 * if it cannot be, the plain text is shown.
 *
 *   <Markdown text={message.content} />
 */

const Drawn = lazy(() => import("./markdown_tokens.tsx").then((module) => ({ default: module.MarkdownTokens })));

export function Markdown({ text }: { text: string }) {
  return (
    <Suspense fallback={<p className="prose whitespace-pre-wrap">{text}</p>}>
      <Drawn text={text} />
    </Suspense>
  );
}
