import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { accentCss } from "../../../../accounts/accent.ts";
import { languageTag } from "../../../../languages/languages.ts";
import { BRAND_NAME_CHARS_MAX, BRAND_SUPPORT_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { languageOptions } from "../../shared/language_choice.tsx";
import { useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { Field, NativeSelect, TextField, TextInput } from "../../ui/fields.tsx";
import { type FieldState, isBlank, PageForm, useForm } from "../../ui/form.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Loaded, Skeleton } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";
import { mailServerQuery } from "../messages/queries.ts";
import { signUpQuery } from "../sign_up/queries.ts";
import { accentNote, readHex } from "./brand_colour.ts";
import { Icon, Logos } from "./brand_pictures.tsx";
import { BrandPreview } from "./brand_preview.tsx";
import { BRAND_KEY, type SavedBrand, useSaved } from "./brand_saved.ts";

/** A reseller's brand: a form for name, contact and colour; the pictures, each saved on its own; and a preview. */

const COLOUR_CHARS_MAX = 7;
/** The light theme's accent of app.css: where the colour picker starts. */
const STANDARD_ACCENT = "#006678";

export function BrandPage() {
  const brand = useQuery({ queryKey: BRAND_KEY, queryFn: () => ask(api.brand.get()) });
  return (
    <Page title={t`Brand`} lead={t`The name, logo and colour that your customers see. They see no other name.`}>
      <Loaded query={brand} skeleton={<BrandSkeleton />}>
        {(saved) => <BrandEditor saved={saved} />}
      </Loaded>
    </Page>
  );
}

function BrandSkeleton() {
  return (
    <div className="grid gap-6 lg:grid-cols-[minmax(0,1fr)_24rem]">
      <Skeleton className="h-96 rounded-lg" />
      <Skeleton className="h-96 rounded-lg" />
    </div>
  );
}

function BrandEditor({ saved }: { saved: SavedBrand }) {
  const form = useBrandForm(saved);
  const server = useQuery(mailServerQuery);
  const signUp = useQuery(signUpQuery);
  const { name, support, accent } = form.values;
  const hex = readHex(accent);
  const shades = hex === null ? null : accentCss(hex);
  return (
    <div className="grid gap-6 lg:grid-cols-[minmax(0,1fr)_24rem] lg:items-start">
      <div className="grid min-w-0 gap-6">
        <BrandForm form={form} />
        <Logos saved={saved} shades={shades} />
        <Icon saved={saved} />
      </div>
      <BrandPreview
        name={isBlank(name) ? saved.name : name.trim()}
        support={support.trim()}
        pictures={saved}
        shades={shades}
        sendsMail={server.data?.server != null}
        signUp={server.data?.server != null && signUp.data?.isOpen === true}
      />
    </div>
  );
}

function typedBrand({ name, support, accent, language }: SavedBrand) {
  return { name, support: support ?? "", accent: accent ?? "", language: language ?? "" };
}

function useBrandForm(saved: SavedBrand) {
  const put = useSaved();
  const form = useForm({
    first: typedBrand(saved),
    wrong: ({ name, accent }) => ({
      name: isBlank(name) ? t`Enter the name that your customers know.` : null,
      support: null,
      language: null,
      accent: isBlank(accent) || readHex(accent) !== null ? null : t`Enter a colour as #rrggbb, such as #0a7d5c.`,
    }),
    send: async ({ name, support, accent, language }) => {
      const contact = isBlank(support) ? null : support.trim();
      const words = { name: name.trim(), support: contact, language: languageTag(language) ?? null };
      return await ask(api.brand.put({ ...words, accent: readHex(accent) }));
    },
    onSent: (brand) => {
      put(brand);
      form.reset(typedBrand(brand));
      toast.done(t`Brand saved. Customers see it when they next load a page.`);
    },
  });
  return form;
}

function BrandForm({ form }: { form: ReturnType<typeof useBrandForm> }) {
  const { lock } = useViewer();
  return (
    <Section title={t`Name, contact, language and colour`}>
      <PageForm form={form} saveLabel={t`Save brand`} lock={lock}>
        <TextField
          label={t`Name`}
          hint={t`In the title of every page, and wherever there is no logo.`}
          {...form.field("name")}
          maxLength={BRAND_NAME_CHARS_MAX}
        />
        <TextField
          label={t`Support contact`}
          optional
          hint={t`An e-mail address or an https:// page. Shown at sign-in and with links that do not work.`}
          {...form.field("support")}
          maxLength={BRAND_SUPPORT_CHARS_MAX}
          placeholder="help@acme.com"
          autoCapitalize="none"
        />
        <BrandLanguage {...form.field("language")} />
        <ColourField {...form.field("accent")} />
      </PageForm>
    </Section>
  );
}

function BrandLanguage({ value, onValue, error }: FieldState) {
  return (
    <Field label={t`Language`} hint={t`Of pages, mails and invoices for those who chose none.`} error={error}>
      <NativeSelect
        value={value}
        onValue={onValue}
        options={languageOptions(t`That of the browser; English in mails`)}
      />
    </Field>
  );
}

function ColourField({ value, onValue, error }: FieldState) {
  const hex = readHex(value);
  const note = hex === null ? null : accentNote(accentCss(hex).light);
  return (
    <Field
      label={t`Colour`}
      optional
      hint={t`For buttons, links and selected items. Empty: the standard colour.`}
      error={error}
    >
      <div className="flex flex-wrap items-center gap-2">
        <input
          type="color"
          aria-label={t`Pick a colour`}
          value={hex ?? STANDARD_ACCENT}
          onChange={(event) => onValue(event.currentTarget.value)}
          className="h-(--control) w-14 flex-none rounded-md border border-edge bg-surface p-1 disabled:opacity-50"
        />
        <div className="w-32">
          <TextInput
            mono
            value={value}
            onValue={onValue}
            onBlur={() => hex !== null && onValue(hex)}
            maxLength={COLOUR_CHARS_MAX}
            placeholder="#0a7d5c"
          />
        </div>
        {value !== "" && (
          <Button variant="quiet" size="sm" onClick={() => onValue("")}>
            <Trans>Use the standard colour</Trans>
          </Button>
        )}
      </div>
      {/* Always in the page, so that screen readers announce its text. */}
      <p role="status" className="text-13 text-ink-2 empty:hidden">
        {note}
      </p>
    </Field>
  );
}
