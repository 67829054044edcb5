import { AsyncLocalStorage } from "node:async_hooks";

/** The environment, standard input and output of a command. Several commands may run in one process. */

export type Terminal = {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Standard input, read at most once. */
  readonly stdin: NodeJS.ReadableStream;
  out(text: string): void;
  err(text: string): void;
  /** Sets the exit code; 0 if no command sets another. */
  exitsWith(code: number): void;
};

const current = new AsyncLocalStorage<Terminal>();

/** Runs `work`, and everything that it starts, at a terminal. */
export function atTerminal<T>(terminal: Terminal, work: () => T): T {
  return current.run(terminal, work);
}

/** The terminal of the running command. */
export function terminal(): Terminal {
  const found = current.getStore();
  if (found === undefined) throw new Error("terminal() was called outside a command");
  return found;
}
