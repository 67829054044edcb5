import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Globe, Plus } from "lucide-react";
import { useState } from "react";
import { useLocation, useParams } from "wouter";
import { api, ask, sentOnce, useIdempotencyKey, useMe } from "../api.ts";
import { EMPTY } from "../copy.ts";
import { Button } from "../ui/buttons.tsx";
import { Confirm, Dialog } from "../ui/dialog.tsx";
import { Field, TextInput } from "../ui/fields.tsx";
import { useForm } from "../ui/form.tsx";
import { Page, Section } from "../ui/page.tsx";
import { Banner, Empty, Loaded, Skeleton, SkeletonRows } from "../ui/states.tsx";
import { type Column, DataTable } from "../ui/table.tsx";
import { Ago } from "../ui/time.tsx";
import { toast } from "../ui/toast.tsx";
import { DoctorPage, DomainStatus, useDoctor } from "./domain_doctor.tsx";
import { nextCheckText, readHost } from "./domain_text.ts";
import { useOpened, useViewer } from "./page_hooks.ts";

/** A reseller's domains: the list, one of them with its DNS doctor, and how one is added and removed. */

const DOMAINS_KEY = ["domains"] as const;
/** While one of them waits for its DNS, the list is asked for again. */
const WAITING_MS = 20_000;
const HOST_CHARS_MAX = 300;

type Listed = NonNullable<Awaited<ReturnType<typeof api.domains.get>>["data"]>["domains"][number];

const COLUMNS: Column<Listed>[] = [
  { head: "Domain", cell: ({ host }) => <span className="font-mono break-all">{host}</span> },
  { head: "Status", cell: (domain) => <DomainStatus domain={domain} /> },
  { head: "Checked", cell: ({ checkedAt }) => <Ago iso={checkedAt} /> },
  {
    head: "Next check",
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
      Add domain
    </Button>
  );
  return (
    <Page
      title="Domains"
      lead="Addresses of your own, where your customers sign in and their programs call the API."
      action={addButton}
    >
      {isUnready && (
        <Banner tone="warn" title="No domain can be set up yet">
          The service has not been told its own addresses. Whoever runs it has to set them first.
        </Banner>
      )}
      <Section flush>
        <Loaded query={domains} skeleton={<SkeletonRows rows={3} />}>
          {({ domains: rows }) => (
            <DataTable
              caption="Domains"
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

function AddDomain({ open, onClose }: { open: boolean; onClose: () => void }) {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const formKey = useIdempotencyKey();
  const [typed, setTyped] = useState("");
  const form = useForm({
    wrong: { host: typed.trim() === "" ? "The address, as in ai.example.com." : null },
    send: async () => {
      const added = await ask(api.domains.post({ host: readHost(typed) }, sentOnce(formKey)));
      client.setQueryData([...DOMAINS_KEY, added.host], added);
      await client.invalidateQueries({ queryKey: [...DOMAINS_KEY, "list"] });
      return added;
    },
    onSent: ({ host }) => {
      onClose();
      navigate(`/domains/${host}`);
    },
  });
  return (
    <Dialog
      open={open}
      onOpenChange={onClose}
      title="Add domain"
      description="You get the records to set, and see at once what is missing."
      size="sm"
      onSubmit={form.submit}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary" pending={form.isPending}>
            Add domain
          </Button>
        </>
      }
    >
      <Field
        label="Domain"
        hint="A subdomain of a domain that is yours. What stands at the domain itself is not touched."
        error={form.errorOf("host")}
      >
        <TextInput
          mono
          inputMode="url"
          value={typed}
          onValue={setTyped}
          maxLength={HOST_CHARS_MAX}
          placeholder="ai.example.com"
        />
      </Field>
      {form.problem}
    </Dialog>
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
                Remove
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
    toast.done(`${host} is removed.`);
    navigate("/domains");
    client.removeQueries({ queryKey: [...DOMAINS_KEY, host] });
    await client.invalidateQueries({ queryKey: [...DOMAINS_KEY, "list"] });
  };
  return (
    <Confirm
      open={open}
      onOpenChange={onClose}
      title={`Remove ${host}?`}
      confirmLabel="Remove domain"
      cancelLabel="Keep domain"
      typeName={host}
      onConfirm={remove}
    >
      Panel and API stop answering there at once. Customers, keys and packages are kept.
      {isHere && " You are on this very address: afterwards sign in at another one."}
    </Confirm>
  );
}
