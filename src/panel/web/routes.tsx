import { type ComponentType, lazy, useState } from "react";
import type { Role } from "./api.ts";

/**
 * Every page of the panel: its path and who may see it; `places.ts` has the navigation. A page's script loads when the page is first
 * opened, or just before: `preload` is called at the start for the requested address, and for a link under the pointer.
 */

export type Audience = "everyone" | "reseller" | "admin";

type LoadedPage = { page: ComponentType; preload: () => void };

export type PageRoute = LoadedPage & { path: string; audience: Audience };

/** Whether a role sees a page. An admin who views a reseller's panel sees it as that reseller. */
export function maySee(role: Role, audience: Audience): boolean {
  return audience === "everyone" || audience === role;
}

export const SIGNED_OUT: readonly (LoadedPage & { path: string })[] = [
  { path: "/sign-in", ...page(() => import("./pages/sign_in/sign_in.tsx").then((m) => m.SignInPage)) },
  { path: "/sign-in/callback", ...page(() => import("./pages/sign_in/callback_page.tsx").then((m) => m.CallbackPage)) },
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
  { path: "/join/:token", ...page(() => import("./pages/sign_in/join_page.tsx").then((m) => m.JoinPage)) },
  { path: "/status", ...page(() => import("./pages/status/status_page.tsx").then((m) => m.PublicStatusPage)) },
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
const ResellerOrdersPage = page(() => import("./pages/people/customers.tsx").then((m) => m.OrdersPage));
const StatementPage = page(() => import("./pages/billing/statement.tsx").then((m) => m.StatementPage));
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
const IncidentsPage = page(() => import("./pages/status/incidents.tsx").then((m) => m.IncidentsPage));
const IdentityProvidersPage = page(() =>
  import("./pages/identity_providers/identity_providers.tsx").then((m) => m.IdentityProvidersPage),
);
const MessagesPage = page(() => import("./pages/messages/messages.tsx").then((m) => m.MessagesPage));
const AuditPage = page(() => import("./pages/audit/audit.tsx").then((m) => m.AuditPage));

export const ROUTES: readonly PageRoute[] = [
  {
    path: "/",
    ...page(() => import("./pages/home/home.tsx").then((m) => m.HomePage)),
    audience: "everyone",
  },
  {
    path: "/keys",
    ...page(() => import("./pages/keys/keys.tsx").then((m) => m.KeysPage)),
    audience: "everyone",
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
  },
  {
    path: "/usage",
    ...page(() => import("./pages/usage/usage.tsx").then((m) => m.UsagePage)),
    audience: "everyone",
  },
  { path: "/requests/:id", ...RequestPage, audience: "everyone" },
  {
    path: "/models",
    ...page(() => import("./pages/models/model_prices_page.tsx").then((m) => m.ModelPricesPage)),
    audience: "everyone",
  },
  {
    path: "/billing",
    ...page(() => import("./pages/billing/billing.tsx").then((m) => m.BillingPage)),
    audience: "everyone",
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
  },
  {
    path: "/members",
    ...page(() => import("./pages/members/members.tsx").then((m) => m.MembersPage)),
    audience: "everyone",
  },
  {
    path: "/webhooks",
    ...page(() => import("./pages/webhooks/webhooks.tsx").then((m) => m.WebhooksPage)),
    audience: "everyone",
  },
  { path: "/customers", ...CustomersPage, audience: "reseller" },
  { path: "/customers/:id", ...CustomerPage, audience: "reseller" },
  { path: "/orders", ...ResellerOrdersPage, audience: "reseller" },
  { path: "/statement", ...StatementPage, audience: "reseller" },
  { path: "/requests", ...AllRequestsPage, audience: "reseller" },
  {
    path: "/prices",
    ...page(() => import("./pages/offerings/prices.tsx").then((m) => m.PricesPage)),
    audience: "reseller",
  },
  {
    path: "/markup",
    ...page(() => import("./pages/offerings/markup.tsx").then((m) => m.MarkupPage)),
    audience: "reseller",
  },
  { path: "/vouchers", ...VouchersPage, audience: "reseller" },
  { path: "/vouchers/:id", ...VoucherBatchPage, audience: "reseller" },
  { path: "/invoices", ...InvoicesPage, audience: "reseller" },
  { path: "/payments", ...PaymentsPage, audience: "reseller" },
  { path: "/domains", ...DomainsPage, audience: "reseller" },
  { path: "/domains/:host", ...DomainPage, audience: "reseller" },
  {
    path: "/brand",
    ...page(() => import("./pages/brand/brand.tsx").then((m) => m.BrandPage)),
    audience: "reseller",
  },
  { path: "/sign-up-settings", ...SignUpSettingsPage, audience: "reseller" },
  { path: "/sign-in-settings", ...IdentityProvidersPage, audience: "reseller" },
  { path: "/tokens", ...TokensPage, audience: "reseller" },
  { path: "/incidents", ...IncidentsPage, audience: "reseller" },
  { path: "/messages", ...MessagesPage, audience: "reseller" },
  { path: "/admin/people", ...PeoplePage, audience: "admin" },
  { path: "/admin/people/:id", ...PersonPage, audience: "admin" },
  { path: "/admin/orders", ...OrdersPage, audience: "admin" },
  { path: "/admin/vouchers", ...VouchersPage, audience: "admin" },
  { path: "/admin/vouchers/:id", ...VoucherBatchPage, audience: "admin" },
  { path: "/admin/invoices", ...InvoicesPage, audience: "admin" },
  { path: "/admin/payments", ...PaymentsPage, audience: "admin" },
  { path: "/admin/sign-up", ...SignUpSettingsPage, audience: "admin" },
  { path: "/admin/sign-in", ...IdentityProvidersPage, audience: "admin" },
  { path: "/admin/tokens", ...TokensPage, audience: "admin" },
  { path: "/admin/requests", ...AllRequestsPage, audience: "admin" },
  { path: "/admin/offerings", ...OfferingsPage, audience: "admin" },
  { path: "/admin/models", ...ModelsPage, audience: "admin" },
  { path: "/admin/models/import", ...ModelImportPage, audience: "admin" },
  { path: "/admin/routes", ...RoutesPage, audience: "admin" },
  { path: "/admin/providers", ...ProvidersPage, audience: "admin" },
  { path: "/admin/domains", ...AdminDomainsPage, audience: "admin" },
  { path: "/admin/domains/:resellerId/:host", ...AdminDomainPage, audience: "admin" },
  { path: "/admin/incidents", ...IncidentsPage, audience: "admin" },
  { path: "/admin/messages", ...MessagesPage, audience: "admin" },
  { path: "/admin/books", ...BooksPage, audience: "admin" },
  { path: "/admin/audit", ...AuditPage, audience: "admin" },
];

/** Fetches the script of the page at this address, if there is one. The server decides who may see its data. */
export function preloadPage(pathname: string): void {
  const all = [...SIGNED_OUT, ...ROUTES];
  const found =
    all.find(({ path }) => path === pathname) ??
    all.find(({ path }) => path.includes("/:") && pathname.startsWith(path.slice(0, path.indexOf(":"))));
  found?.preload();
}
