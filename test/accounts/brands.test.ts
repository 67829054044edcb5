import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { crc32, deflateSync } from "node:zlib";
import sharp, { type Sharp } from "sharp";
import { accentCss } from "../../src/accounts/accent.ts";
import { openBrandLookup } from "../../src/accounts/brand_lookup.ts";
import {
  type BrandSpec,
  loadBrand,
  type PicturePlace,
  saveBrand,
  savePicture,
} from "../../src/accounts/brands_store.ts";
import { InputError } from "../../src/errors.ts";
import { changing } from "../../src/platform/changes_store.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

/** Source: DOM-8, PAN-7. */

const KB = 1024;

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(() => world.close());

const SPEC: BrandSpec = { name: "Acme AI", accent: "#e11d48", support: "help@acme.example" };

async function addReseller(): Promise<number> {
  return (await world.addReseller()).accountId;
}

function put(resellerId: number, place: PicturePlace, image: Uint8Array | null) {
  return savePicture(world.deps, { resellerId, place, image });
}

/** A plain picture. */
function drawn(width: number, height: number, background = "#0a7d5c"): Sharp {
  return sharp({ create: { width, height, channels: 4, background } });
}

/** One chunk of a PNG file, with a correct checksum. */
function chunk(type: string, data: Uint8Array): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt32BE(data.length);
  head.write(type, 4, "latin1");
  const end = Buffer.alloc(4);
  end.writeUInt32BE(crc32(Buffer.concat([head.subarray(4), data])));
  return Buffer.concat([head, data, end]);
}

/** A handmade PNG file: its header declares `width` × `height`, the other chunks are as given. */
function pngOf(width: number, height: number, ...chunks: Buffer[]): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 6], 8); // Eight bits, RGBA.
  const magic = Buffer.from("89504e470d0a1a0a", "hex");
  return Buffer.concat([magic, chunk("IHDR", header), ...chunks, chunk("IEND", new Uint8Array())]);
}

function pixels(width: number, height: number): Buffer {
  return chunk("IDAT", deflateSync(Buffer.alloc((width * 4 + 1) * height)));
}

