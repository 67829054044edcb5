import { queryOptions } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";

/** The person's own settings. */

export const SETTINGS_KEY = ["settings"] as const;

export const settingsQuery = queryOptions({ queryKey: SETTINGS_KEY, queryFn: () => ask(api.settings.get()) });
