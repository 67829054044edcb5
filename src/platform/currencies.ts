/**
 * Currencies in which a seller can sell: those of ISO 4217 in use, by the decimals of their smallest unit. In lower case, as Stripe writes
 * them. Pure and without imports, so that the browser can load it. Source: CUR-1.
 */

const BY_DECIMALS: Readonly<Record<number, string>> = {
  0: "bif clp djf gnf isk jpy kmf krw pyg rwf ugx vnd vuv xaf xof xpf",
  2: `aed afn all amd aoa ars aud awg azn bam bbd bdt bmd bnd bob brl bsd btn bwp byn bzd cad cdf chf cny cop crc cup cve czk dkk dop dzd egp
    ern etb eur fjd fkp gbp gel ghs gip gmd gtq gyd hkd hnl htg huf idr ils inr irr jmd kes kgs khr kpw kyd kzt lak lbp lkr lrd lsl mad mdl
    mga mkd mmk mnt mop mru mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd pab pen pgk php pkr pln qar ron rsd rub sar sbd scr sdg sek sgd
    shp sle sos srd ssp stn svc syp szl thb tjs tmt top try ttd twd tzs uah usd uyu uzs ves wst xcd xcg yer zar zmw zwg`,
  3: "bhd iqd jod kwd lyd omr tnd",
};
const DECIMALS = new Map(
  Object.entries(BY_DECIMALS).flatMap(([decimals, codes]) =>
    codes.split(/\s+/).map((code) => [code, Number(decimals)] as const),
  ),
);
const NANO_DECIMALS = 9;
const CENT_NANO = 10_000_000n;

/** All of them, by their codes. */
export const CURRENCIES: readonly string[] = [...DECIMALS.keys()].sort();

/** The decimals of its smallest unit; undefined: it is no currency in use. */
export function decimalsOf(currency: string): number | undefined {
  return DECIMALS.get(currency);
}

/**
 * What people pay in a currency is a multiple of this, in billionths. Stripe takes ariary without decimals although ISO 4217 has two, and
 * of three decimals the last must be 0: so every order can be paid in every way.
 */
export function payableStepNano(currency: string): bigint {
  return DECIMALS.get(currency) === 0 || currency === "mga" ? 100n * CENT_NANO : CENT_NANO;
}

/**
 * Billionths as people read them: "$1,234.50", "¥1,250", "KWD 1.230". All decimals that the currency has, or the amount if it has more.
 * `locale`: of Intl.
 */
export function formatAmount(nano: bigint | string, currency: string, locale = "en-US"): string {
  const amount = BigInt(nano);
  const size = amount < 0n ? -amount : amount;
  const digits = String(size).padStart(NANO_DECIMALS + 1, "0");
  const fraction = digits.slice(-NANO_DECIMALS).replace(/0+$/, "");
  const decimals = Math.max(decimalsOf(currency) ?? 2, fraction.length);
  const parts = new Intl.NumberFormat(locale, {
    style: "currency",
    currency: /^[a-z]{3}$/.test(currency) ? currency : "xxx",
    minimumFractionDigits: decimals,
    maximumFractionDigits: decimals,
  }).formatToParts(BigInt(digits.slice(0, -NANO_DECIMALS)));
  // The whole part as bigint and the decimals as text: no number could hold both.
  const text = parts.map(({ type, value }) => (type === "fraction" ? fraction.padEnd(decimals, "0") : value)).join("");
  return `${amount < 0n ? "−" : ""}${text.replace(/\s/g, " ")}`;
}

/** The amount without the name of its currency: "1234.50". */
export function decimalAmount(nano: bigint, currency = "usd"): string {
  const size = nano < 0n ? -nano : nano;
  const digits = String(size).padStart(NANO_DECIMALS + 1, "0");
  const fraction = digits
    .slice(-NANO_DECIMALS)
    .replace(/0+$/, "")
    .padEnd(decimalsOf(currency) ?? 2, "0");
  return `${nano < 0n ? "-" : ""}${digits.slice(0, -NANO_DECIMALS)}${fraction && `.${fraction}`}`;
}
