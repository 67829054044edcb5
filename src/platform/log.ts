import { type DestinationStream, type Logger, pino, stdTimeFunctions } from "pino";
import SonicBoom from "sonic-boom";
import { wallClockMs } from "./runtime.ts";

/** Longer text in a field is truncated. */
const TEXT_LENGTH_MAX = 1000;
const STACK_LENGTH_MAX = 4000;
const LIST_LENGTH_MAX = 20;
/** Depth of an error's chain of causes. */
const CAUSES_MAX = 3;
/** Bytes of lines that wait in memory for a full disk or a slow reader of standard output; further lines are dropped. */
const BUFFER_BYTES_MAX = 16 * 1024 * 1024;
/** Request lines are gathered for this time, or up to this many characters, and written together: a write costs more than ten lines. */
const GATHER_MS = 100;
const GATHER_CHARS_MAX = 32 * 1024;

/** Field names whose value is never written. Compared in lower case, without `-` and `_`. */
const FORBIDDEN = new Set(
  (
    "authorization proxyauthorization cookie setcookie apikey key secret secretkey password passwordhash token csrf csrftoken session " +
    "digest prompt messages content body text input output headers credentials"
  ).split(" "),
);

/**
 * The fields of a line. Only text, numbers, booleans, lists of those, and errors are written. Any other object is left out, so that a
 * request, its headers or its body cannot be logged by accident.
 */
export type LogFields = Readonly<Record<string, unknown>>;
export type LogWrite = { (fields: LogFields, message: string): void; (message: string): void };

/**
 * The line of a request, written at its end. It contains no client's text: the route is an endpoint of ours, the model is in the
 * catalog. Undefined fields (a step that was not reached) are left out. Times are in ms.
 */
export type RequestLine = {
  requestId: string;
  /** 0: unknown. */
  accountId: number;
  keyId: number | undefined;
  /** The visible beginning of the key. */
  keyPrefix: string | undefined;
  model: string | undefined;
  route: string;
  status: number;
  refusal: string | undefined;
  stream: boolean | undefined;
  /** The provider that served the request, or was tried last. */
  provider: string | undefined;
  routeId: number | undefined;
  /** How its hold ended. */
  end: string | undefined;
  totalMs: number;
  reserveMs: number | undefined;
  firstByteMs: number | undefined;
  providerMs: number | undefined;
  settleMs: number | undefined;
  bytesOut: number | undefined;
};

export type Log = {
  trace: LogWrite;
  debug: LogWrite;
  info: LogWrite;
  warn: LogWrite;
  error: LogWrite;
  fatal: LogWrite;
  /** Writes the line of a request: level info, or warn if the status is 500 or above. */
  request(line: RequestLine): void;
  /** A log that adds `fields` to every line, except request lines. */
  child(fields: LogFields): Log;
  /** Resolves when everything logged so far has been written. */
  flush(): Promise<void>;
};

/** JSON lines on standard output, or to `to`. `level` is trace, debug, info, warn, error, fatal or silent. */
export function createLog(level: string, to: DestinationStream & Flushing = standardOutput()): Log {
  const gathered = createGathering(to);
  const logger: Logger = pino(
    {
      level,
      base: null,
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      messageKey: "message",
      // Errors are already safe here; pino's own serializer would replace them.
      serializers: { err: (err: unknown) => err },
    },
    gathered,
  );
  return logOf(logger, gathered);
}

/** The fields as they are written. */
export function safeFields(fields: LogFields): Record<string, unknown> {
  const safe: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    safe[name] = FORBIDDEN.has(name.toLowerCase().replace(/[-_]/g, "")) ? "[redacted]" : safeValue(value);
  }
  return safe;
}

type Level = "trace" | "debug" | "info" | "warn" | "error" | "fatal";

function logOf(logger: Logger, gathered: Gathering): Log {
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
    request(line) {
      const level = line.status >= 500 ? "warn" : "info";
      // Bypasses pino and `safeFields`, which take ten times as long: every field here is known to be safe.
      if (logger.isLevelEnabled(level)) {
        const fields = JSON.stringify(line).slice(1);
        gathered.gather(`{"level":"${level}","time":"${isoTime()}","message":"request",${fields}\n`);
      }
    },
    child: (fields) => logOf(logger.child(safeFields(fields)), gathered),
    flush() {
      gathered.letGo();
      return new Promise((resolve) => logger.flush(() => resolve()));
    },
  };
}

/** The current time as pino writes it, computed once per millisecond. */
function isoTime(): string {
  const unixMs = wallClockMs();
  if (unixMs !== timedMs) {
    timedMs = unixMs;
    timeText = new Date(unixMs).toISOString();
  }
  return timeText;
}
let timedMs = 0;
let timeText = "";

type Flushing = { flush?(done?: (error?: Error) => void): void };
type Gathering = DestinationStream & Required<Flushing> & { gather(line: string): void; letGo(): void };

/**
 * Gathers request lines before `to`. Another line flushes them first, which keeps the order. It has no `flushSync`, which pino calls at
 * each fatal line: sonic-boom's tries until everything is written, and blocks the process for good if the disk is full or nobody reads.
 */
function createGathering(to: DestinationStream & Flushing): Gathering {
  let lines = "";
  let timer: ReturnType<typeof setTimeout> | undefined;

  function letGo(): void {
    clearTimeout(timer);
    timer = undefined;
    if (lines === "") return;
    const whole = lines;
    lines = "";
    to.write(whole);
  }

  return {
    letGo,
    gather(line) {
      lines += line;
      if (lines.length >= GATHER_CHARS_MAX) letGo();
      else timer ??= setTimeout(letGo, GATHER_MS);
    },
    write(line) {
      letGo();
      to.write(line);
    },
    flush: (done) => (to.flush ? to.flush(done) : done?.()),
  };
}

/**
 * Writes asynchronously: a slow reader of the log must not delay requests. What could not be written, as on a full disk, stays in the
 * buffer and is tried with the next line. pino's own destination would throw that error outside of every call, and would then try
 * until it succeeds when the process exits.
 */
function standardOutput(): DestinationStream & Flushing {
  // With minLength 0, `flush` would resolve before the last lines are written.
  const output = new SonicBoom({ fd: 1, sync: false, minLength: 1, maxLength: BUFFER_BYTES_MAX });
  output.on("error", () => {});
  // A full buffer drops the line before it tries to write.
  output.on("drop", () => output.flush());
  return output;
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

/** drizzle's error messages end with the query's values, which may contain line breaks; the stack follows. */
function withoutParams(text: string): string {
  return text.replace(/\nparams: [\s\S]*?(?=\n {4}at |$)/g, "\nparams: [redacted]");
}

/** Redacts keys, bearer tokens and passwords in URLs, and truncates. */
function safeText(text: string, lengthMax: number): string {
  const cut = text.length > lengthMax ? `${text.slice(0, lengthMax)}…` : text;
  return cut
    .replace(/\b(sk|mt)-[A-Za-z0-9_-]{8,}/g, "$1-[redacted]")
    .replace(/\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]+/gi, "$1 [redacted]")
    .replace(/\b([a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/@]+@/gi, "$1[redacted]@");
}
