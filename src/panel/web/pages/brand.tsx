import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Upload } from "lucide-react";
import { type ReactNode, useRef, useState } from "react";
import { type Accent, accentCss } from "../../../accounts/accent.ts";
import { ApiError, api, ask, ME_KEY } from "../api.ts";
import { formatBytes } from "../format.ts";
import { BrandMark } from "../ui/brand_mark.tsx";
import { Button, Field, TextInput } from "../ui/controls.tsx";
import { cx } from "../ui/cx.ts";
import { brandName, Page, Section } from "../ui/page.tsx";
import { Loaded, Problem, Skeleton } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { useForm } from "./admin_form.tsx";
import { ACCENT_VARIABLES, accentVariables, BrandPreview } from "./brand_preview.tsx";
import { useViewer } from "./forms.ts";
import { accentNews, readHex } from "./own_words.ts";

/** A reseller's brand: name, contact and colour in one form, pictures one by one, and beside them what customers will see. */

/** Source: accounts › brands_store. */
const NAME_CHARS_MAX = 60;
const SUPPORT_CHARS_MAX = 300;
const COLOUR_CHARS_MAX = 7;
/** Source: accounts › pictures. */
const PICTURE_BYTES_MAX = 256 * 1024;
const PICTURE_TYPES = ["image/png", "image/webp"];
/** app.css's own accent by day, where a colour is picked for the first time. */
const STANDARD_ACCENT = "#006678";
/** As tabs and bookmarks show it, in pixels. */
const ICON_SIDES = [32, 16];
const BRAND_KEY = ["brand"] as const;

type Saved = NonNullable<Awaited<ReturnType<typeof api.brand.get>>["data"]>;
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

