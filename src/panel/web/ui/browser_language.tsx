import { t } from "@lingui/core/macro";
import { LANGUAGE_TAGS, LANGUAGES, type LanguageTag } from "../../../languages/languages.ts";
import { language, showIn } from "../language.ts";
import { NativeSelect, type Option } from "./fields.tsx";

/** Each language by its own name. */
export const LANGUAGE_OPTIONS = LANGUAGE_TAGS.map(
  (tag): Option<LanguageTag> => ({ value: tag, label: LANGUAGES[tag].name }),
);

/** The language of this browser, on pages without a person. */
export function BrowserLanguage() {
  return <NativeSelect label={t`Language`} value={language} onValue={showIn} options={LANGUAGE_OPTIONS} />;
}
