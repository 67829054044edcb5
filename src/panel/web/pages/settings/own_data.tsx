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
      title="Your data"
      description="Everything that is kept of you, as one file. Requests are a CSV file on the page Usage."
    >
      <div className="flex flex-wrap gap-2">
        <DownloadButton path={() => "/settings/data"} fileName="account.json">
          Download your data
        </DownloadButton>
        <Button className="text-bad!" onClick={() => dialog.open("erase")} {...lock}>
          Erase your account
        </Button>
      </div>
      {dialog.what === "erase" && (
        <EraseDialog
          key={dialog.times}
          open={dialog.isOpen}
          onClose={dialog.close}
          whose="Your"
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