function BrandEditor({ saved }: { saved: Saved }) {
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
  saved: Saved;
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
  const news = hex === null ? null : accentNews(accentCss(hex).light);
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

/** Keeps what a change answered, and has the frame around the page show it. */
function useSaved(): (brand: Saved) => void {
  const client = useQueryClient();
  return (brand) => {
    const before = client.getQueryData<Saved>(BRAND_KEY);
    client.setQueryData(BRAND_KEY, brand);
    // A host that wears another brand, the service's own, stays as it is.
    if (before && brandName() === before.name) wear(brand);
    // Not awaited: the change is done, whether the frame can be drawn anew or not.
    void client.invalidateQueries({ queryKey: ME_KEY });
  };
}

/** Name and colour of this very page, as they will be when it is loaded again. */
function wear({ name, accent }: Saved): void {
  document.querySelector('meta[name="application-name"]')?.setAttribute("content", name);
  const sheet = document.querySelector<HTMLLinkElement>('link[href^="/brand.css"]');
  if (sheet) sheet.disabled = true;
  const made = accent === null ? null : accentCss(accent);
  const { style } = document.documentElement;
  for (const [variable, shade] of ACCENT_VARIABLES) {
    if (made === null) style.removeProperty(variable);
    else style.setProperty(variable, `light-dark(${made.light[shade]},${made.dark[shade]})`);
  }
}

type Theme = "light" | "dark";

function Logos({ saved, shades }: { saved: Saved; shades: Accent | null }) {
  const put = useSaved();
  const slot = (theme: Theme) => {
    const [own, other] = theme === "light" ? [saved.logoLight, saved.logoDark] : [saved.logoDark, saved.logoLight];
    const words = theme === "light" ? "on light" : "on dark";
    return (
      <PictureSlot
        label={`Logo ${words}`}
        hasOwn={own !== null}
        onPut={async (image) => put(await ask(api.brand.logo.put({ theme, image })))}
        note={own === null && other !== null ? "None of its own: the other logo is used." : null}
        heading={`On a ${theme} ground`}
      >
        <div
          style={accentVariables(shades?.[theme])}
          className={cx("grid h-28 place-items-center rounded-md border border-line bg-bg p-6 text-ink", `on-${theme}`)}
        >
          <span className="flex max-w-full min-w-0 items-center gap-3 font-semibold">
            <BrandMark brand={saved} theme={theme} />
          </span>
        </div>
      </PictureSlot>
    );
  };
  return (
    <Section title="Logo" description="PNG or WebP, up to 256 KB, shown 28 pixels high. Best with a clear ground.">
      <div className="grid gap-6 sm:grid-cols-2">
        {slot("light")}
        {slot("dark")}
      </div>
    </Section>
  );
}

function Icon({ saved }: { saved: Saved }) {
  const put = useSaved();
  const { icon } = saved;
  const hasLogo = saved.logoLight !== null || saved.logoDark !== null;
  return (
    <Section
      title="Icon"
      description="In the browser's tab. Made from your logo, unless you bring your own: a square one is easier to see."
    >
      <PictureSlot
        label="Icon"
        hasOwn={icon !== null}
        onPut={async (image) => put(await ask(api.brand.icon.put({ image })))}
        note={icon === null ? "None yet." : null}
        removeLabel={hasLogo ? "Make it from the logo" : "Remove"}
      >
        {icon !== null && (
          <div className="flex flex-wrap gap-3">
            {["on-light", "on-dark"].map((ground) => (
              <span
                key={ground}
                className={cx("flex items-center gap-4 rounded-md border border-line bg-bg px-4 py-3", ground)}
              >
                {ICON_SIDES.map((side) => (
                  <img key={side} src={icon} alt="" width={side} height={side} />
                ))}
              </span>
            ))}
          </div>
        )}
      </PictureSlot>
    </Section>
  );
}

/** A picture with its buttons. What is chosen is sent at once. */
function PictureSlot({
  label,
  hasOwn,
  onPut,
  note,
  heading,
  removeLabel = "Remove",
  children,
}: {
  label: string;
  hasOwn: boolean;
  /** Base64, or null to take it away. */
  onPut: (image: string | null) => Promise<void>;
  note: string | null;
  heading?: string;
  removeLabel?: string;
  children: ReactNode;
}) {
  const { lock } = useViewer();
  const input = useRef<HTMLInputElement>(null);
  const change = useMutation({
    mutationFn: async (file: File | null) => onPut(file === null ? null : await readPicture(file)),
    onSuccess: (_, file) => toast.done(file === null ? `${label} removed.` : `${label} saved.`),
  });
  const { error } = change;
  const wrong = error instanceof PictureError || (error instanceof ApiError && error.param === "image");
  return (
    <div className="grid content-start gap-3">
      {heading && <h3 className="text-13 font-medium">{heading}</h3>}
      {children}
      {note && <p className="text-12 text-ink-3">{note}</p>}
      <div className="flex flex-wrap gap-2">
        <input
          ref={input}
          type="file"
          accept={PICTURE_TYPES.join(",")}
          hidden
          onChange={(event) => {
            const file = event.currentTarget.files?.[0];
            // The same file chosen again is a new try.
            event.currentTarget.value = "";
            if (file) change.mutate(file);
          }}
        />
        <Button size="sm" icon={Upload} pending={change.isPending} onClick={() => input.current?.click()} {...lock}>
          {hasOwn ? "Replace" : "Upload"}
          <span className="sr-only"> {label.toLowerCase()}</span>
        </Button>
        {hasOwn && (
          <Button size="sm" variant="quiet" disabled={change.isPending} onClick={() => change.mutate(null)} {...lock}>
            {removeLabel}
            <span className="sr-only"> {label.toLowerCase()}</span>
          </Button>
        )}
      </div>
      {wrong ? (
        <p role="alert" className="text-13 text-bad">
          {error.message}
        </p>
      ) : (
        error && <Problem error={error} />
      )}
    </div>
  );
}

/** A file that need not be sent to know that it will not be taken. */
class PictureError extends Error {}

/** Throws PictureError. */
async function readPicture(file: File): Promise<string> {
  if (!PICTURE_TYPES.includes(file.type)) throw new PictureError("The picture must be a PNG or WebP file.");
  if (file.size > PICTURE_BYTES_MAX) {
    throw new PictureError(
      `The picture has ${formatBytes(file.size)}; it may have at most ${formatBytes(PICTURE_BYTES_MAX)}.`,
    );
  }
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(new PictureError("The file could not be read."));
    reader.readAsDataURL(file);
  });
}
