import { describe, expect, test } from "bun:test";
import { renderToStaticMarkup } from "react-dom/server";
import { refusalText } from "../../src/panel/web/failures.ts";
import {
  formatApart,
  formatCompact,
  formatDay,
  formatDuration,
  formatMoney,
  formatPrice,
  formatRelative,
  formatShare,
  formatUsd,
  lastMonths,
  parseUsd,
  toUsdInput,
  wrongUsd,
} from "../../src/panel/web/format.ts";
import { checkPrice, checkUsd, readCount, wrongAmount } from "../../src/panel/web/shared/typed_numbers.ts";
import { dayLabels } from "../../src/panel/web/ui/chart_plot.tsx";
import { MarkdownTokens } from "../../src/panel/web/ui/markdown_tokens.tsx";

/** How the panel formats money, time and refusals, and renders Markdown. */

const NOW = Date.parse("2026-11-21T17:48:00Z");
const MINUTE_MS = 60_000;

test("the dates below a chart never run together, and the last day has one", () => {
  /** "30 Nov" in the chart's font, in pixels. */
  const dateWidth = 44;
  for (const count of [1, 7, 14, 30, 31, 90])
    for (let width = 260; width <= 1200; width += 7) {
      const step = (width - 44) / count;
      const labels = dayLabels(count, width, { step, x: (day) => 44 + step * day });
      expect(labels.at(-1)?.day).toBe(count - 1);
      const gaps = labels.slice(1).map(({ middle }, at) => middle - (labels[at]?.middle ?? 0));
      expect({ count, width, least: Math.min(...gaps) > dateWidth }).toEqual({ count, width, least: true });
      expect((labels.at(-1)?.middle ?? 0) + dateWidth / 2).toBeLessThanOrEqual(width);
      // All are equally many days apart.
      const days = labels.map(({ day }) => day);
      expect(new Set(days.slice(1).map((day, at) => day - (days[at] ?? 0))).size).toBeLessThanOrEqual(1);
    }
});

