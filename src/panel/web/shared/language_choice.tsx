import { t } from "@lingui/core/macro";
import type { LanguageTag } from "../../../languages/languages.ts";
import { api, ask, useMe } from "../api.ts";
import { showIn } from "../language.ts";
import { LANGUAGE_OPTIONS } from "../ui/browser_language.tsx";
import { Field, NativeSelect, type Option } from "../ui/fields.tsx";
import { toast } from "../ui/toast.ts";
import { useViewer } from "./page_hooks.ts";

/** Choosing the language of a person, or of a brand. */

/** Without a choice, that of the browser or the brand. */
const NO_CHOICE = "";

/** The options of a field that may stay without a choice. */
export function languageOptions(none: string): Option<LanguageTag | typeof NO_CHOICE>[] {
  return [{ value: NO_CHOICE, label: none }, ...LANGUAGE_OPTIONS];
}

/** In the settings: the person's, on every device and in their mails. */
export function OwnLanguage() {
  const me = useMe();
  const { lock } = useViewer();
  const choose = async (chosen: LanguageTag | typeof NO_CHOICE) => {
    const tag = chosen === NO_CHOICE ? null : chosen;
    try {
      await ask(api.settings.language.patch({ language: tag }));
      showIn(tag);
    } catch (thrown) {
      toast.failed(thrown);
    }
  };
  return (
    <Field label={t`Language`} hint={t`Of the panel, and of mails and invoices to you.`}>
      <NativeSelect
        value={me.person.language ?? NO_CHOICE}
        onValue={(chosen) => void choose(chosen)}
        options={languageOptions(t`As ${{ brand: me.brand.name }} sets it`)}
        {...lock}
      />
    </Field>
  );
}
