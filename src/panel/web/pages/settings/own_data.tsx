import { t } from "@lingui/core/macro";
import { api, ask } from "../../api.ts";
import { DownloadButton } from "../../shared/download_button.tsx";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { Section } from "../../ui/page.tsx";
import { EraseDialog } from "./erase_dialog.tsx";
import { useHasPasskey } from "./passkeys.tsx";

/** What is kept of the person: as a file, and erased. */
export function OwnData({ owner: { email, totpEnabled } }: { owner: { email: string; totpEnabled: boolean } }) {
  const { lock } = useViewer();
  const hasPasskey = useHasPasskey();
  const dialog = useOpened<"erase">();
  return (
    <Section
      title={t`Your data`}
      description={t`Everything that is kept of you, as one file. Requests are a CSV file on the page Usage.`}
    >
      <div className="flex flex-wrap gap-2">
        <DownloadButton path={() => "/settings/data"} fileName="account.json">
          {t`Download your data`}
        </DownloadButton>
        <Button className="text-bad!" onClick={() => dialog.open("erase")} {...lock}>
          {t`Erase your account`}
        </Button>
      </div>
      {dialog.what === "erase" && (
        <EraseDialog
          key={dialog.times}
          open={dialog.isOpen}
          onClose={dialog.close}
          person={null}
          hasPasskey={hasPasskey}
          asksForCode={totpEnabled}
          email={email}
          send={(body) => ask(api.settings.erase.post(body))}
          onErased={() => window.location.assign("/")}
        />
      )}
    </Section>
  );
}
