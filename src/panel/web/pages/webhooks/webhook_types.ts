import type { api } from "../../api.ts";

/** What the page of webhooks and its dialogs share. */

type Listed = NonNullable<Awaited<ReturnType<typeof api.webhooks.get>>["data"]>;
export type Endpoint = Listed["endpoints"][number];

export const WEBHOOKS_KEY = ["webhooks"] as const;