describe("name, colour, support", () => {
  test("a reseller without a brand shows its account's name only; other accounts have no brand", async () => {
    const resellerId = await addReseller();
    const customer = await world.addCustomer(resellerId);
    const [row] = await world.sql`select name from accounts where id = ${resellerId}`;
    expect(await loadBrand(world.deps, resellerId)).toEqual({
      resellerId,
      name: String(row?.name),
      accent: null,
      css: "",
      support: null,
      language: null,
      logoLight: null,
      logoDark: null,
      icon: null,
      version: "none",
    });
    for (const id of [customer.accountId, 999_999, 0, -1, 1.5]) {
      expect(await loadBrand(world.deps, id)).toBeUndefined();
      await expect(saveBrand(world.deps, { resellerId: id, ...SPEC })).rejects.toThrow("no such reseller");
    }
    expect(await world.sql`select 1 from brands`).toHaveLength(0);
  });

  test("a brand is loaded as it was saved; its CSS is made from the accent; other resellers' brands do not change", async () => {
    const [one, two] = [await addReseller(), await addReseller()];
    await saveBrand(world.deps, { resellerId: two, ...SPEC, name: "Other" });
    const before = await loadBrand(world.deps, two);
    const saved = await saveBrand(world.deps, { resellerId: one, ...SPEC, name: "  Acme AI ", accent: "#E11D48" });
    expect(saved).toMatchObject({ resellerId: one, ...SPEC, css: accentCss("#e11d48").css });
    expect(await loadBrand(world.deps, one)).toEqual(saved);
    await put(one, "logoLight", await drawn(40, 40).png().toBuffer());
    expect(await loadBrand(world.deps, two)).toEqual(before);
    expect(await saveBrand(world.deps, { resellerId: one, ...SPEC, accent: null })).toMatchObject({
      accent: null,
      css: "",
    });
  });

  test("script text, quotes and other alphabets in a name are shown as text", async () => {
    const resellerId = await addReseller();
    for (const name of [
      `<script>alert("1")</script>`,
      "'; drop table brands; --",
      "Zażółć 東京 🚀",
      "x".repeat(60),
      "🚀".repeat(60),
    ]) {
      expect((await saveBrand(world.deps, { resellerId, ...SPEC, name })).name).toBe(name);
    }
  });

  test("the version changes with anything that is shown, and with nothing else", async () => {
    const resellerId = await addReseller();
    const seen: string[] = [];
    const note = ({ version }: { version: string }) => seen.push(version);
    note(await saveBrand(world.deps, { resellerId, ...SPEC }));
    note(await saveBrand(world.deps, { resellerId, ...SPEC, name: "Acme" }));
    note(await saveBrand(world.deps, { resellerId, ...SPEC, accent: "#0a7d5c" }));
    note(await saveBrand(world.deps, { resellerId, ...SPEC, support: null }));
    note(await put(resellerId, "logoLight", await drawn(40, 40).png().toBuffer()));
    note(await put(resellerId, "logoDark", await drawn(40, 40).png().toBuffer()));
    note(await put(resellerId, "icon", await drawn(64, 64, "#123456").png().toBuffer()));
    expect(new Set(seen).size).toBe(seen.length);
    for (const version of seen) expect(version).toMatch(/^[\w-]{16}$/);
    expect((await saveBrand(world.deps, { resellerId, ...SPEC, support: null })).version).toBe(seen[6] ?? "");
  });

  const wrong: [param: string, spec: Partial<BrandSpec>][] = [
    ["name", { name: "" }],
    ["name", { name: "   " }],
    ["name", { name: "x".repeat(61) }],
    ["name", { name: "a\nb" }],
    ["name", { name: "a\0b" }],
    ["name", { name: "\ud800" }],
    ["accent", { accent: "" }],
    ["accent", { accent: "red" }],
    ["accent", { accent: "#12345" }],
    ["accent", { accent: "#fff;}*{display:none" }],
    ["support", { support: "" }],
    ["support", { support: "help" }],
    ["support", { support: "http://acme.example/help" }],
    ["support", { support: "javascript:alert(1)" }],
    ["support", { support: "https://" }],
    ["support", { support: "https://bank.example@evil.example/" }],
    ["support", { support: "a@b\0" }],
    ["support", { support: `https://acme.example/${"x".repeat(300)}` }],
  ];
  test.each(wrong)("422 %s: %p", async (param, spec) => {
    const resellerId = await addReseller();
    const failed = await saveBrand(world.deps, { resellerId, ...SPEC, ...spec }).catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(InputError);
    expect(failed).toMatchObject({ param });
    expect((await loadBrand(world.deps, resellerId))?.version).toBe("none");
  });

  test("a support page's URL is kept, an e-mail address is stored in lower case", async () => {
    const resellerId = await addReseller();
    const support = async (value: string) =>
      (await saveBrand(world.deps, { resellerId, ...SPEC, support: value })).support;
    expect(await support(" https://acme.example/help?a=1 ")).toBe("https://acme.example/help?a=1");
    expect(await support("Help@Acme.example")).toBe("help@acme.example");
  });

  test("concurrent changes of name and logo are both kept", async () => {
    const resellerId = await addReseller();
    const logo = await drawn(40, 40).png().toBuffer();
    await Promise.all([
      saveBrand(world.deps, { resellerId, ...SPEC }),
      put(resellerId, "logoLight", logo),
      put(resellerId, "logoDark", logo),
    ]);
    const brand = await loadBrand(world.deps, resellerId);
    expect(brand).toMatchObject(SPEC);
    expect([brand?.logoLight, brand?.logoDark, brand?.icon].every((bytes) => (bytes?.length ?? 0) > 0)).toBe(true);
  });

  test("the audit log names who changed what; of pictures it says only that they changed", async () => {
    const resellerId = await addReseller();
    const deps = { ...world.deps, by: { accountId: resellerId, requestId: "0198c5f0-0000-7000-8000-000000000001" } };
    await saveBrand(deps, { resellerId, ...SPEC });
    await savePicture(deps, { resellerId, place: "logoLight", image: await drawn(40, 40).png().toBuffer() });
    const rows = await world.sql`
      select actor_id::int as actor, action, account_id::int as account, before, after from audit_entries
      where subject = 'brands' and subject_id = ${String(resellerId)} order by id`;
    expect([...rows]).toEqual([
      { actor: resellerId, action: "added", account: resellerId, before: null, after: expect.objectContaining(SPEC) },
      {
        actor: resellerId,
        action: "changed",
        account: resellerId,
        before: null,
        after: { logo_light: "(hidden)", icon: "(hidden)" },
      },
    ]);
  });
});

