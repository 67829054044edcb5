import { eq } from "drizzle-orm";
import { InputError, sentence } from "../errors.ts";
import {
  INVOICE_ADDRESS_CHARS_MAX,
  INVOICE_ADDRESS_LINES_MAX,
  INVOICE_NAME_CHARS_MAX,
  TAX_LINE_CHARS_MAX,
  TAX_NUMBER_CHARS_MAX,
} from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { buyerDetails } from "../platform/schema_invoices.ts";
import { sellers } from "../platform/schema_sellers.ts";
import { unprintable } from "./pdf_fonts.ts";
import { sellerIdOf } from "./sellers_store.ts";
import { settingsIn } from "./selling_terms_store.ts";
import { checkVatNumber } from "./vat_numbers.ts";

/** What invoices say about a seller and a buyer. Changes concern later invoices only. Source: INV-3. */

/** null: not entered. The name and the address make a receipt an invoice. */
export type SellerDetails = { name: string | null; address: string | null; taxLine: string | null };
/** null: not entered. Without a name, invoices have the account's name. */
export type BuyerDetails = {
  name: string | null;
  address: string | null;
  taxNumber: string | null;
  /** Of the EU; with it, a seller of another country charges no tax. */
  vatNumber: string | null;
};

export async function sellerDetails({ db }: { db: Db }, sellerId: number): Promise<SellerDetails> {
  const [row] = await db.orm
    .select({ name: sellers.invoiceName, address: sellers.invoiceAddress, taxLine: sellers.taxLine })
    .from(sellers)
    .where(eq(sellers.sellerId, sellerId));
  return row ?? { name: null, address: null, taxLine: null };
}

/** Saves the seller details of later invoices. Throws InputError. */
export async function saveSellerDetails(
  deps: ChangeDeps,
  sellerId: number,
  typed: SellerDetails,
): Promise<SellerDetails> {
  const details = {
    name: checkLine(typed.name, { param: "name", charsMax: INVOICE_NAME_CHARS_MAX }),
    address: checkAddress(typed.address),
    taxLine: checkLine(typed.taxLine, { param: "taxLine", charsMax: TAX_LINE_CHARS_MAX }),
  };
  const { name: invoiceName, address: invoiceAddress, taxLine } = details;
  await changing(deps, async (tx) => {
    await tx.insert(sellers).values({ sellerId }).onConflictDoNothing();
    await tx.update(sellers).set({ invoiceName, invoiceAddress, taxLine }).where(eq(sellers.sellerId, sellerId));
  });
  return details;
}

export async function buyerDetailsOf({ db }: { db: Db }, accountId: number): Promise<BuyerDetails> {
  const [row] = await db.orm
    .select({
      name: buyerDetails.name,
      address: buyerDetails.address,
      taxNumber: buyerDetails.taxNumber,
      vatNumber: buyerDetails.vatNumber,
    })
    .from(buyerDetails)
    .where(eq(buyerDetails.accountId, accountId));
  return row ?? { name: null, address: null, taxNumber: null, vatNumber: null };
}

/** Saves an account's buyer details for later invoices. Throws InputError. */
export async function saveBuyerDetails(
  deps: ChangeDeps,
  accountId: number,
  typed: BuyerDetails,
): Promise<BuyerDetails> {
  const details = {
    name: checkLine(typed.name, { param: "name", charsMax: INVOICE_NAME_CHARS_MAX }),
    address: checkAddress(typed.address),
    taxNumber: checkLine(typed.taxNumber, { param: "taxNumber", charsMax: TAX_NUMBER_CHARS_MAX }),
    vatNumber: await checkVatNumber(typed.vatNumber),
  };
  await changing(deps, async (tx) => {
    await requireOther(tx, accountId, details.vatNumber);
    await tx
      .insert(buyerDetails)
      .values({ accountId, ...details })
      .onConflictDoUpdate({ target: buyerDetails.accountId, set: details });
  });
  return details;
}

/** A seller's own number would make every invoice to itself one without tax. Throws InputError. */
async function requireOther(tx: Tx, accountId: number, vatNumber: string | null): Promise<void> {
  const [account] = await tx
    .select({ role: accounts.role, resellerId: accounts.resellerId })
    .from(accounts)
    .where(eq(accounts.id, accountId));
  if (!account || vatNumber === null) return;
  const seller = await settingsIn(tx, sellerIdOf(account));
  if (seller.vatNumber === vatNumber) throw new InputError("This is the VAT number of the seller.", "vatNumber");
}

type Field = { param: string; charsMax: number };

/** Empty text becomes null. */
function checkLine(typed: string | null, { param, charsMax }: Field): string | null {
  const text = typed?.normalize("NFC").trim() ?? "";
  if ([...text].length > charsMax)
    throw new InputError(
      sentence("The field {param} may have at most {charsMax} characters.", { param, charsMax }),
      param,
    );
  if (/[\p{Cc}\u2028\u2029]/u.test(text))
    throw new InputError(sentence("The field {param} must be plain text on one line.", { param }), param);
  checkPrintable(text, param);
  return text === "" ? null : text;
}

function checkAddress(typed: string | null): string | null {
  const text = (typed ?? "")
    .normalize("NFC")
    .replaceAll("\r\n", "\n")
    .split("\n")
    .map((line) => line.trimEnd())
    .join("\n")
    .trim();
  const param = "address";
  if ([...text].length > INVOICE_ADDRESS_CHARS_MAX)
    throw new InputError(
      sentence("The address may have at most {invoiceAddressCharsMax} characters.", {
        invoiceAddressCharsMax: INVOICE_ADDRESS_CHARS_MAX,
      }),
      param,
    );
  if (text.split("\n").length > INVOICE_ADDRESS_LINES_MAX)
    throw new InputError(
      sentence("The address may have at most {invoiceAddressLinesMax} lines.", {
        invoiceAddressLinesMax: INVOICE_ADDRESS_LINES_MAX,
      }),
      param,
    );
  if (/[^\P{Cc}\n]|[\u2028\u2029]/u.test(text)) throw new InputError("The address must be plain text.", param);
  checkPrintable(text, param);
  return text === "" ? null : text;
}

/** Characters that the PDF's font lacks would be missing in the invoice. */
function checkPrintable(text: string, param: string): void {
  const [first] = unprintable(text);
  if (first === undefined) return;
  const point = (first.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
  throw new InputError(
    sentence(
      "The field {param} contains U+{point}, which invoices cannot print. Use Latin, Greek, Cyrillic, Arabic or Chinese letters.",
      { param, point },
    ),
    param,
  );
}