describe("money", () => {
  test("an amount from $1 has two decimals, and is exact beyond the precision of a double", () => {
    expect(formatMoney("12400000000")).toBe("$12.40");
    expect(formatMoney("1000000000")).toBe("$1.00");
    expect(formatMoney("9000000000123456789")).toBe("$9,000,000,000.12");
  });

  test("an amount below $1 has two to six decimals", () => {
    expect(formatMoney("12400000")).toBe("$0.0124");
    expect(formatMoney("400000000")).toBe("$0.40");
    expect(formatMoney("7654321")).toBe("$0.007654");
    expect(formatMoney("30000")).toBe("$0.00003");
  });

  test('an amount above zero is never "$0.00"', () => {
    expect(formatMoney("1")).toBe("<$0.000001");
    expect(formatMoney("-1")).toBe("\u2212<$0.000001");
    expect(formatMoney("0")).toBe("$0.00");
  });

  test("an amount that rounds up to a dollar is shown as $1.00", () => {
    expect(formatMoney("999999499")).toBe("$0.999999");
    expect(formatMoney("999999999")).toBe("$1.00");
  });

  test("a sign is shown on request, and always before negative amounts", () => {
    expect(formatMoney("5000000000", { sign: true })).toBe("+$5.00");
    expect(formatMoney("-400000000")).toBe("\u2212$0.40");
    expect(formatUsd(0.4)).toBe("$0.40");
    expect(formatPrice(3_000_000)).toBe("$3.00/M");
  });

  test("a typed amount is parsed exactly; other text is not an amount", () => {
    const amounts = [
      "1",
      "12400000",
      "1000000000",
      "123456789012345678",
      "-3000000000",
      "0",
      "1225000000",
      "-999001000000",
    ];
    for (const nano of amounts) {
      expect(parseUsd(toUsdInput(nano))).toBe(nano);
    }
    expect(parseUsd("$1,200.50")).toBe("1200500000000");
    for (const typed of ["", "abc", "1,2", "1.0000000001", "--1", "1e3", "."]) expect(parseUsd(typed)).toBeNull();
  });

  test("an amount that can be read in two ways is refused, with both ways to write it", () => {
    for (const [typed, sentence] of [
      ["1.250", "1.250 can be read in two ways: write 1250 or 1.25."],
      ["1,250", "1,250 can be read in two ways: write 1250 or 1.25."],
      ["$12.500", "$12.500 can be read in two ways: write 12500 or 12.5."],
      ["-3.000", "-3.000 can be read in two ways: write -3000 or -3.00."],
      ["1.225", "1.225 can be read in two ways: write 1225 or 1.2250."],
    ] as const) {
      expect([typed, parseUsd(typed), wrongUsd(typed)]).toEqual([typed, null, sentence]);
      for (const [way] of [...sentence.matchAll(/-?[\d.]+(?= or|\.$)/g)])
        expect([way, wrongUsd(way)]).toEqual([way, null]);
    }
    for (const [typed, nano] of [
      ["0.125", "125000000"],
      ["1.2500", "1250000000"],
      ["1250.000", "1250000000000"],
      ["1,250.00", "1250000000000"],
      ["1,250,000", "1250000000000000"],
      ["\u22125", "-5000000000"],
    ] as const)
      expect([typed, parseUsd(typed)]).toEqual([typed, nano]);
    for (const typed of ["1.250,50", "12,50", "1,25", "1 250", "1'250", "0,125", "1250,000", "1.250.000", "01,250,0"])
      expect([typed, wrongUsd(typed)]).toEqual([typed, "An amount in US dollars, as in 20 or 12.50."]);
  });

  test("every amount field refuses such an amount", () => {
    const asked = "1.250 can be read in two ways: write 1250 or 1.25.";
    expect(checkUsd("1.250", { maxUsd: 9_000_000, decimals: 9 })).toBe(asked);
    expect(checkUsd("1.250", { maxUsd: 1_000, decimals: 6, optional: true })).toBe(asked);
    expect(wrongAmount("1.250")).toBe(asked);
    expect(wrongAmount("-1.250", { mayTake: true })).toContain("write -1250 or -1.25");
    expect(readCount("15,000")).toBe(15_000);
    expect(checkPrice("1.250")).toBe(asked);
    for (const typed of ["1,5", "1.500", "15,00", ",5"]) expect(readCount(typed)).toBeNaN();
  });

  test("two amounts that differ never look alike", () => {
    for (const [one, other, shown] of [
      ["2000000000", "1000000000", ["$2.00", "$1.00"]],
      ["2000000000", "2000000000", ["$2.00", "$2.00"]],
      ["2000000000", "1999000000", ["$2.00", "$1.9990"]],
      ["1250500000000", "1250499999999", ["$1,250.50", "$1,250.499999999"]],
      ["200", "300", ["$0.0000002", "$0.0000003"]],
    ] as const)
      expect([formatApart(one, other), one]).toEqual([[...shown], one]);
  });

  test("an amount is at most nine million dollars; one that people pay is in whole cents", () => {
    for (const typed of ["9000000.01", "10000000"]) {
      expect(wrongAmount(typed)).toBe("At most $9,000,000.");
      expect(wrongAmount(`-${typed}`, { mayTake: true })).toBe("At most $9,000,000.");
      expect(checkPrice(typed)).toBe("From $0.01 to $9,000,000.");
    }
    for (const typed of ["20.0050", "0.001"]) {
      expect(checkPrice(typed)).toBe("Whole cents.");
      expect(wrongAmount(typed)).toBeNull();
    }
    // A limit in dollars says nothing of yen.
    for (const typed of ["9000001", "12000000"]) {
      expect(wrongAmount(typed, { currency: "jpy" })).toBeNull();
      expect(checkPrice(typed, "jpy")).toBeNull();
    }
    expect(wrongAmount("x", { currency: "jpy" })).toBe("An amount in JPY, as in 20 or 12.50.");
    for (const typed of ["9000000", "0.01"]) expect([wrongAmount(typed), checkPrice(typed)]).toEqual([null, null]);
  });
});

