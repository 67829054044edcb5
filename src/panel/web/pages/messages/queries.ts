import { queryOptions } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";

/** Queries about mail that several pages share. */

/** The deliveries of mails and webhook calls. */
export const MESSAGES_KEY = ["messages"] as const;

/** The mail server of a reseller; for an admin, the operator's sender. */
export const mailServerQuery = queryOptions({
  queryKey: ["mail-server"],
  queryFn: () => ask(api["mail-server"].get()),
});
