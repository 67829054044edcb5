import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Globe, Plus } from "lucide-react";
import { useLocation, useParams } from "wouter";
import { DOMAIN_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey, useMe } from "../../api.ts";
import { EMPTY } from "../../copy.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Banner, Empty, Loaded, Skeleton, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { ConfirmRemoval } from "./confirm_removal.tsx";
import { DoctorPage, DomainStatus, useDoctor } from "./domain_doctor.tsx";
import { nextCheckText, readHost } from "./domain_text.ts";

/** A reseller's domains: the list, one domain with its DNS doctor, and adding and removing domains. */

const DOMAINS_KEY = ["domains"] as const;
/** How often the list is loaded again while a domain waits for its DNS. */
const WAITING_MS = 20_000;

type Listed = NonNullable<Awaited<ReturnType<typeof api.domains.get>>["data"]>["domains"][number];

const COLUMNS: Column<Listed>[] = [
  { head: t`Domain`, cell: ({ host }) => <span className="font-mono break-all">{host}</span> },
  { head: t`State`, cell: (domain) => <DomainStatus domain={domain} /> },
  { head: t`Checked`, cell: ({ checkedAt }) => <Ago iso={checkedAt} /> },
  {
    head: t`Next check`,
    hideBelow: "md",
    cell: (domain) => {
      const words = nextCheckText(domain);
      return words === null ? <Ago iso={domain.nextCheckAt} /> : <span className="text-ink-3">{words}</span>;
    },
  },
];

export function DomainsPage() {
  const { lock } = useViewer();
  const adding = useOpened<true>();
  const domains = useQuery({
    queryKey: [...DOMAINS_KEY, "list"],
    queryFn: () => ask(api.domains.get()),
    refetchInterval: ({ state }) =>
      state.data?.domains.some(({ status }) => status === "verifying") ? WAITING_MS : false,
  });
  const isUnready = domains.data?.serverAddresses.length === 0;
  const addButton = (
    <Button variant="primary" icon={Plus} onClick={() => adding.open(true)} disabled={isUnready} {...lock}>
      <Trans>Add domain</Trans>
    </Button>
  );
  return (
    <Page title={t`Domains`} lead={t`Your own domains, where customers sign in and call the API.`} action={addButton}>
      {isUnready && (
        <Banner tone="warn" title={t`No domain can be set up yet`}>
          <Trans>The operator has to configure the addresses of the servers first.</Trans>
        </Banner>
      )}
      <Section flush>
        <Loaded query={domains} skeleton={<SkeletonRows rows={3} />}>
          {({ domains: rows }) => (
            <DataTable
              caption={t`Domains`}
              rows={rows}
              rowKey={({ host }) => host}
              rowHref={({ host }) => `/domains/${host}`}
              columns={COLUMNS}
              empty={
                <Empty icon={Globe} action={addButton}>
                  {EMPTY.domains}
                </Empty>
              }
            />
          )}
        </Loaded>
      </Section>
      {adding.times > 0 && <AddDomain key={adding.times} open={adding.isOpen} onClose={adding.close} />}
    </Page>
  );
}

function AddDomain(dialog: DialogState) {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const formKey = useIdempotencyKey();
  const form = useForm({
    first: { host: "" },
    wrong: ({ host }) => ({ host: isBlank(host) ? t`Enter the domain, such as ai.example.com.` : null }),
    send: async ({ host }) => {
      const added = await ask(api.domains.post({ host: readHost(host) }, sentOnce(formKey)));
      client.setQueryData([...DOMAINS_KEY, added.host], added);
      await client.invalidateQueries({ queryKey: [...DOMAINS_KEY, "list"] });
      return added;
    },
    onSent: ({ host }) => {
      dialog.onClose();
      navigate(`/domains/${host}`);
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Add domain`}
      description={t`Next you get the DNS records to set, and see which are missing.`}
      submitLabel={t`Add domain`}
      size="sm"
    >
      <TextField
        label={t`Domain`}
        hint={t`A subdomain of a domain that you own. The domain itself is not affected.`}
        {...form.field("host")}
        mono
        inputMode="url"
        maxLength={DOMAIN_CHARS_MAX}
        placeholder="ai.example.com"
      />
    </FormDialog>
  );
}

export function DomainPage() {
  const { host = "" } = useParams();
  return <OwnDomain key={host} host={host} />;
}

function OwnDomain({ host }: { host: string }) {
  const { lock } = useViewer();
  const removing = useOpened<true>();
  const doctor = useDoctor({
    queryKey: [...DOMAINS_KEY, host],
    listKey: [...DOMAINS_KEY, "list"],
    get: () => ask(api.domains({ host }).get()),
    check: () => ask(api.domains({ host }).check.post()),
  });
  return (
    <>
      <Loaded query={doctor.query} skeleton={<DomainSkeleton />}>
        {(domain) => (
          <DoctorPage
            domain={domain}
            doctor={doctor}
            actions={
              <Button variant="quiet" onClick={() => removing.open(true)} {...lock}>
                <Trans>Remove</Trans>
              </Button>
            }
          />
        )}
      </Loaded>
      <RemoveDomain host={host} open={removing.isOpen} onClose={removing.close} />
    </>
  );
}

export function DomainSkeleton() {
  return (
    <div className="mx-auto grid w-full max-w-[76rem] gap-6 px-4 pt-6 sm:px-6 lg:px-8 lg:pt-8">
      <Skeleton className="h-12 w-64" />
      <Skeleton className="h-28 rounded-lg" />
      <Skeleton className="h-60 rounded-lg" />
    </div>
  );
}

function RemoveDomain({ host, open, onClose }: { host: string; open: boolean; onClose: () => void }) {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const isHere = useMe().host === host;
  const remove = async () => {
    await ask(api.domains({ host }).delete());
    toast.done(t`${host} removed.`);
    navigate("/domains");
    client.removeQueries({ queryKey: [...DOMAINS_KEY, host] });
    await client.invalidateQueries({ queryKey: [...DOMAINS_KEY, "list"] });
  };
  return (
    <ConfirmRemoval host={host} open={open} onClose={onClose} onConfirm={remove}>
      <Trans>The panel and the API stop answering there immediately. Customers, keys and packages are kept.</Trans>
      {isHere && ` ${t`You are on this domain now. After removing it, sign in on another one.`}`}
    </ConfirmRemoval>
  );
}