describe("time", () => {
  test("a duration is shown in its two largest units", () => {
    expect(formatDuration(312 * MINUTE_MS)).toBe("5 h 12 min");
    expect(formatDuration(59_001)).toBe("1 min");
    expect(formatDuration(40_000)).toBe("40 s");
    expect(formatDuration(3_599_001)).toBe("1 h");
    expect(formatDuration(23 * 24 * 60 * MINUTE_MS)).toBe("23 days");
    expect(formatDuration(25 * 60 * MINUTE_MS)).toBe("1 day 1 h");
    expect(formatDuration(-1)).toBe("0 s");
  });

  test("relative times", () => {
    expect(formatRelative("2026-11-21T17:46:00Z", NOW)).toBe("2 min ago");
    expect(formatRelative("2026-12-14T17:48:00Z", NOW)).toBe("in 23 days");
    expect(formatRelative("2026-11-21T17:48:10Z", NOW)).toBe("just now");
  });

  test("a day is in the package's time zone, not the viewer's", () => {
    expect(formatDay("2026-12-13T23:30:00Z", "Europe/Berlin", NOW)).toBe("14 Dec");
    expect(formatDay("2026-12-13T23:30:00Z", "UTC", NOW)).toBe("13 Dec");
    expect(formatDay("2027-01-01T00:00:00Z", "UTC", NOW)).toBe("1 Jan 2027");
  });

  test("the last months are those of a time zone", () => {
    const at = Date.parse("2026-12-31T23:30:00Z");
    expect(lastMonths(3, "America/Los_Angeles", at)).toEqual(["2026-12", "2026-11", "2026-10"]);
    expect(lastMonths(14, "Europe/Berlin", at).slice(0, 2)).toEqual(["2027-01", "2026-12"]);
    expect(lastMonths(14, "Europe/Berlin", at).at(-1)).toBe("2025-12");
  });

  test("a share is shown as 100% or 0% only if it is exactly that", () => {
    expect([0, 0.001, 0.8, 0.999, 1].map(formatShare)).toEqual(["0%", "1%", "80%", "99%", "100%"]);
    expect([950, 9_210, 1_500_000].map(formatCompact)).toEqual(["950", "9.2k", "1.5M"]);
  });
});

