import { expect, test } from "bun:test";
import { groupsOf, isTab, movedTo, placesOf } from "../../src/panel/web/places.ts";
import { maySee, ROUTES } from "../../src/panel/web/routes.tsx";

/** The navigation of each role. Source: PAN-6. */

const ROLES = ["customer", "reseller", "admin"] as const;

test("every place is a page that its role may see, and every page without a parameter is a place", () => {
  for (const role of ROLES) {
    const pages = ROUTES.filter(({ path, audience }) => maySee(role, audience) && !path.includes("/:"));
    const places = placesOf(role).map(({ path }) => path);
    // It is opened from the page of models.
    const opened = pages.map(({ path }) => path).filter((path) => path !== "/admin/models/import");
    expect([role, places.toSorted()]).toEqual([role, opened.toSorted()]);
  }
});

test("each role has four tabs on a phone: a seller those of its business", () => {
  const tabsOf = (role: (typeof ROLES)[number]) =>
    placesOf(role)
      .filter((place) => isTab(place, role))
      .map(({ label }) => label);
  expect(tabsOf("customer")).toEqual(["Home", "Keys", "Playground", "Usage"]);
  expect(tabsOf("reseller")).toEqual(["Overview", "Customers", "Orders", "Statement"]);
  expect(tabsOf("admin")).toEqual(["Overview", "Customers", "Orders", "Requests"]);
});

test("the business comes first, a seller's own account last; a customer has no groups", () => {
  const headings = (role: (typeof ROLES)[number]) => groupsOf(role).map(({ heading }) => heading);
  expect(headings("customer")).toEqual([null]);
  expect(headings("reseller")).toEqual([null, "Storefront", "Money", "Settings", "Your account"]);
  expect(headings("admin")).toEqual([null, "Catalog", "Money", "Settings", "Your account"]);
});

test("members are a place of every role: a seller's beside the API tokens, a customer's of its own account", () => {
  const groupOf = (role: (typeof ROLES)[number]) =>
    placesOf(role)
      .filter(({ path }) => path === "/members" || path.endsWith("/tokens"))
      .map(({ label, group }) => [label, group]);
  expect(groupOf("customer")).toEqual([["Members", "account"]]);
  for (const role of ["reseller", "admin"] as const)
    expect(groupOf(role)).toEqual([
      ["API tokens", "settings"],
      ["Members", "settings"],
    ]);
});

test("old addresses lead to the new ones, with the rest of their query", () => {
  expect(movedTo("/customers", "?view=orders&orders=all")).toBe("/orders?orders=all");
  expect(movedTo("/customers", "?view=statement&month=2026-10")).toBe("/statement?month=2026-10");
  expect(movedTo("/admin", "")).toBe("/admin/people");
  expect(movedTo("/customers", "")).toBeNull();
  expect(movedTo("/customers", "?view=customers")).toBeNull();
  for (const { path } of ROUTES) expect(movedTo(path, "")).toBeNull();
});
