import type { api } from "../api.ts";

/** The offerings as an admin reads them. */

export const OFFERINGS_KEY = ["admin", "offerings"];

export type Offering = NonNullable<Awaited<ReturnType<typeof api.admin.offerings.get>>["data"]>["offerings"][number];
