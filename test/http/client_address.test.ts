import { expect, test } from "bun:test";
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
