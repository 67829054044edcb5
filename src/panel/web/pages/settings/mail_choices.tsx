import { t } from "@lingui/core/macro";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { Switch } from "../../ui/choices.tsx";
import { Section } from "../../ui/page.tsx";
import { Loaded, Skeleton } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";
import { kindWords } from "../messages/message_words.ts";
import { SETTINGS_KEY } from "./queries.ts";

/** The person's choice of mails: each kind is on or off. */

const CHOICES_KEY = [...SETTINGS_KEY, "mails"] as const;

export function MailChoices() {
  const client = useQueryClient();
  const { lock } = useViewer();
  const choices = useQuery({ queryKey: CHOICES_KEY, queryFn: () => ask(api.settings.mails.get()) });
  const change = useMutation({
    mutationFn: async (choice: { kind: string; mailed: boolean }) => {
      await ask(api.settings.mails.put(choice));
      await client.invalidateQueries({ queryKey: CHOICES_KEY });
    },
    onError: (error) => toast.failed(error),
  });
  return (
    <Section
      title={t`Mail`}
      description={
        choices.data?.canMail === false
          ? t`No mail server is set at present. Your choices apply once there is one.`
          : t`Choose your mails. Invitations and mails about how you sign in are always sent.`
      }
    >
      <Loaded query={choices} skeleton={<Skeleton className="h-40" />}>
        {({ kinds }) => (
          <div className="grid gap-3">
            {kinds.map(({ kind, mailed }) => (
              <Switch
                key={kind}
                label={kindWords(kind)}
                checked={mailed}
                pending={change.isPending && change.variables.kind === kind}
                onValue={(isOn) => change.mutate({ kind, mailed: isOn })}
                {...(lock.disabled && { disabled: true })}
              />
            ))}
          </div>
        )}
      </Loaded>
    </Section>
  );
}
