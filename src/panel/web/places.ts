import { t } from "@lingui/core/macro";
import {
  Banknote,
  BookOpenCheck,
  Bot,
  Boxes,
  ChartColumn,
  Cpu,
  FileText,
  Globe,
  House,
  Inbox,
  KeyRound,
  ListTree,
  LogIn,
  type LucideIcon,
  Mail,
  Megaphone,
  MessageSquare,
  Palette,
  Percent,
  Receipt,
  ReceiptText,
  ScrollText,
  Server,
  Settings,
  Tag,
  Tags,
  Ticket,
  UserPlus,
  Users,
  UsersRound,
  Waypoints,
  Webhook,
} from "lucide-react";
import type { Role } from "./api.ts";

/**
 * The places of the navigation, for each role: the business first, the person's own account last. The side bar, the tabs and "More"
 * of a phone, and the palette follow from this list. Each path is one of `routes.tsx`.
 */

export type Place = {
  label: string;
  icon: LucideIcon;
  path: string;
  roles: readonly Role[];
  /** The group that has the heading above it; customers have none. */
  group: (typeof GROUPS)[number]["id"] | null;
  /** One of the four tabs on a phone; the others are under "More". */
  tabOf?: readonly Role[];
};
export type PlaceGroup = { id: Place["group"]; heading: string | null; places: readonly Place[] };

const GROUPS = [
  { id: "catalog", heading: t`Catalog` },
  { id: "storefront", heading: t`Storefront` },
  { id: "money", heading: t`Money` },
  { id: "settings", heading: t`Settings` },
  { id: "account", heading: t`Your account` },
] as const;
const NO_GROUP = { id: null, heading: null } as const;
const CUSTOMER = ["customer"] as const;
const RESELLER = ["reseller"] as const;
const ADMIN = ["admin"] as const;
const SELLERS = ["reseller", "admin"] as const;
const ALL = ["customer", "reseller", "admin"] as const;

