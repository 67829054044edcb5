import { type Config, ConfigError } from "../config.ts";
import { asRefusal, toErrorResponse } from "../errors.ts";
import { newRequestId } from "../platform/crypto.ts";
import type { Log } from "../platform/log.ts";
import { type ServeOptions, type Server, serve } from "../platform/runtime.ts";

type ListenOptions = Pick<ServeOptions, "port" | "hostname" | "fetch" | "sharesPort"> & {
  variable: "PORT" | "INTERNAL_PORT";
};
type ListenDeps = { config: Pick<Config, "clientIdleMs">; log: Log };

/** Serves `fetch` on a port. Throws ConfigError that names `variable` if the port cannot be listened on. */
export function listen({ config, log }: ListenDeps, { variable, ...where }: ListenOptions): Server {
  const onError = (error: unknown) => {
    const requestId = newRequestId();
    log.error({ err: error, requestId }, "a request failed before the app could answer it");
    return toErrorResponse(asRefusal(error), requestId);
  };
  try {
    return serve({ ...where, onError, clientIdleMs: config.clientIdleMs });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`${variable}: cannot listen on ${where.hostname}:${where.port} (${why})`, { cause: error });
  }
}
