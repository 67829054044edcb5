import { lazy, Suspense } from "react";

/**
 * Text of an answer, with Markdown drawn as React elements: nothing of it can become HTML. Until the parser is there
 * (and if it cannot be loaded), the text stands as it came.
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
