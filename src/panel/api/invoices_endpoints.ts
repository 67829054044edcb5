import { Elysia, t } from "elysia";
import {
  buyerDetailsOf,
  saveBuyerDetails,
  saveSellerDetails,
  sellerDetails,
} from "../../commerce/invoice_details_store.ts";
import { numberText, titleOf } from "../../commerce/invoice_titles.ts";
import { findInvoice, type Invoice, listInvoices } from "../../commerce/invoices_store.ts";
import { OPERATOR, sellerOfPerson } from "../../commerce/sellers_store.ts";
import type { Deps } from "../../deps.ts";
import { csvResponse, FILE_WAIT_MS_MAX } from "./csv_stream.ts";
import { Id, IdParam, orNull, whole } from "./fields.ts";
import { toJson } from "./formats.ts";
import { invoicesCsv } from "./invoices_csv.ts";
import { longRead, type Person, signedIn } from "./panel_session.ts";

/** Invoices: an account's own, those of a seller, and the details of both. Source: INV-1, INV-3, INV-4. */

const PAGE_MAX = 100;
/** Limit of PDF files per account: one worker with a short queue draws those of all accounts. */
const PDFS = {
  key: { requestsPerMinute: 60, requestsAtOnce: 4, tokensPerMinute: null },
  account: null,
  models: new Map<string, never>(),
};
const LINE_LENGTH_MAX = 20_000;

const Page = t.Object({ before: t.Optional(Id), limit: t.Optional(whole(1, PAGE_MAX)) });
const Month = t.Object({
  month: t.String({ pattern: "^(20[2-9]\\d|21\\d\\d)-(0[1-9]|1[0-2])$", says: "a month, as in 2030-01" }),
});
const Line = orNull(t.String({ maxLength: LINE_LENGTH_MAX }));

export function invoicesEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(buyerEndpoints(deps)).use(sellerEndpoints(deps));
}

function buyerEndpoints(deps: Deps) {
  return signedIn(deps)
    .get(
      "/invoices",
      async ({ person: { accountId }, query }) => {
        const { rows, hasMore } = await listInvoices(deps, { ...query, accountId });
        return toJson({ invoices: rows.map(listed), hasMore });
      },
      { query: Page },
    )
    .get(
      "/invoices/:id/pdf",
      async ({ person, params, set }) =>
        pdfOf(deps, { person, set, invoice: await findInvoice(deps, { accountId: person.accountId }, params.id) }),
      { params: IdParam },
    )
    .get("/settings/invoices", async ({ person }) => buyerDetailsOf(deps, person.accountId))
    .put(
      "/settings/invoices",
      async ({ person, body }) => saveBuyerDetails({ ...deps, by: person.by }, person.accountId, body),
      { body: t.Object({ name: Line, address: Line, taxNumber: Line, vatNumber: Line }) },
    );
}

function sellerEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get(
      "/seller/invoices",
      async ({ person, query }) => {
        const { rows, hasMore } = await listInvoices(deps, { ...query, sellerId: sellerOfPerson(person) });
        return toJson({ invoices: rows.map(listed), hasMore });
      },
      { query: Page },
    )
    .get(
      "/seller/invoices.csv",
      async ({ person, query: { month } }) => {
        const filter = { sellerId: sellerOfPerson(person), month, timeZone: deps.config.billingTimeZone };
        const csv = await invoicesCsv(
          (page, signal) => longRead(deps, { person, signal, waitMsMax: FILE_WAIT_MS_MAX }, page),
          filter,
        );
        return csvResponse(csv, `invoices-${month}.csv`);
      },
      { query: Month },
    )
    .get(
      "/seller/invoices/:id/pdf",
      async ({ person, params, set }) =>
        pdfOf(deps, { person, set, invoice: await findInvoice(deps, { sellerId: sellerOfPerson(person) }, params.id) }),
      { params: IdParam },
    )
    .get("/seller/invoice-details", async ({ person }) => sellerDetails(deps, sellerOfPerson(person)))
    .put(
      "/seller/invoice-details",
      async ({ person, body }) => saveSellerDetails({ ...deps, by: person.by }, sellerOfPerson(person), body),
      { body: t.Object({ name: Line, address: Line, taxLine: Line }) },
    );
}

/** An invoice as lists show it. */
function listed(invoice: Invoice) {
  const { invoiceId, number, kind, orderId, buyer, lines, currency, totalNano, issuedAt, accountId } = invoice;
  return {
    ...{ invoiceId, kind, orderId, accountId, currency, totalNano, issuedAt },
    what: lines[0]?.text ?? "",
    /** Lines beside the first. */
    more: Math.max(0, lines.length - 1),
    number: numberText(number),
    title: titleOf(invoice),
    buyer: { name: buyer.name, email: buyer.email },
  };
}

type Drawing = { person: Person; invoice: Invoice; set: { headers: Record<string, string | number> } };

/** The file, with the seller's current brand. Throws too_many_requests, service_unavailable. Source: INV-4. */
async function pdfOf(deps: Deps, { person, invoice, set }: Drawing): Promise<Uint8Array<ArrayBuffer>> {
  const { sellerId } = invoice;
  const brand = await deps.brands.get(sellerId === OPERATOR ? null : sellerId);
  const looks = { brandName: brand.name, logo: brand.logoLight, timeZone: deps.config.billingTimeZone };
  // Limited by the person who signed in, so that an admin who views many accounts counts once.
  const limit = deps.limiter.begin(`pdf:${person.session.accountId}`, undefined, PDFS);
  await limit.enter();
  let file: Uint8Array;
  try {
    file = await deps.pdfs.draw(invoice, looks);
  } finally {
    limit.release(0);
  }
  const name = titleOf(invoice).toLowerCase().replace(" ", "-");
  set.headers["content-type"] = "application/pdf";
  set.headers["content-disposition"] = `attachment; filename="${name}-${numberText(invoice.number)}.pdf"`;
  return new Uint8Array(file);
}
