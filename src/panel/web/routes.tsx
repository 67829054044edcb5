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
  type LucideIcon,
  Mail,
  MessageSquare,
  Palette,
  Percent,
  Receipt,
  ScrollText,
  Server,
  Settings,
  Tag,
  Tags,
  Ticket,
  UserPlus,
  Users,
  Waypoints,
  Webhook,
} from "lucide-react";
import { type ComponentType, lazy, useState } from "react";
import type { Role } from "./api.ts";

/**
 * Every page of the panel: its path, who may see it, and its place in the navigation. A page with a parameter (`/customers/:id`) has
 * no label, because its list is in the navigation. A page's script loads when the page is first opened, or just before: `preload` is
 * called at the start for the requested address, and for a link under the pointer.
 */

export type Audience = "everyone" | "reseller" | "admin";

type LoadedPage = { page: ComponentType; preload: () => void };

export type PageRoute = LoadedPage & {
  path: string;
  audience: Audience;
  label?: string;
  icon?: LucideIcon;
  /** One of the four tabs on a phone; the others are under "More". */
  isTab?: true;
};

/** Whether a role sees a page. An admin who views a reseller's panel sees it as that reseller. */
export function maySee(role: Role, audience: Audience): boolean {
  return audience === "everyone" || audience === role;
}

export const SIGNED_OUT: readonly (LoadedPage & { path: string })[] = [
  { path: "/sign-in", ...page(() => import("./pages/sign_in/sign_in.tsx").then((m) => m.SignInPage)) },
  { path: "/forgot", ...page(() => import("./pages/sign_in/forgot_password.tsx").then((m) => m.ForgotPasswordPage)) },
  {
    path: "/email/:token",
    ...page(() => import("./pages/sign_in/email_change_page.tsx").then((m) => m.EmailChangePage)),
  },
  { path: "/invite/:token", ...page(() => import("./pages/sign_in/link_page.tsx").then((m) => m.InvitePage)) },
  {
    path: "/model-prices",
    ...page(() => import("./pages/models/model_prices_page.tsx").then((m) => m.PublicModelPricesPage)),
  },
  { path: "/reset/:token", ...page(() => import("./pages/sign_in/link_page.tsx").then((m) => m.ResetPage)) },
  { path: "/confirm/:token", ...page(() => import("./pages/sign_in/link_page.tsx").then((m) => m.ConfirmPage)) },
  { path: "/sign-up", ...page(() => import("./pages/sign_in/sign_up.tsx").then((m) => m.SignUpPage)) },
  {
    path: "/unsubscribe/:token",
    ...page(() => import("./pages/sign_in/unsubscribe_page.tsx").then((m) => m.UnsubscribePage)),
  },
];

/** A page whose script loads later. If it is already loaded, the page is drawn without a skeleton in between. */
function page(load: () => Promise<ComponentType>): LoadedPage {
  let loaded: ComponentType | undefined;
  const loading = async () => {
    loaded = await load();
    return { default: loaded };
  };
  const Later = lazy(loading);
  return {
    page: function RoutedPage() {
      // Chosen once: a page on the screen must not remount when its script is requested again.
      const [Drawn] = useState<ComponentType>(() => loaded ?? Later);
      return <Drawn />;
    },
    // A failure is reported when the page is opened, which loads again.
    preload: () => void loading().catch(() => undefined),
  };
}