describe("the text of a refusal", () => {
  const facts = { now: NOW, zone: "Europe/Berlin", packageName: "Starter", model: "model-a", brand: "Acme" };

  test("daily_quota_exceeded: how many, and when there are more, in the package's time zone first", () => {
    const text = refusalText({ ...facts, code: "daily_quota_exceeded", limit: 500, resetsAt: "2026-11-21T23:00:00Z" });
    expect(text).toStartWith("Today's 500 requests are used. 500 more in 5 h 12 min, at 00:00 Berlin");
  });

  test("carryover_quota_exceeded: one day's quota is next, not all that was carried over", () => {
    const carryover = { ...facts, code: "carryover_quota_exceeded", limit: 2600, resetsAt: "2026-11-21T23:00:00Z" };
    const start = "All the requests that you had saved up are used.";
    expect(refusalText({ ...carryover, dailyLimit: 200 })).toStartWith(
      `${start} 200 more in 5 h 12 min, at 00:00 Berlin`,
    );
    expect(refusalText(carryover)).toStartWith(`${start} More in 5 h 12 min, at 00:00 Berlin`);
  });

  test("package_quota_exceeded: requests, or tokens where those are used up", () => {
    const used = { ...facts, code: "package_quota_exceeded", limit: 15_000 };
    expect(refusalText(used)).toStartWith("All 15,000 requests of Starter are used.");
    expect(refusalText({ ...used, unit: "token" })).toStartWith("All 15,000 tokens of Starter are used.");
  });

  test("on the last day no more requests are announced", () => {
    const text = refusalText({ ...facts, code: "carryover_quota_exceeded", limit: 500, resetsAt: null });
    expect(text).toBe("All the requests that you had saved up are used. No more days are left in this package.");
  });

  test("package_expired: when it ended, and that keys stay", () => {
    expect(refusalText({ ...facts, code: "package_expired", packageEndedAt: "2026-11-19T23:00:00Z" })).toBe(
      "Starter ended on 20 Nov. Your keys are kept and work again with a new package from Acme.",
    );
  });

  test("insufficient_balance: the possible cost and the available amount, or the server's message", () => {
    expect(refusalText({ ...facts, code: "insufficient_balance", limit: 0.4, remaining: 0.12 })).toBe(
      "This could cost up to $0.40; $0.12 is available. Lower max tokens or top up the balance.",
    );
    expect(refusalText({ ...facts, code: "insufficient_balance", limit: 2, remaining: 1.999 })).toStartWith(
      "This could cost up to $2.00; $1.9990 is available.",
    );
    expect(refusalText({ ...facts, code: "insufficient_balance", message: "Top up first." })).toBe("Top up first.");
  });

  test("key_spend_limit_exceeded: the rest of the key's limit", () => {
    const refused = { ...facts, code: "key_spend_limit_exceeded", limit: 5 };
    expect(refusalText({ ...refused, used: 0, remaining: 5 })).toStartWith(
      "This could cost more than the $5.00 that this key may still spend.",
    );
    expect(refusalText({ ...refused, used: 5, remaining: 0 })).toStartWith(
      "This key has reached its spending limit of $5.00.",
    );
    expect(refusalText(refused)).toStartWith("This key may spend no more than its limit of $5.00.");
  });

  test("model_not_in_package: which models can be used instead", () => {
    const text = refusalText({ ...facts, code: "model_not_in_package", alternatives: ["b", "c"] });
    expect(text).toBe("model-a is not in Starter. You can use b or c.");
  });

  test("an unknown code: the server's message", () => {
    expect(refusalText({ ...facts, code: "new_code", message: "Said by the server." })).toBe("Said by the server.");
  });
});

describe("Markdown in a response", () => {
  const draw = (text: string) => renderToStaticMarkup(<MarkdownTokens text={text} />);

  test("HTML stays text", () => {
    const html = draw('a <b onclick="x()">b</b>\n\n<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>');
    expect(html).not.toMatch(/<(?:script|img|b)\b/);
    expect(html).toContain("&lt;script&gt;alert(1)&lt;/script&gt;");
  });

  test("links are http, https or mailto, with noreferrer; others become text", () => {
    expect(draw("[a](https://example.com)")).toContain(
      'href="https://example.com" target="_blank" rel="noreferrer nofollow"',
    );
    expect(draw("[a](mailto:a@example.com)")).toContain('href="mailto:a@example.com"');
    for (const href of [
      "javascript:alert(1)",
      "JaVaScRiPt:alert(1)",
      "data:text/html,x",
      "//example.com",
      "vbscript:x",
      "/local",
    ]) {
      expect(draw(`[words](${href})`)).toBe('<div class="prose"><p>words</p></div>');
    }
  });

  test("an image becomes a link and is not fetched", () => {
    const html = draw("![cat](https://example.com/cat.png)");
    expect(html).not.toContain("<img");
    expect(html).toContain('href="https://example.com/cat.png"');
  });

  test("code, lists, tables and character references are rendered as written", () => {
    expect(draw("```ts\nconst a = 1 < 2;\n```")).toContain("<code>const a = 1 &lt; 2;</code>");
    expect(draw("AT&amp;T &lt; `a &amp; b`")).toContain("AT&amp;T &lt; <code>a &amp;amp; b</code>");
    expect(draw("3. c\n4. d")).toContain('<ol start="3"><li>c</li><li>d</li></ol>');
    expect(draw("- [x] done")).toContain('type="checkbox"');
    expect(draw("|a|\n|-:|\n|1|")).toContain('<td style="text-align:right">1</td>');
  });

  test("deep nesting does not break the page", () => {
    expect(draw(`${"> ".repeat(500)}deep`)).toContain("deep");
    expect(draw("*a ".repeat(2_000))).toContain("*a");
  });
});