export const PLACES: readonly Place[] = [
  { label: t`Home`, icon: House, path: "/", roles: CUSTOMER, group: null, tabOf: CUSTOMER },
  { label: t`Overview`, icon: House, path: "/", roles: SELLERS, group: null, tabOf: SELLERS },
  { label: t`Customers`, icon: Users, path: "/customers", roles: RESELLER, group: null, tabOf: RESELLER },
  { label: t`Customers`, icon: Users, path: "/admin/people", roles: ADMIN, group: null, tabOf: ADMIN },
  { label: t`Orders`, icon: Inbox, path: "/orders", roles: RESELLER, group: null, tabOf: RESELLER },
  { label: t`Orders`, icon: Inbox, path: "/admin/orders", roles: ADMIN, group: null, tabOf: ADMIN },
  { label: t`Statement`, icon: ReceiptText, path: "/statement", roles: RESELLER, group: null, tabOf: RESELLER },
  { label: t`Requests`, icon: ListTree, path: "/requests", roles: RESELLER, group: null },
  { label: t`Requests`, icon: ListTree, path: "/admin/requests", roles: ADMIN, group: null, tabOf: ADMIN },

  { label: t`Models`, icon: Cpu, path: "/admin/models", roles: ADMIN, group: "catalog" },
  { label: t`Routes`, icon: Waypoints, path: "/admin/routes", roles: ADMIN, group: "catalog" },
  { label: t`Providers`, icon: Server, path: "/admin/providers", roles: ADMIN, group: "catalog" },
  { label: t`Offerings`, icon: Boxes, path: "/admin/offerings", roles: ADMIN, group: "catalog" },

  { label: t`Brand`, icon: Palette, path: "/brand", roles: RESELLER, group: "storefront" },
  { label: t`Domains`, icon: Globe, path: "/domains", roles: RESELLER, group: "storefront" },
  { label: t`Prices`, icon: Tag, path: "/prices", roles: RESELLER, group: "storefront" },
  { label: t`Markup`, icon: Percent, path: "/markup", roles: RESELLER, group: "storefront" },
  { label: t`Sign-up`, icon: UserPlus, path: "/sign-up-settings", roles: RESELLER, group: "storefront" },
  { label: t`Sign-in`, icon: LogIn, path: "/sign-in-settings", roles: RESELLER, group: "storefront" },

  { label: t`Payments`, icon: Banknote, path: "/payments", roles: RESELLER, group: "money" },
  { label: t`Payments`, icon: Banknote, path: "/admin/payments", roles: ADMIN, group: "money" },
  { label: t`Invoices`, icon: FileText, path: "/invoices", roles: RESELLER, group: "money" },
  { label: t`Invoices`, icon: FileText, path: "/admin/invoices", roles: ADMIN, group: "money" },
  { label: t`Vouchers`, icon: Ticket, path: "/vouchers", roles: RESELLER, group: "money" },
  { label: t`Vouchers`, icon: Ticket, path: "/admin/vouchers", roles: ADMIN, group: "money" },
  {
    label: t({ message: "Books", context: "accounting" }),
    icon: BookOpenCheck,
    path: "/admin/books",
    roles: ADMIN,
    group: "money",
  },

  { label: t`Domains`, icon: Globe, path: "/admin/domains", roles: ADMIN, group: "settings" },
  { label: t`Sign-up`, icon: UserPlus, path: "/admin/sign-up", roles: ADMIN, group: "settings" },
  { label: t`Incidents`, icon: Megaphone, path: "/incidents", roles: RESELLER, group: "settings" },
  { label: t`Incidents`, icon: Megaphone, path: "/admin/incidents", roles: ADMIN, group: "settings" },
  { label: t`Sign-in`, icon: LogIn, path: "/admin/sign-in", roles: ADMIN, group: "settings" },
  { label: t`Mail`, icon: Mail, path: "/messages", roles: RESELLER, group: "settings" },
  { label: t`Mail`, icon: Mail, path: "/admin/messages", roles: ADMIN, group: "settings" },
  { label: t`Webhooks`, icon: Webhook, path: "/webhooks", roles: SELLERS, group: "settings" },
  { label: t`API tokens`, icon: Bot, path: "/tokens", roles: RESELLER, group: "settings" },
  { label: t`API tokens`, icon: Bot, path: "/admin/tokens", roles: ADMIN, group: "settings" },
  { label: t`Members`, icon: UsersRound, path: "/members", roles: SELLERS, group: "settings" },
  { label: t`Audit`, icon: ScrollText, path: "/admin/audit", roles: ADMIN, group: "settings" },

  { label: t`Keys`, icon: KeyRound, path: "/keys", roles: ALL, group: "account", tabOf: CUSTOMER },
  { label: t`Playground`, icon: MessageSquare, path: "/playground", roles: ALL, group: "account", tabOf: CUSTOMER },
  { label: t`Usage`, icon: ChartColumn, path: "/usage", roles: ALL, group: "account", tabOf: CUSTOMER },
  { label: t`Models and prices`, icon: Tags, path: "/models", roles: ALL, group: "account" },
  { label: t`Billing`, icon: Receipt, path: "/billing", roles: ALL, group: "account" },
  { label: t`Settings`, icon: Settings, path: "/settings", roles: ALL, group: "account" },
  { label: t`Members`, icon: UsersRound, path: "/members", roles: CUSTOMER, group: "account" },
  { label: t`Webhooks`, icon: Webhook, path: "/webhooks", roles: CUSTOMER, group: "account" },
];

/** The places of a role, in their order. */
export function placesOf(role: Role): Place[] {
  return PLACES.filter(({ roles }) => roles.includes(role));
}

export function groupsOf(role: Role): PlaceGroup[] {
  const own = placesOf(role);
  // A customer's are few, and all of its own account.
  if (role === "customer") return [{ ...NO_GROUP, places: own }];
  return [NO_GROUP, ...GROUPS]
    .map(({ id, heading }) => ({ id, heading, places: own.filter(({ group }) => group === id) }))
    .filter(({ places }) => places.length > 0);
}

export function isTab(place: Place, role: Role): boolean {
  return place.tabOf?.includes(role) === true;
}

/**
 * Addresses that pages had, as links and bookmarks have them: path, a value of its query, and where the page is now. The rest of the
 * query is kept.
 */
const MOVED = [
  { path: "/admin", to: "/admin/people" },
  { path: "/customers", view: "orders", to: "/orders" },
  { path: "/customers", view: "statement", to: "/statement" },
];

/** Where the page of an old address is now; null: it has not moved. */
export function movedTo(path: string, search: string): string | null {
  const params = new URLSearchParams(search);
  const moved = MOVED.find((each) => each.path === path && (each.view ?? null) === params.get("view"));
  if (moved === undefined) return null;
  params.delete("view");
  return `${moved.to}${params.size > 0 ? `?${params}` : ""}`;
}
