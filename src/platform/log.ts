import { type DestinationStream, destination, type Logger, pino, stdTimeFunctions } from "pino";

/** Longer text in a field is cut. */
const TEXT_LENGTH_MAX = 1000;
const STACK_LENGTH_MAX = 4000;
const LIST_LENGTH_MAX = 20;
/** Of an error's chain of causes. */
const CAUSES_MAX = 3;
/** Lines wait in memory for a slow reader of standard output up to this many bytes; more are dropped. */
const BUFFER_BYTES_MAX = 16 * 1024 * 1024;

/** Names whose value is never written, whatever it is. Compared in lower case, without `-` and `_`. */
const FORBIDDEN = new Set(
  (
    "authorization proxyauthorization cookie setcookie apikey key secret secretkey password passwordhash token csrf csrftoken session " +
    "digest prompt messages content body text input output headers credentials"
  ).split(" "),
);

/**
 * What a line says beside its message. Only plain values are written: text, numbers, booleans, lists of those, and
 * errors. Any other object is left out, so that a request, its headers or its body cannot be logged by accident.
 */
export type LogFields = Readonly<Record<string, unknown>>;
export type LogWrite = { (fields: LogFields, message: string): void; (message: string): void };

export type Log = {
  trace: LogWrite;
  debug: LogWrite;
  info: LogWrite;
  warn: LogWrite;
  error: LogWrite;
  fatal: LogWrite;
  /** A log whose every line carries `fields`. */
  child(fields: LogFields): Log;
  /** Resolves when what was logged so far has left the process. */
  flush(): Promise<void>;
};

/** JSON lines on standard output, or to `to`. `level` is trace, debug, info, warn, error, fatal or silent. */
export function createLog(level: string, to: DestinationStream = standardOutput()): Log {
  const logger: Logger = pino(
    {
      level,
      base: null,
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      messageKey: "message",
      // Errors have been made safe before they come here; pino's own serializer would write them anew.
      serializers: { err: (err: unknown) => err },
    },
    to,
  );
  return logOf(logger);
}

/** Fields as they are written. */
export function safeFields(fields: LogFields): Record<string, unknown> {
  const safe: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    safe[name] = FORBIDDEN.has(name.toLowerCase().replace(/[-_]/g, "")) ? "[redacted]" : safeValue(value);
  }
  return safe;
}

type Level = "trace" | "debug" | "info" | "warn" | "error" | "fatal";

function logOf(logger: Logger): Log {
  const write =
    (level: Level): LogWrite =>
    (first: LogFields | string, message?: string) => {
      if (!logger.isLevelEnabled(level)) return;
      if (typeof first === "string") logger[level](safeText(first, TEXT_LENGTH_MAX));
      else logger[level](safeFields(first), safeText(message ?? "", TEXT_LENGTH_MAX));
    };
  return {
    trace: write("trace"),
    debug: write("debug"),
    info: write("info"),
    warn: write("warn"),
    error: write("error"),
    fatal: write("fatal"),
    child: (fields) => logOf(logger.child(safeFields(fields))),
    flush: () => new Promise((resolve) => logger.flush(() => resolve())),
  };
}

/** Written behind the callers' backs: a slow reader of the log must not hold up requests. */
function standardOutput(): DestinationStream {
  return destination({ dest: 1, sync: false, maxLength: BUFFER_BYTES_MAX });
}

function safeValue(value: unknown): unknown {
  if (typeof value === "string") return safeText(value, TEXT_LENGTH_MAX);
  if (typeof value === "bigint") return value.toString();
  if (value === null || typeof value === "number" || typeof value === "boolean" || value === undefined) return value;
  if (value instanceof Error) return safeError(value, CAUSES_MAX);
  if (Array.isArray(value)) {
    return value
      .slice(0, LIST_LENGTH_MAX)
      .map((item: unknown) => (typeof item === "object" ? "[left out]" : safeValue(item)));
  }
  return "[left out]";
}

function safeError(error: Error, causesLeft: number): Record<string, unknown> {
  const code = "code" in error ? error.code : undefined;
  return {
    type: error.name,
    message: safeText(withoutParams(error.message), TEXT_LENGTH_MAX),
    ...((typeof code === "string" || typeof code === "number") && { code }),
    stack: safeText(withoutParams(error.stack ?? ""), STACK_LENGTH_MAX),
    ...(error.cause instanceof Error && causesLeft > 0 && { cause: safeError(error.cause, causesLeft - 1) }),
  };
}

/** drizzle's errors end in the values of the query. */
function withoutParams(text: string): string {
  return text.replace(/\nparams: [^\n]*/g, "\nparams: [redacted]");
}

/** Text without what looks like a key, a bearer token or a URL's password. */
function safeText(text: string, lengthMax: number): string {
  const cut = text.length > lengthMax ? `${text.slice(0, lengthMax)}…` : text;
  return cut
    .replace(/\bsk-[A-Za-z0-9_-]{8,}/g, "sk-[redacted]")
    .replace(/\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]+/gi, "$1 [redacted]")
    .replace(/\b([a-z][a-z0-9+.-]*:\/\/)[^\s/@]+@/gi, "$1[redacted]@");
}