describe("pictures", () => {
  test("a logo becomes WebP of at most 480 × 120, never enlarged, with its proportions", async () => {
    const resellerId = await addReseller();
    const cases: [from: [number, number], to: [number, number]][] = [
      [
        [2048, 2048],
        [120, 120],
      ],
      [
        [2000, 100],
        [480, 24],
      ],
      [
        [100, 40],
        [100, 40],
      ],
      [
        [1, 1],
        [1, 1],
      ],
    ];
    for (const [[width, height], [toWidth, toHeight]] of cases) {
      for (const image of [await drawn(width, height).png().toBuffer(), await drawn(width, height).webp().toBuffer()]) {
        const { logoLight } = await put(resellerId, "logoLight", image);
        expect(await sharp(logoLight ?? undefined).metadata()).toMatchObject({
          format: "webp",
          width: toWidth,
          height: toHeight,
        });
      }
    }
  });

  test("transparency is kept; grey, palette and 16-bit pictures are accepted", async () => {
    const resellerId = await addReseller();
    const half = await drawn(20, 20, "#ff000080").png().toBuffer();
    const { logoDark } = await put(resellerId, "logoDark", half);
    const { data } = await sharp(logoDark ?? undefined)
      .raw()
      .toBuffer({ resolveWithObject: true });
    expect([...data.subarray(0, 4)]).toEqual([255, 0, 0, 128]);
    for (const image of [
      await sharp(half).flatten().greyscale().png().toBuffer(),
      await sharp(half).png({ palette: true }).toBuffer(),
      await sharp(half).toColourspace("rgb16").png().toBuffer(),
    ]) {
      expect((await put(resellerId, "logoDark", image)).logoDark?.length).toBeGreaterThan(0);
    }
  });

  test("metadata is removed (EXIF with a place, XMP, colour profile, text), after the EXIF rotation is applied", async () => {
    const resellerId = await addReseller();
    const described = (picture: Sharp) =>
      picture
        .withIccProfile("p3")
        .withXmp("<x:xmpmeta xmlns:x='adobe:ns:meta/'>Jane Secret</x:xmpmeta>")
        .withExif({ IFD0: { Artist: "Jane Secret" }, IFD3: { GPSLatitude: "52/1 31/1 0/1" } })
        .withMetadata({ orientation: 6 });
    for (const image of [
      await described(drawn(40, 20).png()).toBuffer(),
      await described(drawn(40, 20).webp()).toBuffer(),
    ]) {
      expect(image.toString("latin1")).toContain("Jane Secret");
      for (const place of ["logoLight", "icon"] as const) {
        const bytes = Buffer.from((await put(resellerId, place, image))[place] ?? []);
        expect(bytes.toString("latin1")).not.toContain("Jane Secret");
        const { exif, xmp, icc, orientation, width, height } = await sharp(bytes).metadata();
        expect({ exif, xmp, icc, orientation }).toEqual({
          exif: undefined,
          xmp: undefined,
          icc: undefined,
          orientation: undefined,
        });
        expect({ width, height }).toEqual(place === "icon" ? { width: 64, height: 64 } : { width: 20, height: 40 });
      }
    }
  });

  test("a picture that is also a page, archive or script is only a picture afterwards", async () => {
    const resellerId = await addReseller();
    const image = await drawn(40, 40).png().toBuffer();
    const evil = "<html><script>alert(document.cookie)</script></html>";
    for (const polyglot of [
      Buffer.concat([image, Buffer.from(evil)]),
      Buffer.concat([image, Buffer.from("PK\x03\x04"), Buffer.from(evil)]),
      pngOf(10, 10, chunk("tEXt", Buffer.from(`Comment\0${evil}`)), chunk("prVt", Buffer.from(evil)), pixels(10, 10)),
    ]) {
      const { logoLight } = await put(resellerId, "logoLight", polyglot);
      const bytes = Buffer.from(logoLight ?? []);
      expect(bytes.toString("latin1", 8, 12)).toBe("WEBP");
      expect(bytes.toString("latin1")).not.toContain("script");
      expect(bytes.readUInt32LE(4) + 8).toBe(bytes.length);
    }
  });

  test("an upload of 256 KB is accepted; a decompression bomb is not unpacked", async () => {
    const resellerId = await addReseller();
    const far = deflateSync(Buffer.alloc(150_000_000), { level: 9 });
    for (const image of [
      pngOf(10, 10, chunk("zTXt", Buffer.concat([Buffer.from("Comment\0\0"), far])), pixels(10, 10)),
      pngOf(10, 10, chunk("iCCP", Buffer.concat([Buffer.from("profile\0\0"), far])), pixels(10, 10)),
      pngOf(10, 10, chunk("IDAT", far)),
      pngOf(10, 10, pixels(10, 10), chunk("prVt", Buffer.alloc(256 * KB - 57 - 12 - pixels(10, 10).length))),
    ]) {
      expect(image.length).toBeLessThanOrEqual(256 * KB);
      const { logoLight } = await put(resellerId, "logoLight", image);
      expect(logoLight?.length).toBeLessThan(1000);
    }
  });

  const cut = (bytes: Buffer, missing: number) => bytes.subarray(0, bytes.length - missing);
  const frames = (count: number) =>
    Promise.all(
      Array.from({ length: count }, (_, i) =>
        drawn(20, 20, i % 2 ? "#ff0000" : "#00ff00")
          .png()
          .toBuffer(),
      ),
    );
  const hostile: [what: string, message: string, image: () => Promise<Uint8Array> | Uint8Array][] = [
    ["a header of 30,000 × 30,000", "2048 × 2048", () => pngOf(30_000, 30_000, pixels(10, 10))],
    ["a header of 2³¹ − 1 pixels a side", "damaged", () => pngOf(2 ** 31 - 1, 2 ** 31 - 1, pixels(10, 10))],
    ["2049 pixels wide, few in total", "2048 × 2048", () => pngOf(2049, 1, pixels(2049, 1))],
    ["2049 pixels high, few in total", "2048 × 2048", () => pngOf(1, 2049, pixels(1, 2049))],
    ["WebP of 4,000 × 3,000", "2048 × 2048", () => drawn(4000, 3000).webp({ lossless: true, effort: 0 }).toBuffer()],
    ["more than 256 KB", "256 KB", () => pngOf(10, 10, pixels(10, 10), chunk("prVt", Buffer.alloc(256 * KB)))],
    ["no pixels", "damaged", () => pngOf(0, 0, pixels(1, 1))],
    ["PNG without its end", "end is missing", async () => cut(await drawn(40, 40).png().toBuffer(), 12)],
    ["PNG without its last byte", "end is missing", async () => cut(await drawn(40, 40).png().toBuffer(), 1)],
    ["PNG cut in its pixels", "end is missing", async () => cut(await drawn(40, 40).png().toBuffer(), 40)],
    [
      "PNG whose chunk is longer than the file",
      "end is missing",
      () => Buffer.concat([pngOf(10, 10).subarray(0, 33), Buffer.from("fffffff049444154", "hex")]),
    ],
    ["PNG with too few pixels", "damaged", () => pngOf(100, 100, pixels(10, 10))],
    ["PNG without pixels", "damaged", () => pngOf(10, 10)],
    [
      "PNG with a wrong checksum",
      "damaged",
      async () => (await drawn(40, 40).png().toBuffer()).with(-14, 1).with(-15, 7),
    ],
    ["WebP without its last bytes", "damaged", async () => cut(await drawn(40, 40).webp().toBuffer(), 2)],
    ["WebP cut in half", "damaged", async () => cut(await drawn(400, 100).webp().toBuffer(), 100)],
    ["WebP of only a head", "damaged", () => Buffer.from("RIFF\x04\0\0\0WEBP", "latin1")],
    ["PNG of only a head", "end is missing", () => Buffer.from("89504e470d0a1a0a", "hex")],
    [
      "animated WebP",
      "animated",
      async () =>
        await sharp(await frames(3), { join: { animated: true } })
          .webp()
          .toBuffer(),
    ],
    ["animated PNG", "animated", () => pngOf(10, 10, chunk("acTL", Buffer.alloc(8)), pixels(10, 10))],
    ["GIF", "PNG or WebP", async () => await drawn(20, 20).gif().toBuffer()],
    ["JPEG", "PNG or WebP", async () => await drawn(20, 20).jpeg().toBuffer()],
    ["TIFF", "PNG or WebP", async () => await drawn(20, 20).tiff().toBuffer()],
    ["SVG", "PNG or WebP", () => Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>')],
    [
      "SVG behind a WebP's head",
      "damaged",
      () => Buffer.from('RIFF\xff\0\0\0WEBP<svg xmlns="http://www.w3.org/2000/svg"/>', "latin1"),
    ],
    ["WAV in the same container", "PNG or WebP", () => Buffer.from("RIFF\x24\0\0\0WAVEfmt ", "latin1")],
    ["nothing", "PNG or WebP", () => new Uint8Array()],
  ];
  test.each(hostile)("422 image: %s", async (_, message, image) => {
    const resellerId = await addReseller();
    for (const place of ["logoLight", "logoDark", "icon"] as const) {
      const failed = await put(resellerId, place, await image()).catch((error: unknown) => error);
      expect(failed).toBeInstanceOf(InputError);
      expect(failed).toMatchObject({ param: "image", message: expect.stringContaining(message) });
    }
    expect(await world.sql`select 1 from brands where reseller_id = ${resellerId}`).toHaveLength(0);
  });

  test("the icon is made from the logo, 64 × 64, and changes with it; an uploaded icon stays until it is removed", async () => {
    const resellerId = await addReseller();
    const [red, blue, own] = [
      await drawn(480, 120, "#ff0000").png().toBuffer(),
      await drawn(300, 300, "#0000ff").png().toBuffer(),
      await drawn(500, 500, "#00ff00").webp({ lossless: true }).toBuffer(),
    ];
    const middle = async (icon: Uint8Array | null) => {
      const { data, info } = await sharp(icon ?? undefined)
        .ensureAlpha()
        .raw()
        .toBuffer({ resolveWithObject: true });
      expect(info).toMatchObject({ width: 64, height: 64, channels: 4 });
      expect(Buffer.from(icon ?? []).toString("latin1", 1, 4)).toBe("PNG");
      return [...data.subarray((32 * 64 + 32) * 4, (32 * 64 + 33) * 4)];
    };
    expect(await middle((await put(resellerId, "logoDark", red)).icon)).toEqual([255, 0, 0, 255]);
    const wide = (await loadBrand(world.deps, resellerId))?.icon;
    const { data } = await sharp(wide ?? undefined)
      .raw()
      .toBuffer({ resolveWithObject: true });
    expect(data[3]).toBe(0);
    // The light logo is preferred.
    expect(await middle((await put(resellerId, "logoLight", blue)).icon)).toEqual([0, 0, 255, 255]);
    expect(await middle((await put(resellerId, "logoDark", null)).icon)).toEqual([0, 0, 255, 255]);
    expect(await middle((await put(resellerId, "icon", own)).icon)).toEqual([0, 255, 0, 255]);
    expect(await middle((await put(resellerId, "logoLight", red)).icon)).toEqual([0, 255, 0, 255]);
    expect(await middle((await put(resellerId, "icon", null)).icon)).toEqual([255, 0, 0, 255]);
    expect((await put(resellerId, "logoLight", null)).icon).toBeNull();
    expect((await put(resellerId, "icon", null)).icon).toBeNull();
  });
});

describe("brand look-up", () => {
  const open = (over: { brandName?: string; brandSupport?: string; nowMs?: () => number } = {}) =>
    openBrandLookup({
      ...world.deps,
      config: { ...world.deps.config, ...over },
      nowMs: over.nowMs ?? (() => performance.now()),
    });

  test("the service's own hosts have the configuration's name and contact", async () => {
    expect(await open().get(null)).toMatchObject({
      name: "Tollgate",
      support: null,
      css: "",
      version: "own",
      icon: null,
    });
    const named = open({ brandName: "Operator Inc", brandSupport: "help@operator.example" });
    expect(await named.get(null)).toMatchObject({ name: "Operator Inc", support: "help@operator.example" });
  });

  test("a reseller's host shows nothing of the service's own, with a brand or without; other accounts have no brand", async () => {
    const lookup = open({ brandName: "Operator Inc", brandSupport: "help@operator.example" });
    const resellerId = await addReseller();
    const bare = await lookup.get(resellerId);
    expect(bare).toMatchObject({
      name: expect.stringMatching(/^reseller\d+$/),
      support: null,
      css: "",
      version: "none",
    });
    await saveBrand(world.deps, { resellerId, name: "Acme AI", accent: null, support: null });
    for (const brand of [bare, await lookup.get(resellerId)])
      expect(JSON.stringify(brand).toLowerCase()).not.toMatch(/operator|tollgate/);
    await expect(lookup.get((await world.addCustomer()).accountId)).rejects.toThrow("is not a reseller");
    await expect(lookup.get(999_999)).rejects.toThrow("is not a reseller");
  });

  test("every change is seen immediately: of the brand, its pictures, and the account's name if the brand has none", async () => {
    const lookup = open();
    const [resellerId, other] = [await addReseller(), await addReseller()];
    const untouched = await lookup.get(other);
    const rename = (name: string) =>
      changing(world.deps, (tx) => tx.execute(`update accounts set name = '${name}' where id = ${resellerId}`));
    await lookup.get(resellerId);
    await rename("Renamed");
    expect((await lookup.get(resellerId)).name).toBe("Renamed");
    await put(resellerId, "logoLight", await drawn(40, 40).png().toBuffer());
    expect(await lookup.get(resellerId)).toMatchObject({
      name: "Renamed",
      logoType: "image/webp",
      logoLight: expect.anything(),
    });
    const { version } = await saveBrand(world.deps, { resellerId, ...SPEC });
    expect(await lookup.get(resellerId)).toMatchObject({ name: "Acme AI", support: SPEC.support, version });
    await rename("Renamed again");
    expect((await lookup.get(resellerId)).name).toBe("Acme AI");
    await put(resellerId, "logoLight", null);
    expect(await lookup.get(resellerId)).toMatchObject({ logoLight: null, icon: null });
    expect(await lookup.get(other)).toBe(untouched);
  });

  test("it answers from memory; an unannounced change is seen after the TTL", async () => {
    let nowMs = 0;
    const lookup = open({ nowMs: () => nowMs });
    const resellerId = await addReseller();
    await saveBrand(world.deps, { resellerId, ...SPEC });
    const first = await lookup.get(resellerId);
    await world.sql`update brands set name = 'By hand' where reseller_id = ${resellerId}`;
    expect(await lookup.get(resellerId)).toBe(first);
    nowMs += world.deps.config.cacheTtlMs;
    expect((await lookup.get(resellerId)).name).toBe("By hand");
  });

  test("a change of a brand in SQL is announced to every replica", async () => {
    const resellerId = await addReseller();
    await saveBrand(world.deps, { resellerId, ...SPEC });
    const noted = async () =>
      Number(
        (
          await world.sql`select count(*)::int as n from changes where kind = 'account' and ref = ${String(resellerId)}`
        )[0]?.n,
      );
    const before = await noted();
    await world.sql`update brands set name = 'By hand' where reseller_id = ${resellerId}`;
    await world.sql`delete from brands where reseller_id = ${resellerId}`;
    expect(await noted()).toBe(before + 2);
  });
});
