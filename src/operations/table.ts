import * as accounts from "./accounts.ts";
import * as autoTopUp from "./auto_top_up.ts";
import * as balances from "./balances.ts";
import * as cards from "./cards.ts";
import * as domains from "./domains.ts";
import * as identityProviders from "./identity_providers.ts";
import * as incidents from "./incidents.ts";
import * as keys from "./keys.ts";
import * as losses from "./losses.ts";
import * as markups from "./markups.ts";
import * as measured from "./measured.ts";
import * as members from "./members.ts";
import * as models from "./models.ts";
import * as offerings from "./offerings.ts";
import type { AnyOperation } from "./operation.ts";
import * as orders from "./orders.ts";
import * as packages from "./packages.ts";
import * as priceImports from "./price_imports.ts";
import * as privacy from "./privacy.ts";
import * as providers from "./providers.ts";
import * as receipts from "./receipts.ts";
import * as renewals from "./renewals.ts";
import * as retention from "./retention.ts";
import * as selling from "./selling.ts";
import * as signUp from "./sign_up.ts";
import * as tokens from "./tokens.ts";
import * as usage from "./usage.ts";
import * as vouchers from "./vouchers.ts";
import * as webhooks from "./webhooks.ts";

/** Every operation, in the order of the reference of the management API. */
export const OPERATIONS: readonly AnyOperation[] = [
  accounts.listAccounts,
  accounts.createAccount,
  accounts.getAccount,
  accounts.updateAccount,
  accounts.suspendAccount,
  accounts.reactivateAccount,
  accounts.makeLink,
  accounts.setLimits,
  accounts.setPayg,
  accounts.setPaygRight,
  privacy.exportAccount,
  privacy.eraseAccount,
  members.listMembers,
  members.inviteMember,
  members.revokeInvitation,
  members.changeMember,
  members.removeMember,
  keys.listKeys,
  keys.createKey,
  keys.getKey,
  keys.getKeyUse,
  keys.updateKey,
  keys.enableKey,
  keys.disableKey,
  keys.rotateKey,
  keys.revokeKey,
  packages.getHoldings,
  packages.assignPackage,
  packages.endPackage,
  packages.listAllotments,
  packages.grantAllotment,
  packages.withdrawAllotment,
  renewals.listRenewals,
  renewals.setRenewal,
  renewals.cancelRenewal,
  balances.changeBalance,
  balances.listBalanceMovements,
  autoTopUp.getAutoTopUp,
  autoTopUp.setAutoTopUp,
  autoTopUp.removeAutoTopUp,
  usage.listUsage,
  usage.listAllRequests,
  usage.getFigures,
  receipts.getReceipt,
  losses.listLosses,
  losses.forgetLosses,
  retention.getRetention,
  offerings.listOfferings,
  offerings.createOffering,
  offerings.setOnSale,
  offerings.setRetailPrice,
  offerings.removePrice,
  selling.getSelling,
  selling.setSelling,
  measured.getMeasured,
  measured.setMeasured,
  markups.getMarkups,
  markups.setMarkup,
  orders.listOrders,
  orders.fulfilOrder,
  orders.declineOrder,
  orders.listPayments,
  orders.refundPayment,
  orders.endRefund,
  cards.getCard,
  cards.saveCard,
  cards.lookForCard,
  cards.removeCard,
  vouchers.listVouchers,
  vouchers.createVouchers,
  vouchers.getVouchers,
  vouchers.getVoucherUses,
  vouchers.disableVouchers,
  signUp.getSignUp,
  signUp.setSignUp,
  signUp.listSignedUp,
  incidents.listIncidents,
  incidents.createIncident,
  incidents.getIncident,
  incidents.updateIncident,
  incidents.removeIncident,
  identityProviders.listIdentityProviders,
  identityProviders.createIdentityProvider,
  identityProviders.updateIdentityProvider,
  identityProviders.proveIdentityDomains,
  identityProviders.removeIdentityProvider,
  domains.listDomains,
  domains.addDomain,
  domains.getDomain,
  domains.suspendDomain,
  domains.activateDomain,
  domains.removeDomain,
  models.listModels,
  models.getModel,
  models.createModel,
  models.updateModel,
  models.setModelPrices,
  models.setImagePrice,
  models.addRoute,
  models.updateRoute,
  models.removeRoute,
  priceImports.getPriceList,
  priceImports.previewPriceImport,
  priceImports.applyPriceImport,
  providers.listProviders,
  providers.getProvider,
  providers.createProvider,
  providers.updateProvider,
  providers.testProvider,
  providers.addProviderKey,
  providers.updateProviderKey,
  providers.removeProviderKey,
  webhooks.listWebhooks,
  webhooks.addWebhook,
  webhooks.updateWebhook,
  webhooks.removeWebhook,
  webhooks.rotateWebhookSecret,
  webhooks.testWebhook,
  webhooks.listDeliveries,
  webhooks.getDelivery,
  webhooks.sendDeliveryAgain,
  tokens.listTokens,
  tokens.createToken,
  tokens.rotateToken,
  tokens.revokeToken,
];
