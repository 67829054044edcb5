import { t } from "@lingui/core/macro";
import { LANGUAGE_TAGS, LANGUAGES, type LanguageTag } from "../../../languages/languages.ts";
import { api, ask, useMe } from "../api.ts";
import { language, showIn } from "../language.ts";
import { Field, NativeSelect, type Option } from "../ui/fields.tsx";
import { toast } from "../ui/toast.ts";
import { useViewer } from "./page_hooks.ts";

/** Choosing a language: before signing in for the browser, in the settings for the person. */

const OPTIONS = LANGUAGE_TAGS.map((tag): Option<LanguageTag> => ({ value: tag, label: LANGUAGES[tag].name }));

/** Without a choice, that of the browser or the brand. */
const NO_CHOICE = "";

/** The options of a field that may stay without a choice. */
export function languageOptions(none: string): Option<LanguageTag | typeof NO_CHOICE>[] {
  return [{ value: NO_CHOICE, label: none }, ...OPTIONS];
}

/** On pages without a person: this browser's. */
export function BrowserLanguage() {
  return <NativeSelect label={t`Language`} value={language} onValue={showIn} options={OPTIONS} lang="" />;
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
