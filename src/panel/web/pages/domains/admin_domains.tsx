import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { keepPreviousData, useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { CirclePause, Globe, MoreHorizontal, Play, RotateCw, Search, Trash2 } from "lucide-react";
import { useLocation, useParams } from "wouter";
import type { HostStatus } from "../../../../accounts/domain_states.ts";
import { DOMAIN_REASON_CHARS_MAX, HOST_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { useDebounced, useOpened } from "../../shared/page_hooks.ts";
import { oneOf } from "../../shared/url_values.ts";
import { Button, IconButton, TextLink } from "../../ui/buttons.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { NativeSelect, TextField } from "../../ui/fields.tsx";
import { FilterBar, SearchInput, useUrlState } from "../../ui/filter_bar.tsx";
import { FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { Menu } from "../../ui/menu.tsx";
import type { MenuItem } from "../../ui/menu_list.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { personQuery } from "../people/queries.ts";
import { ConfirmRemoval } from "./confirm_removal.tsx";
import { DoctorPage, DomainStatus, useDoctor } from "./domain_doctor.tsx";
import { type DomainFacts, statusWords } from "./domain_text.ts";
import { DomainSkeleton } from "./domains.tsx";

/** The domains of all resellers, for admins: find, check, switch off and on by hand, remove. */

const ADMIN_DOMAINS_KEY = [...ADMIN_KEY, "domains"] as const;

type Listed = NonNullable<Awaited<ReturnType<typeof api.admin.domains.get>>["data"]>["domains"][number];
/** A name as one reseller's domain. Several resellers may have added the same name. */
type Claim = { resellerId: number; host: string };

const STATUS_FILTER = [
  { value: "", label: t`All but removed` },
  { value: "failing", label: t`Fails its check` },
  { value: "active", label: t({ message: "Live", context: "state of a domain" }) },
  { value: "verifying", label: t`Waiting for DNS` },
  { value: "pending", label: t`Not checked yet` },
  { value: "suspended", label: t({ message: "Off", context: "state of a domain" }) },
  { value: "failed", label: t`Not found in time` },
  { value: "removed", label: t({ message: "Removed", context: "state of a domain" }) },
] as const satisfies readonly { value: HostStatus | "failing" | ""; label: string }[];

export function AdminDomainsPage() {
  const [filters, setFilters] = useUrlState({ q: "", status: "" });
  const status = oneOf(STATUS_FILTER, filters.status, "");
  const q = useDebounced(filters.q.trim().toLowerCase());
  const domains = useAllDomains({ q, status });
  const isFiltered = filters.q !== "" || status !== "";
  const acts = useActs();
  return (
    <Page title={t`Domains`} lead={t`Every domain that a reseller added: whose it is, and whether it is live.`}>
      <FilterBar isFiltered={isFiltered} onClear={() => setFilters({ q: "", status: "" })}>
        <SearchInput
          label={t`Search by name`}
          placeholder={t`Part of the name`}
          value={filters.q}
          onValue={(typed) => setFilters({ q: typed })}
          maxLength={HOST_CHARS_MAX}
        />
        <NativeSelect
          label={t`State`}
          value={status}
          onValue={(next) => setFilters({ status: next })}
          options={STATUS_FILTER}
        />
      </FilterBar>
      <Section flush>
        <Loaded query={domains} skeleton={<SkeletonRows rows={6} />}>
          {({ pages }) => (
            <DataTable
              caption={t`Domains`}
              rows={pages.flatMap((page) => page.domains)}
              rowKey={({ resellerId, host }) => `${resellerId}/${host}`}
              {...(status !== "removed" && { rowHref: hrefOf })}
              columns={COLUMNS}
              actions={(domain) =>
                domain.status !== "removed" && (
                  <Menu
                    trigger={
                      <IconButton icon={MoreHorizontal} label={t`Actions for ${{ name: domain.host }}`} size="sm" />
                    }
                    items={acts.itemsFor(domain)}
                  />
                )
              }
              empty={
                isFiltered ? (
                  <Empty icon={Search}>
                    <Trans>No domain matches.</Trans>
                  </Empty>
                ) : (
                  <Empty icon={Globe}>
                    <Trans>No domains yet. Resellers add them on their Domains page.</Trans>
                  </Empty>
                )
              }
              older={toOlder(domains)}
            />
          )}
        </Loaded>
      </Section>
      {acts.dialogs}
    </Page>
  );
}

function useAllDomains({ q, status }: { q: string; status: (typeof STATUS_FILTER)[number]["value"] }) {
  return useInfiniteQuery({
    queryKey: [...ADMIN_DOMAINS_KEY, "list", { q, status }],
    queryFn: ({ pageParam: before }) =>
      ask(
        api.admin.domains.get({
          query: { ...(q !== "" && { q }), ...(status !== "" && { status }), ...(before !== "" && { before }) },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: ({ domains: rows, hasMore }) => {
      const last = rows.at(-1);
      return hasMore && last ? `${last.resellerId}/${last.host}` : undefined;
    },
    placeholderData: keepPreviousData,
  });
}

function hrefOf({ resellerId, host }: Claim): string {
  return `/admin/domains/${resellerId}/${host}`;
}

const COLUMNS: Column<Listed>[] = [
  { head: t`Domain`, cell: ({ host }) => <span className="font-mono break-all">{host}</span> },
  {
    head: t`Reseller`,
    cell: ({ resellerId, resellerName }) => (
      <TextLink href={`/admin/people/${resellerId}`} className="row-above [overflow-wrap:anywhere]">
        {resellerName}
      </TextLink>
    ),
  },
  { head: t`State`, cell: (domain) => <DomainStatus domain={domain} /> },
  { head: t`Checked`, hideBelow: "md", cell: ({ checkedAt }) => <Ago iso={checkedAt} /> },
  { head: t`Added`, hideBelow: "lg", cell: ({ createdAt }) => <Instant iso={createdAt} /> },
];

export function AdminDomainPage() {
  const { resellerId = "", host = "" } = useParams();
  return <OneDomain key={`${resellerId}/${host}`} claim={{ resellerId: Number(resellerId), host }} />;
}

function OneDomain({ claim }: { claim: Claim }) {
  const [, navigate] = useLocation();
  const at = api.admin.domains({ resellerId: claim.resellerId })({ host: claim.host });
  const doctor = useDoctor({
    queryKey: [...ADMIN_DOMAINS_KEY, claim],
    listKey: [...ADMIN_DOMAINS_KEY, "list"],
    get: () => ask(at.get()),
    check: () => ask(at.check.post()),
  });
  const acts = useActs(() => navigate("/admin/domains"));
  return (
    <>
      <Loaded query={doctor.query} skeleton={<DomainSkeleton />}>
        {(domain) => (
          <DoctorPage
            domain={domain}
            doctor={doctor}
            facts={<OfReseller resellerId={claim.resellerId} />}
            actions={
              <Menu
                trigger={<Button icon={MoreHorizontal}>{t({ message: "Change", context: "button" })}</Button>}
                items={acts.itemsFor({ ...domain, ...claim }).slice(1)}
              />
            }
          />
        )}
      </Loaded>
      {acts.dialogs}
    </>
  );
}

function OfReseller({ resellerId }: { resellerId: number }) {
  const { data } = useQuery(personQuery(resellerId));
  const name = data?.name ?? t`reseller ${resellerId}`;
  return (
    <span>
      <Trans context="whose domain it is">
        Of <TextLink href={`/admin/people/${resellerId}`}>{name}</TextLink>.
      </Trans>
    </span>
  );
}

type Asked = { kind: "suspend" | "activate" | "remove"; claim: Claim };

/** What an admin can do with a domain: the items of its menu (a check first), and their dialogs. */
function useActs(onRemoved?: () => void) {
  const client = useQueryClient();
  const dialog = useOpened<Asked>();
  const refresh = () => client.invalidateQueries({ queryKey: ADMIN_DOMAINS_KEY });
  const refreshList = () => client.invalidateQueries({ queryKey: [...ADMIN_DOMAINS_KEY, "list"] });
  const check = useMutation({
    mutationFn: ({ resellerId, host }: Claim) => ask(api.admin.domains({ resellerId })({ host }).check.post()),
    onSuccess: (domain) => toast.done(`${domain.host}: ${statusWords(domain).words}.`),
    onError: (error) => toast.failed(error),
    onSettled: refresh,
  });
  const itemsFor = ({ status, byHand, resellerId, host }: DomainFacts & Claim): MenuItem[] => {
    const claim = { resellerId, host };
    const isHeld = status === "suspended" && byHand;
    return [
      { label: t`Check now`, icon: RotateCw, onSelect: () => check.mutate(claim) },
      ...(status === "active"
        ? []
        : [{ label: t`Switch on by hand`, icon: Play, onSelect: () => dialog.open({ kind: "activate", claim }) }]),
      ...(isHeld
        ? []
        : [{ label: t`Switch off`, icon: CirclePause, onSelect: () => dialog.open({ kind: "suspend", claim }) }]),
      "line",
      { label: t`Remove`, icon: Trash2, tone: "danger", onSelect: () => dialog.open({ kind: "remove", claim }) },
    ];
  };
  const { what } = dialog;
  const { times } = dialog;
  const state = what && { open: dialog.isOpen, onClose: dialog.close, claim: what.claim, refresh };
  const dialogs = state && (
    <>
      {what.kind === "suspend" && <Suspend key={times} {...state} />}
      {what.kind === "activate" && <Activate key={times} {...state} />}
      {what.kind === "remove" && <Remove key={times} {...state} refresh={refreshList} onRemoved={onRemoved} />}
    </>
  );
  return { itemsFor, dialogs };
}

type ActState = { open: boolean; onClose: () => void; claim: Claim; refresh: () => Promise<void> };

function Suspend({ open, onClose, claim: { resellerId, host }, refresh }: ActState) {
  const form = useForm({
    first: { reason: "" },
    wrong: { reason: null },
    send: async ({ reason }) => {
      const why = isBlank(reason) ? {} : { reason: reason.trim() };
      await ask(api.admin.domains({ resellerId })({ host }).suspend.post(why));
      await refresh();
    },
    onSent: () => {
      onClose();
      toast.done(t`${host} is off.`);
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Switch off ${host}?`}
      description={t`Panel and API stop answering there immediately. No check switches it on again; only an admin can.`}
      size="sm"
      submitLabel={t`Switch off`}
      cancelLabel={t`Keep it on`}
      isDanger
    >
      <TextField
        label={t`Reason`}
        optional
        hint={t`The reseller can read it. It is also in the audit log.`}
        {...form.field("reason")}
        maxLength={DOMAIN_REASON_CHARS_MAX}
      />
    </FormDialog>
  );
}

function Activate({ open, onClose, claim: { resellerId, host }, refresh }: ActState) {
  return (
    <Confirm
      open={open}
      onOpenChange={onClose}
      title={t`Switch on ${host} by hand?`}
      confirmLabel={t`Switch on`}
      isDanger={false}
      onConfirm={async () => {
        await ask(api.admin.domains({ resellerId })({ host }).activate.post());
        toast.done(t`${host} is live.`);
        await refresh();
      }}
    >
      <Trans>
        It is live immediately, whatever its DNS says. Automatic checks stop until a check that you start finds
        everything correct.
      </Trans>
    </Confirm>
  );
}

function Remove({
  open,
  onClose,
  claim: { resellerId, host },
  refresh,
  onRemoved,
}: ActState & { onRemoved: (() => void) | undefined }) {
  return (
    <ConfirmRemoval
      host={host}
      open={open}
      onClose={onClose}
      onConfirm={async () => {
        await ask(api.admin.domains({ resellerId })({ host }).delete());
        toast.done(t`${host} is removed.`);
        onRemoved?.();
        await refresh();
      }}
    >
      <Trans>
        Panel and API stop answering there immediately. The reseller may add the name again; others must prove that it
        is theirs.
      </Trans>
    </ConfirmRemoval>
  );
}
