import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { LogOut, Monitor, Smartphone } from "lucide-react";
import { api, ask } from "../../api.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { Hint } from "../../ui/hint.tsx";
import { Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { deviceName } from "./device_name.ts";
import { SETTINGS_KEY } from "./queries.ts";

/** The person's sessions, and signing each of them out. */

const DEVICES_KEY = [...SETTINGS_KEY, "devices"] as const;

type Listed = NonNullable<Awaited<ReturnType<typeof api.settings.devices.get>>["data"]>["devices"][number];

export function Devices() {
  const client = useQueryClient();
  const { lock } = useViewer();
  const devices = useQuery({
    queryKey: DEVICES_KEY,
    queryFn: () => ask(api.settings.devices.get()),
  });
  const refresh = () => client.invalidateQueries({ queryKey: DEVICES_KEY });
  const others = useMutation({
    mutationFn: () => ask(api["sign-out-everywhere"].post({})),
    onSuccess: ({ ended }) =>
      toast.done(plural(ended, { one: "# device signed out.", other: "# devices signed out." })),
    onError: (error) => toast.failed(error),
    onSettled: refresh,
  });
  const hasOthers = devices.data?.devices.some(({ current }) => !current);
  return (
    <Section
      title={t`Devices`}
      description={t`Where you are signed in. If you do not recognise a device, sign it out and change your password.`}
      flush
      action={
        hasOthers && (
          <Button size="sm" pending={others.isPending} onClick={() => others.mutate()} {...lock}>
            {t`Sign out all others`}
          </Button>
        )
      }
    >
      <Loaded query={devices} skeleton={<SkeletonRows rows={2} />}>
        {({ devices: listed }) =>
          listed.length === 0 ? (
            <Empty>{t`No device is signed in.`}</Empty>
          ) : (
            <ul>
              {listed.map((device) => (
                <DeviceRow key={device.id} device={device} onEnded={refresh} />
              ))}
            </ul>
          )
        }
      </Loaded>
    </Section>
  );
}

function DeviceRow({ device, onEnded }: { device: Listed; onEnded: () => Promise<void> }) {
  const { lock } = useViewer();
  const { host, address } = device;
  const name = deviceName(device.userAgent);
  const end = useMutation({
    mutationFn: () => ask(api.settings.devices({ id: device.id }).delete()),
    onSuccess: () => toast.done(t`${name} is signed out.`),
    onError: (error) => toast.failed(error),
    onSettled: onEnded,
  });
  const Icon = /iPhone|Android/.test(name) ? Smartphone : Monitor;
  return (
    <li className="flex items-start gap-3 border-b border-line px-4 py-3 last:border-0 sm:px-6">
      <Icon size={16} aria-hidden className="mt-0.5 flex-none text-ink-3" />
      <div className="min-w-0 flex-1">
        <p className="flex flex-wrap items-center gap-x-2 text-14 font-medium">
          <Hint says={device.userAgent}>{name}</Hint>
          {device.current && <Badge tone="ok">{t`This device`}</Badge>}
        </p>
        <p className="text-13 break-words text-ink-2">
          <Trans>
            {host}, from <span className="figures">{address}</span>
          </Trans>
        </p>
        <p className="text-12 text-ink-3">
          <Trans>
            Last seen <Ago iso={device.seenAt} />, signed in <Instant iso={device.createdAt} />
          </Trans>
        </p>
      </div>
      {!device.current && (
        <Button size="sm" variant="quiet" icon={LogOut} pending={end.isPending} onClick={() => end.mutate()} {...lock}>
          <Trans>
            Sign out
            <span className="sr-only"> {name}</span>
          </Trans>
        </Button>
      )}
    </li>
  );
}
