import { connect, type Socket } from "node:net";
import type { Address } from "./names.ts";

/** Connects to one of several addresses, like the algorithm "Happy Eyeballs". Source: RFC 8305. */

/** The next address is tried when one fails, or has not answered for this long. */
const NEXT_AFTER_MS = 250;
const ADDRESSES_MAX = 8;

/**
 * The first TCP connection that is accepted. The families take turns, because one of them may have no route. Throws the first error once
 * all addresses have failed, and the reason of `signal`. Does not look names up.
 */
export function connectToAny(
  addresses: readonly Address[],
  port: number,
  signal: AbortSignal,
): Promise<{ address: string; socket: Socket }> {
  const left = inTurns(addresses).slice(0, ADDRESSES_MAX);
  const trying = new Set<Socket>();
  return new Promise((resolve, reject) => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let failure: Error | undefined;
    const end = (report: () => void) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
      const others = [...trying];
      trying.clear();
      for (const socket of others) socket.destroy();
      report();
    };
    const abort = () => end(() => reject(signal.reason));
    const next = () => {
      clearTimeout(timer);
      const address = left.shift()?.address;
      if (address === undefined) {
        if (trying.size === 0) end(() => reject(failure ?? new Error("there is no address to connect to")));
        return;
      }
      const socket = connect({ host: address, port });
      trying.add(socket);
      socket.once("connect", () => {
        if (trying.delete(socket)) end(() => resolve({ address, socket }));
      });
      // Not removed: a destroyed socket may still emit an error, which would be uncaught.
      socket.on("error", (error) => {
        if (!trying.delete(socket)) return;
        failure ??= error;
        next();
      });
      if (left.length > 0) timer = setTimeout(next, NEXT_AFTER_MS);
    };
    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort, { once: true });
    next();
  });
}

/** The first address that accepts a TCP connection, which is closed again. Throws as `connectToAny` does. */
export async function firstReachable(
  addresses: readonly Address[],
  port: number,
  signal: AbortSignal,
): Promise<string> {
  const { address, socket } = await connectToAny(addresses, port, signal);
  socket.destroy();
  return address;
}

function inTurns(addresses: readonly Address[]): Address[] {
  const [four, six] = ([4, 6] as const).map((family) => addresses.filter((one) => one.family === family));
  const turns = Math.max(four?.length ?? 0, six?.length ?? 0);
  return Array.from({ length: turns }, (_, i) => [four?.[i], six?.[i]])
    .flat()
    .filter((one) => one !== undefined);
}
