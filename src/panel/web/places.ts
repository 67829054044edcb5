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
  /** The heading above it; customers have none. */
  group: (typeof GROUPS)[number] | null;
  /** One of the four tabs on a phone; the others are under "More". */
  tabOf?: readonly Role[];
};
export type PlaceGroup = { heading: string | null; places: readonly Place[] };

const GROUPS = ["Catalog", "Storefront", "Money", "Settings", "Your account"] as const;
const CUSTOMER = ["customer"] as const;
const RESELLER = ["reseller"] as const;
const ADMIN = ["admin"] as const;
const SELLERS = ["reseller", "admin"] as const;
const ALL = ["customer", "reseller", "admin"] as const;

export const PLACES: readonly Place[] = [
  { label: "Home", icon: House, path: "/", roles: CUSTOMER, group: null, tabOf: CUSTOMER },
  { label: "Overview", icon: House, path: "/", roles: SELLERS, group: null, tabOf: SELLERS },
  { label: "Customers", icon: Users, path: "/customers", roles: RESELLER, group: null, tabOf: RESELLER },
  { label: "Customers", icon: Users, path: "/admin/people", roles: ADMIN, group: null, tabOf: ADMIN },
  { label: "Orders", icon: Inbox, path: "/orders", roles: RESELLER, group: null, tabOf: RESELLER },
  { label: "Orders", icon: Inbox, path: "/admin/orders", roles: ADMIN, group: null, tabOf: ADMIN },
  { label: "Statement", icon: ReceiptText, path: "/statement", roles: RESELLER, group: null, tabOf: RESELLER },
  { label: "Requests", icon: ListTree, path: "/requests", roles: RESELLER, group: null },
  { label: "Requests", icon: ListTree, path: "/admin/requests", roles: ADMIN, group: null, tabOf: ADMIN },

  { label: "Models", icon: Cpu, path: "/admin/models", roles: ADMIN, group: "Catalog" },
  { label: "Routes", icon: Waypoints, path: "/admin/routes", roles: ADMIN, group: "Catalog" },
  { label: "Providers", icon: Server, path: "/admin/providers", roles: ADMIN, group: "Catalog" },
  { label: "Offerings", icon: Boxes, path: "/admin/offerings", roles: ADMIN, group: "Catalog" },

  { label: "Brand", icon: Palette, path: "/brand", roles: RESELLER, group: "Storefront" },
  { label: "Domains", icon: Globe, path: "/domains", roles: RESELLER, group: "Storefront" },
  { label: "Prices", icon: Tag, path: "/prices", roles: RESELLER, group: "Storefront" },
  { label: "Markup", icon: Percent, path: "/markup", roles: RESELLER, group: "Storefront" },
  { label: "Sign-up", icon: UserPlus, path: "/sign-up-settings", roles: RESELLER, group: "Storefront" },
  { label: "Sign-in", icon: LogIn, path: "/sign-in-settings", roles: RESELLER, group: "Storefront" },

  { label: "Payments", icon: Banknote, path: "/payments", roles: RESELLER, group: "Money" },
  { label: "Payments", icon: Banknote, path: "/admin/payments", roles: ADMIN, group: "Money" },
  { label: "Invoices", icon: FileText, path: "/invoices", roles: RESELLER, group: "Money" },
  { label: "Invoices", icon: FileText, path: "/admin/invoices", roles: ADMIN, group: "Money" },
  { label: "Vouchers", icon: Ticket, path: "/vouchers", roles: RESELLER, group: "Money" },
  { label: "Vouchers", icon: Ticket, path: "/admin/vouchers", roles: ADMIN, group: "Money" },
  { label: "Books", icon: BookOpenCheck, path: "/admin/books", roles: ADMIN, group: "Money" },

  { label: "Domains", icon: Globe, path: "/admin/domains", roles: ADMIN, group: "Settings" },
  { label: "Sign-up", icon: UserPlus, path: "/admin/sign-up", roles: ADMIN, group: "Settings" },
  { label: "Incidents", icon: Megaphone, path: "/incidents", roles: RESELLER, group: "Settings" },
  { label: "Incidents", icon: Megaphone, path: "/admin/incidents", roles: ADMIN, group: "Settings" },
  { label: "Sign-in", icon: LogIn, path: "/admin/sign-in", roles: ADMIN, group: "Settings" },
  { label: "Mail", icon: Mail, path: "/messages", roles: RESELLER, group: "Settings" },
  { label: "Mail", icon: Mail, path: "/admin/messages", roles: ADMIN, group: "Settings" },
  { label: "Webhooks", icon: Webhook, path: "/webhooks", roles: SELLERS, group: "Settings" },
  { label: "API tokens", icon: Bot, path: "/tokens", roles: RESELLER, group: "Settings" },
  { label: "API tokens", icon: Bot, path: "/admin/tokens", roles: ADMIN, group: "Settings" },
  { label: "Members", icon: UsersRound, path: "/members", roles: SELLERS, group: "Settings" },
  { label: "Audit", icon: ScrollText, path: "/admin/audit", roles: ADMIN, group: "Settings" },

  { label: "Keys", icon: KeyRound, path: "/keys", roles: ALL, group: "Your account", tabOf: CUSTOMER },
  { label: "Playground", icon: MessageSquare, path: "/playground", roles: ALL, group: "Your account", tabOf: CUSTOMER },
  { label: "Usage", icon: ChartColumn, path: "/usage", roles: ALL, group: "Your account", tabOf: CUSTOMER },
  { label: "Models and prices", icon: Tags, path: "/models", roles: ALL, group: "Your account" },
  { label: "Billing", icon: Receipt, path: "/billing", roles: ALL, group: "Your account" },
  { label: "Settings", icon: Settings, path: "/settings", roles: ALL, group: "Your account" },
  { label: "Members", icon: UsersRound, path: "/members", roles: CUSTOMER, group: "Your account" },
  { label: "Webhooks", icon: Webhook, path: "/webhooks", roles: CUSTOMER, group: "Your account" },
];

/** The places of a role, in their order. */
export function placesOf(role: Role): Place[] {
  return PLACES.filter(({ roles }) => roles.includes(role));
}

export function groupsOf(role: Role): PlaceGroup[] {
  const own = placesOf(role);
  // A customer's are few, and all of its own account.
  if (role === "customer") return [{ heading: null, places: own }];
  return [null, ...GROUPS]
    .map((heading) => ({ heading, places: own.filter(({ group }) => group === heading) }))
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
