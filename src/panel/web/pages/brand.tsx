import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { accentCss } from "../../../accounts/accent.ts";
import { api, ask } from "../api.ts";
import { Button } from "../ui/buttons.tsx";
import { Field, TextInput } from "../ui/fields.tsx";
import { useForm } from "../ui/form.tsx";
import { Page, Section } from "../ui/page.tsx";
import { Loaded, Skeleton } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { accentNote, readHex } from "./brand_colour.ts";
import { Icon, Logos } from "./brand_pictures.tsx";
import { BrandPreview } from "./brand_preview.tsx";
import { BRAND_KEY, type SavedBrand, useSaved } from "./brand_saved.ts";
import { useViewer } from "./page_hooks.ts";

/** A reseller's brand: name, contact and colour in one form, pictures one by one, and beside them what customers will see. */

/** Source: accounts › brands_store. */
const NAME_CHARS_MAX = 60;
const SUPPORT_CHARS_MAX = 300;
const COLOUR_CHARS_MAX = 7;
/** app.css's own accent by day, where a colour is picked for the first time. */
const STANDARD_ACCENT = "#006678";

type Draft = { name: string; support: string; accent: string };

export function BrandPage() {
  const brand = useQuery({ queryKey: BRAND_KEY, queryFn: () => ask(api.brand.get()) });
  return (
    <Page title="Brand" lead="The name, logo and colour your customers see. Nothing else tells them who is behind it.">
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
  const [typed, setTyped] = useState<Partial<Draft>>({});
  const draft: Draft = {
    name: saved.name,
    support: saved.support ?? "",
    accent: saved.accent ?? "",
    ...typed,
  };
  const hex = readHex(draft.accent);
  const shades = hex === null ? null : accentCss(hex);
  return (
    <div className="grid gap-6 lg:grid-cols-[minmax(0,1fr)_24rem] lg:items-start">
      <div className="grid min-w-0 gap-6">
        <WordsAndColour
          saved={saved}
          draft={draft}
          onDraft={(change) => setTyped({ ...typed, ...change })}
          onSaved={() => setTyped({})}
        />
        <Logos saved={saved} shades={shades} />
        <Icon saved={saved} />
      </div>
      <BrandPreview
        name={draft.name.trim() === "" ? saved.name : draft.name.trim()}
        support={draft.support.trim()}
        pictures={saved}
        shades={shades}
      />
    </div>
  );
}

function WordsAndColour({
  saved,
  draft: { name, support, accent },
  onDraft,
  onSaved,
}: {
  saved: SavedBrand;
  draft: Draft;
  onDraft: (change: Partial<Draft>) => void;
  onSaved: () => void;
}) {
  const { lock } = useViewer();
  const put = useSaved();
  const hex = readHex(accent);
  const isChanged = name !== saved.name || support !== (saved.support ?? "") || accent !== (saved.accent ?? "");
  const form = useForm({
    wrong: {
      name: name.trim() === "" ? "The name your customers know you by." : null,
      support: null,
      accent: accent.trim() !== "" && hex === null ? "As #rrggbb, like #0a7d5c." : null,
    },
    send: async () => {
      const contact = support.trim();
      put(await ask(api.brand.put({ name: name.trim(), accent: hex, support: contact === "" ? null : contact })));
    },
    onSent: () => {
      onSaved();
      toast.done("Brand saved. Customers see it when they next load a page.");
    },
  });
  return (
    <Section title="Name, contact and colour">
      <form
        noValidate
        className="grid gap-4"
        onSubmit={(event) => {
          event.preventDefault();
          form.submit();
        }}
      >
        <Field
          label="Name"
          hint="In the title of every page, and wherever there is no logo."
          error={form.errorOf("name")}
        >
          <TextInput
            value={name}
            onValue={(value) => onDraft({ name: value })}
            maxLength={NAME_CHARS_MAX}
            disabled={lock.disabled}
          />
        </Field>
        <Field
          label="Support contact"
          optional
          hint="An e-mail address, or a page at https://. Shown where people are stuck: at sign-in, and with links that do not work."
          error={form.errorOf("support")}
        >
          <TextInput
            value={support}
            onValue={(value) => onDraft({ support: value })}
            maxLength={SUPPORT_CHARS_MAX}
            placeholder="help@acme.com"
            autoCapitalize="none"
            disabled={lock.disabled}
          />
        </Field>
        <ColourField
          value={accent}
          hex={hex}
          onValue={(value) => onDraft({ accent: value })}
          error={form.errorOf("accent")}
        />
        {form.problem}
        <div>
          <Button type="submit" variant={isChanged ? "primary" : "secondary"} pending={form.isPending} {...lock}>
            Save brand
          </Button>
        </div>
      </form>
    </Section>
  );
}

function ColourField({
  value,
  hex,
  onValue,
  error,
}: {
  value: string;
  hex: string | null;
  onValue: (value: string) => void;
  error: string | null;
}) {
  const { lock } = useViewer();
  const news = hex === null ? null : accentNote(accentCss(hex).light);
  return (
    <Field label="Colour" optional hint="Of buttons, links and what is chosen. Empty: the standard one." error={error}>
      <div className="flex flex-wrap items-center gap-2">
        <input
          type="color"
          aria-label="Pick a colour"
          value={hex ?? STANDARD_ACCENT}
          onChange={(event) => onValue(event.currentTarget.value)}
          disabled={lock.disabled}
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
            disabled={lock.disabled}
          />
        </div>
        {value !== "" && (
          <Button variant="quiet" size="sm" onClick={() => onValue("")} {...lock}>
            Use the standard colour
          </Button>
        )}
      </div>
      {/* Always there, so that what appears in it is read aloud. */}
      <p role="status" className="text-13 text-ink-2 empty:hidden">
        {news}
      </p>
    </Field>
  );
}