const CustomersPage = page(() => import("./pages/people/customers.tsx").then((m) => m.CustomersPage));
const CustomerPage = page(() => import("./pages/people/customers.tsx").then((m) => m.CustomerPage));
const DomainsPage = page(() => import("./pages/domains/domains.tsx").then((m) => m.DomainsPage));
const DomainPage = page(() => import("./pages/domains/domains.tsx").then((m) => m.DomainPage));
const AdminDomainsPage = page(() => import("./pages/domains/admin_domains.tsx").then((m) => m.AdminDomainsPage));
const AdminDomainPage = page(() => import("./pages/domains/admin_domains.tsx").then((m) => m.AdminDomainPage));
const PeoplePage = page(() => import("./pages/people/people.tsx").then((m) => m.PeoplePage));
const PersonPage = page(() => import("./pages/people/people.tsx").then((m) => m.PersonPage));
const AllRequestsPage = page(() => import("./pages/usage/requests.tsx").then((m) => m.AllRequestsPage));
const RequestPage = page(() => import("./pages/usage/requests.tsx").then((m) => m.RequestPage));
const OrdersPage = page(() => import("./pages/people/people.tsx").then((m) => m.OrdersPage));
const VouchersPage = page(() => import("./pages/vouchers/vouchers.tsx").then((m) => m.VouchersPage));
const VoucherBatchPage = page(() => import("./pages/vouchers/voucher_batch.tsx").then((m) => m.VoucherBatchPage));
const InvoicesPage = page(() => import("./pages/invoices/invoices.tsx").then((m) => m.InvoicesPage));
const OfferingsPage = page(() => import("./pages/offerings/offerings.tsx").then((m) => m.OfferingsPage));
const ModelsPage = page(() => import("./pages/models/models.tsx").then((m) => m.ModelsPage));
const ModelImportPage = page(() => import("./pages/models/model_import.tsx").then((m) => m.ModelImportPage));
const RoutesPage = page(() => import("./pages/models/routes.tsx").then((m) => m.RoutesPage));
const ProvidersPage = page(() => import("./pages/providers/providers.tsx").then((m) => m.ProvidersPage));
const TokensPage = page(() => import("./pages/tokens/tokens.tsx").then((m) => m.TokensPage));
const PaymentsPage = page(() => import("./pages/payments/payments.tsx").then((m) => m.PaymentsPage));
const BooksPage = page(() => import("./pages/books/books.tsx").then((m) => m.BooksPage));
const SignUpSettingsPage = page(() => import("./pages/sign_up/sign_up_settings.tsx").then((m) => m.SignUpSettingsPage));
const MessagesPage = page(() => import("./pages/messages/messages.tsx").then((m) => m.MessagesPage));
const AuditPage = page(() => import("./pages/audit/audit.tsx").then((m) => m.AuditPage));

