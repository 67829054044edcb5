import { expect, test } from "bun:test";
import { ConfigError, readConfig } from "../../src/config.ts";
import { clientAddress, networkOf } from "../../src/http/client_address.ts";

test("only a trusted proxy may forward an address, and only the entry that it added is used", () => {
  expect(clientAddress("203.0.113.9", "1.2.3.4", [])).toBe("203.0.113.9");
  expect(clientAddress("10.0.0.2", "1.2.3.4", ["10.0.0.2"])).toBe("1.2.3.4");
  // The client sent the first; the proxy added the second.
  expect(clientAddress("10.0.0.2", "9.9.9.9, 1.2.3.4", ["10.0.0.2"])).toBe("1.2.3.4");
  expect(clientAddress("10.0.0.2", "1.2.3.4, 10.0.0.3", ["10.0.0.2", "10.0.0.3"])).toBe("1.2.3.4");
});

test("without a valid forwarded address the proxy's own is used; an IPv4-mapped IPv6 address is IPv4", () => {
  expect(clientAddress("10.0.0.2", "unknown", ["10.0.0.2"])).toBe("10.0.0.2");
  expect(clientAddress("10.0.0.2", null, ["10.0.0.2"])).toBe("10.0.0.2");
  expect(clientAddress("::ffff:10.0.0.2", "1.2.3.4", ["10.0.0.2"])).toBe("1.2.3.4");
});

test("every address of a trusted range is a trusted proxy; others, or those of the other family, are not", () => {
  expect(clientAddress("10.244.3.7", "9.9.9.9, 1.2.3.4", ["10.244.0.0/16"])).toBe("1.2.3.4");
  expect(clientAddress("::ffff:10.244.3.7", "1.2.3.4", ["10.244.0.0/16"])).toBe("1.2.3.4");
  expect(clientAddress("10.244.3.7", "1.2.3.4, 10.244.9.9", ["10.244.0.0/16"])).toBe("1.2.3.4");
  expect(clientAddress("10.245.0.1", "1.2.3.4", ["10.244.0.0/16"])).toBe("10.245.0.1");
  expect(clientAddress("fd00::1", "1.2.3.4", ["10.244.0.0/16"])).toBe("fd00::1");
  expect(clientAddress("fd00::1", "1.2.3.4", ["10.244.0.0/16", "fd00::/8"])).toBe("1.2.3.4");
});

test("limits by address count per IPv4 address, and per /64 of an IPv6 address", () => {
  expect(networkOf("203.0.113.9")).toBe("203.0.113.9");
  for (const address of ["2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:0db8:0001:0002:0:0:0:9"])
    expect(networkOf(address)).toBe("2001:db8:1:2::/64");
  expect(networkOf("2001:db8:1:3::1")).toBe("2001:db8:1:3::/64");
  expect(networkOf("unknown")).toBe("unknown");
});

test("TRUSTED_PROXIES must be addresses or ranges", () => {
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
