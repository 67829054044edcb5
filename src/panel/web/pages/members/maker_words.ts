import { t } from "@lingui/core/macro";
import type { OwnKey } from "../../shared/account_queries.ts";

export type Maker = NonNullable<OwnKey["madeBy"]>;

/** Who made a key or a token; null: it is not known, or one person alone works in the account. Source: MEM-7. */
export function makerWords(maker: Maker | null, members: number): string | null {
  if (maker === null || members < 2) return null;
  return maker.isMember ? maker.name : t`${{ name: maker.name }} (removed member)`;
}
