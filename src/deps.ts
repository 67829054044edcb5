import type { AccountParts } from "./accounts/parts.ts";
import type { BooksCheck } from "./books/check_schedule.ts";
import type { CatalogParts } from "./catalog/parts.ts";
import type { CommerceParts } from "./commerce/parts.ts";
import type { GatewayParts } from "./gateway/parts.ts";
import type { ReadPlaces } from "./http/read_places.ts";
import type { Ledger } from "./ledger/ledger.ts";
import type { Messages } from "./messages/delivery.ts";
import type { ReceiptExport } from "./messages/receipt_export.ts";
import type { OperationParts } from "./operations/parts.ts";
import type { Site } from "./panel/built_site.ts";
import type { Base } from "./platform/base.ts";
import type { Clock } from "./platform/clock.ts";

/** Everything that one replica consists of: the parts of each room. Constructed in replica.ts, passed down as the first argument. */
export type Deps = Omit<Base, "clock" | "nowMs" | "closing"> &
  AccountParts &
  CatalogParts &
  CommerceParts &
  GatewayParts &
  OperationParts & {
    clock: Clock;
    /** For requests that read on `db`, whose connections everyone shares. */
    readPlaces: ReadPlaces;
    ledger: Ledger;
    booksCheck: BooksCheck;
    messages: Messages;
    /** Undefined if receipts are not exported. */
    receiptExport: ReceiptExport | undefined;
    /** The panel's pages; undefined if they were not built. */
    site: Site | undefined;
  };
