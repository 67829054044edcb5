import { useMemo } from "react";
import { encode } from "uqr";

/**
 * A text as a QR code, black on white in both themes, as scanners need it. Load it lazily: its library is 6 KB.
 *
 *   const QrCode = lazy(() => import("../ui/qr_code.tsx").then((m) => ({ default: m.QrCode })));
 *   <QrCode text={uri} label="QR code for your authenticator app" />
 */

/** Modules of white around it. Source: ISO 18004 › Quiet zone. */
const QUIET = 4;
/** Whole pixels for each module, so that all have the same size. */
const MODULE_PIXELS = 4;

export function QrCode({ text, label }: { text: string; label: string }) {
  const { side, path } = useMemo(() => draw(text), [text]);
  return (
    <svg
      role="img"
      aria-label={label}
      viewBox={`0 0 ${side} ${side}`}
      width={side * MODULE_PIXELS}
      height={side * MODULE_PIXELS}
      shapeRendering="crispEdges"
      className="h-auto max-w-full rounded-md ring-1 ring-line"
    >
      <rect width={side} height={side} fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  );
}

/** Every run of dark modules in a row is one rectangle. */
function draw(text: string): { side: number; path: string } {
  const { size, data } = encode(text, { ecc: "M", border: 0 });
  const runs = data.flatMap((row, y) => {
    const dark = row.map((isDark) => (isDark ? "1" : "0")).join("");
    return [...dark.matchAll(/1+/g)].map(
      ({ 0: run, index }) => `M${index + QUIET} ${y + QUIET}h${run.length}v1h-${run.length}z`,
    );
  });
  return { side: size + 2 * QUIET, path: runs.join("") };
}