export const ROUTES: readonly PageRoute[] = [
  {
    path: "/",
    ...page(() => import("./pages/home/home.tsx").then((m) => m.HomePage)),
    audience: "everyone",
    label: "Home",
    icon: House,
    isTab: true,
  },
  {
    path: "/keys",
    ...page(() => import("./pages/keys/keys.tsx").then((m) => m.KeysPage)),
    audience: "everyone",
    label: "Keys",
    icon: KeyRound,
    isTab: true,
  },
  {
    path: "/keys/:id",
    ...page(() => import("./pages/keys/key.tsx").then((m) => m.KeyPage)),
    audience: "everyone",
  },
  {
    path: "/playground",
    ...page(() => import("./pages/playground/playground.tsx").then((m) => m.PlaygroundPage)),
    audience: "everyone",
    label: "Playground",
    icon: MessageSquare,
    isTab: true,
  },
  {
    path: "/usage",
    ...page(() => import("./pages/usage/usage.tsx").then((m) => m.UsagePage)),
    audience: "everyone",
    label: "Usage",
    icon: ChartColumn,
    isTab: true,
  },
  { path: "/requests/:id", ...RequestPage, audience: "everyone" },
  {
    path: "/models",
    ...page(() => import("./pages/models/model_prices_page.tsx").then((m) => m.ModelPricesPage)),
    audience: "everyone",
    label: "Models and prices",
    icon: Tags,
  },
  {
    path: "/billing",
    ...page(() => import("./pages/billing/billing.tsx").then((m) => m.BillingPage)),
    audience: "everyone",
    label: "Billing",
    icon: Receipt,
  },
  {
    path: "/billing/orders/:id",
    ...page(() => import("./pages/orders/order.tsx").then((m) => m.OrderPage)),
    audience: "everyone",
  },
  {
    path: "/settings",
    ...page(() => import("./pages/settings/settings.tsx").then((m) => m.SettingsPage)),
    audience: "everyone",
    label: "Settings",
    icon: Settings,
  },
  {
    path: "/webhooks",
    ...page(() => import("./pages/webhooks/webhooks.tsx").then((m) => m.WebhooksPage)),
    audience: "everyone",
    label: "Webhooks",
    icon: Webhook,
  },
  { path: "/customers", ...CustomersPage, audience: "reseller", label: "Customers", icon: Users },
  { path: "/customers/:id", ...CustomerPage, audience: "reseller" },
  { path: "/requests", ...AllRequestsPage, audience: "reseller", label: "Requests", icon: ListTree },
  {
    path: "/prices",
    ...page(() => import("./pages/offerings/prices.tsx").then((m) => m.PricesPage)),
    audience: "reseller",
    label: "Prices",
    icon: Tag,
  },
  {
    path: "/markup",
    ...page(() => import("./pages/offerings/markup.tsx").then((m) => m.MarkupPage)),
    audience: "reseller",
    label: "Markup",
    icon: Percent,
  },
  { path: "/vouchers", ...VouchersPage, audience: "reseller", label: "Vouchers", icon: Ticket },
  { path: "/vouchers/:id", ...VoucherBatchPage, audience: "reseller" },
  { path: "/invoices", ...InvoicesPage, audience: "reseller", label: "Invoices", icon: FileText },
  { path: "/payments", ...PaymentsPage, audience: "reseller", label: "Payments", icon: Banknote },
  { path: "/domains", ...DomainsPage, audience: "reseller", label: "Domains", icon: Globe },
  { path: "/domains/:host", ...DomainPage, audience: "reseller" },
  {
    path: "/brand",
    ...page(() => import("./pages/brand/brand.tsx").then((m) => m.BrandPage)),
    audience: "reseller",
    label: "Brand",
    icon: Palette,
  },
  { path: "/sign-up-settings", ...SignUpSettingsPage, audience: "reseller", label: "Sign-up", icon: UserPlus },
  { path: "/tokens", ...TokensPage, audience: "reseller", label: "API tokens", icon: Bot },
  { path: "/messages", ...MessagesPage, audience: "reseller", label: "Mail", icon: Mail },
  { path: "/admin/people", ...PeoplePage, audience: "admin", label: "People", icon: Users },
  { path: "/admin/people/:id", ...PersonPage, audience: "admin" },
  { path: "/admin/orders", ...OrdersPage, audience: "admin", label: "Orders", icon: Inbox },
  { path: "/admin/vouchers", ...VouchersPage, audience: "admin", label: "Vouchers", icon: Ticket },
  { path: "/admin/vouchers/:id", ...VoucherBatchPage, audience: "admin" },
  { path: "/admin/invoices", ...InvoicesPage, audience: "admin", label: "Invoices", icon: FileText },
  { path: "/admin/payments", ...PaymentsPage, audience: "admin", label: "Payments", icon: Banknote },
  { path: "/admin/sign-up", ...SignUpSettingsPage, audience: "admin", label: "Sign-up", icon: UserPlus },
  { path: "/admin/tokens", ...TokensPage, audience: "admin", label: "API tokens", icon: Bot },
  { path: "/admin/requests", ...AllRequestsPage, audience: "admin", label: "Requests", icon: ListTree },
  { path: "/admin/offerings", ...OfferingsPage, audience: "admin", label: "Offerings", icon: Boxes },
  { path: "/admin/models", ...ModelsPage, audience: "admin", label: "Models", icon: Cpu },
  { path: "/admin/models/import", ...ModelImportPage, audience: "admin" },
  { path: "/admin/routes", ...RoutesPage, audience: "admin", label: "Routes", icon: Waypoints },
  { path: "/admin/providers", ...ProvidersPage, audience: "admin", label: "Providers", icon: Server },
  { path: "/admin/domains", ...AdminDomainsPage, audience: "admin", label: "Domains", icon: Globe },
  { path: "/admin/domains/:resellerId/:host", ...AdminDomainPage, audience: "admin" },
  { path: "/admin/messages", ...MessagesPage, audience: "admin", label: "Mail", icon: Mail },
  { path: "/admin/books", ...BooksPage, audience: "admin", label: "Books", icon: BookOpenCheck },
  { path: "/admin/audit", ...AuditPage, audience: "admin", label: "Audit", icon: ScrollText },
];

/** Fetches the script of the page at this address, if there is one. The server decides who may see its data. */
export function preloadPage(pathname: string): void {
  const all = [...SIGNED_OUT, ...ROUTES];
  const found =
    all.find(({ path }) => path === pathname) ??
    all.find(({ path }) => path.includes("/:") && pathname.startsWith(path.slice(0, path.indexOf(":"))));
  found?.preload();
}
