import type { api } from "../../api.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";

/** The offerings as an admin reads them. */

export const OFFERINGS_KEY = [...ADMIN_KEY, "offerings"] as const;

export type Offering = NonNullable<Awaited<ReturnType<typeof api.admin.offerings.get>>["data"]>["offerings"][number];
