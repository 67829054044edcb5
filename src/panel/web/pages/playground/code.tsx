import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Code } from "lucide-react";
import { useMe } from "../../api.ts";
import { useOpened } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { SnippetTabs } from "../../ui/copy_field.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { type CodeOf, requestCode, shortened } from "../../ui/request_code.ts";

/** Opens the code of exactly the request that was sent. */
export function CodeButton({ codeOf }: { codeOf: () => CodeOf }) {
  const dialog = useOpened<CodeOf>();
  return (
    <>
      <Button size="sm" variant="quiet" icon={Code} onClick={() => dialog.open(codeOf())} className="px-2">
        {t({ message: "Code", context: "of a program" })}
      </Button>
      {dialog.what && (
        <Dialog
          open={dialog.isOpen}
          onOpenChange={dialog.close}
          title={t`Code of this request`}
          description={t`Your server sends the same request with this code. It reads the API key from the variable API_KEY.`}
          size="lg"
        >
          <RequestCode code={dialog.what} />
        </Dialog>
      )}
    </>
  );
}

function RequestCode({ code }: { code: CodeOf }) {
  const { apiBaseUrl } = useMe();
  const snippets = requestCode({ ...code, baseUrl: apiBaseUrl, key: null });
  return (
    <>
      <SnippetTabs snippets={snippets} label={t`Code of this request`} />
      {snippets.some((snippet) => shortened(snippet.code) !== snippet.code) && (
        <p className="text-13 text-ink-2">
          <Trans>The data of images is shortened here. Copy copies all of it.</Trans>
        </p>
      )}
    </>
  );
}
