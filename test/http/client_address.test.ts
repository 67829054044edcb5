import { expect, test } from "bun:test";
import { ConfigError, readConfig } from "../../src/config.ts";
import { clientAddress } from "../../src/http/client_address.ts";

test("a forwarded address is believed from a trusted proxy only, and only its own word", () => {
  expect(clientAddress("203.0.113.9", "1.2.3.4", [])).toBe("203.0.113.9");
  expect(clientAddress("10.0.0.2", "1.2.3.4", ["10.0.0.2"])).toBe("1.2.3.4");
  // The client invented the first; the proxy added what it saw.
  expect(clientAddress("10.0.0.2", "9.9.9.9, 1.2.3.4", ["10.0.0.2"])).toBe("1.2.3.4");
  expect(clientAddress("10.0.0.2", "1.2.3.4, 10.0.0.3", ["10.0.0.2", "10.0.0.3"])).toBe("1.2.3.4");
});

test("what is no address leaves the proxy's own, and IPv4 within IPv6 is IPv4", () => {
  expect(clientAddress("10.0.0.2", "unknown", ["10.0.0.2"])).toBe("10.0.0.2");
  expect(clientAddress("10.0.0.2", null, ["10.0.0.2"])).toBe("10.0.0.2");
  expect(clientAddress("::ffff:10.0.0.2", "1.2.3.4", ["10.0.0.2"])).toBe("1.2.3.4");
});

test("a trusted proxy may be any address of a range; what is beside the range, or of the other family, is not", () => {
  expect(clientAddress("10.244.3.7", "9.9.9.9, 1.2.3.4", ["10.244.0.0/16"])).toBe("1.2.3.4");
  expect(clientAddress("::ffff:10.244.3.7", "1.2.3.4", ["10.244.0.0/16"])).toBe("1.2.3.4");
  expect(clientAddress("10.244.3.7", "1.2.3.4, 10.244.9.9", ["10.244.0.0/16"])).toBe("1.2.3.4");
  expect(clientAddress("10.245.0.1", "1.2.3.4", ["10.244.0.0/16"])).toBe("10.245.0.1");
  expect(clientAddress("fd00::1", "1.2.3.4", ["10.244.0.0/16"])).toBe("fd00::1");
  expect(clientAddress("fd00::1", "1.2.3.4", ["10.244.0.0/16", "fd00::/8"])).toBe("1.2.3.4");
});

test("TRUSTED_PROXIES that are no addresses or ranges are refused at start", () => {
  const env = { DATABASE_URL: "postgres://localhost/x", SECRET_KEY: "11".repeat(32) };
  const read = (text: string) => readConfig({ ...env, TRUSTED_PROXIES: text }).trustedProxies;
  expect(read("10.0.0.2, 10.244.0.0/16,::1,fd00::/8")).toEqual(["10.0.0.2", "10.244.0.0/16", "::1", "fd00::/8"]);
  for (const wrong of [
    "caddy",
    "10.0.0.2,caddy",
    "10.1",
    "10.0.0.0/33",
    "10.0.0.0/",
    "10.0.0.0/8/8",
    "*",
    "fd00::/129",
  ])
    expect(() => read(wrong)).toThrow(ConfigError);
});
