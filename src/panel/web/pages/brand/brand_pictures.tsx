import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation } from "@tanstack/react-query";
import { Upload } from "lucide-react";
import { type ReactNode, useRef } from "react";
import type { Accent } from "../../../../accounts/accent.ts";
import { BRAND_PICTURE_BYTES_MAX } from "../../../../limits.ts";
import { ApiError, api, ask } from "../../api.ts";
import { formatBytes } from "../../format.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { BrandMark } from "../../ui/brand_mark.tsx";
import { Button } from "../../ui/buttons.tsx";
import { cx } from "../../ui/cx.ts";
import { Section } from "../../ui/page.tsx";
import { Problem } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";
import { accentStyle } from "./brand_preview.tsx";
import { type SavedBrand, useSaved } from "./brand_saved.ts";

/** A brand's pictures: a logo for each theme, and the icon. A chosen file is saved immediately. */

const PICTURE_TYPES = ["image/png", "image/webp"];
/** The sizes in tabs and bookmarks, in pixels. */
const ICON_SIDES = [32, 16];

type Theme = "light" | "dark";

/** What a picture's buttons are called, and what is told after them. */
type PictureTexts = { upload: ReactNode; replace: ReactNode; remove: ReactNode; removed: string; saved: string };

const LOGO_TEXTS: Readonly<Record<Theme, PictureTexts>> = {
  light: {
    upload: (
      <Trans>
        Upload<span className="sr-only"> logo on light</span>
      </Trans>
    ),
    replace: (
      <Trans>
        Replace<span className="sr-only"> logo on light</span>
      </Trans>
    ),
    remove: (
      <Trans>
        Remove<span className="sr-only"> logo on light</span>
      </Trans>
    ),
    removed: t`Logo on light removed.`,
    saved: t`Logo on light saved.`,
  },
  dark: {
    upload: (
      <Trans>
        Upload<span className="sr-only"> logo on dark</span>
      </Trans>
    ),
    replace: (
      <Trans>
        Replace<span className="sr-only"> logo on dark</span>
      </Trans>
    ),
    remove: (
      <Trans>
        Remove<span className="sr-only"> logo on dark</span>
      </Trans>
    ),
    removed: t`Logo on dark removed.`,
    saved: t`Logo on dark saved.`,
  },
};
const ICON_TEXTS: PictureTexts = {
  upload: (
    <Trans>
      Upload<span className="sr-only"> icon</span>
    </Trans>
  ),
  replace: (
    <Trans>
      Replace<span className="sr-only"> icon</span>
    </Trans>
  ),
  remove: (
    <Trans>
      Remove<span className="sr-only"> icon</span>
    </Trans>
  ),
  removed: t`Icon removed.`,
  saved: t`Icon saved.`,
};

/** Removes the icon, if there is a logo. */
const MAKE_ICON = (
  <Trans>
    Make it from the logo<span className="sr-only"> icon</span>
  </Trans>
);

export function Logos({ saved, shades }: { saved: SavedBrand; shades: Accent | null }) {
  const put = useSaved();
  const slot = (theme: Theme) => {
    const [own, other] = theme === "light" ? [saved.logoLight, saved.logoDark] : [saved.logoDark, saved.logoLight];
    return (
      <PictureSlot
        texts={LOGO_TEXTS[theme]}
        hasOwn={own !== null}
        onPut={async (image) => put(await ask(api.brand.logo.put({ theme, image })))}
        note={own === null && other !== null ? t`Not set. The other logo is used.` : null}
        heading={theme === "light" ? t`On a light background` : t`On a dark background`}
      >
        <div
          style={accentStyle(shades?.[theme])}
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
    <Section
      title={t`Logo`}
      description={t`PNG or WebP, up to ${{ size: formatBytes(BRAND_PICTURE_BYTES_MAX) }}, shown 28 pixels high. Best with a transparent background.`}
    >
      <div className="grid gap-6 sm:grid-cols-2">
        {slot("light")}
        {slot("dark")}
      </div>
    </Section>
  );
}

export function Icon({ saved }: { saved: SavedBrand }) {
  const put = useSaved();
  const { icon } = saved;
  const hasLogo = saved.logoLight !== null || saved.logoDark !== null;
  return (
    <Section
      title={t`Icon`}
      description={t`Shown in the browser's tab. Made from your logo unless you upload an icon. Square icons work best.`}
    >
      <PictureSlot
        texts={hasLogo ? { ...ICON_TEXTS, remove: MAKE_ICON } : ICON_TEXTS}
        hasOwn={icon !== null}
        onPut={async (image) => put(await ask(api.brand.icon.put({ image })))}
        note={icon === null ? t`None yet.` : null}
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

/** A picture with its buttons. */
function PictureSlot({
  texts,
  hasOwn,
  onPut,
  note,
  heading,
  children,
}: {
  texts: PictureTexts;
  hasOwn: boolean;
  /** Base64, or null to remove the picture. */
  onPut: (image: string | null) => Promise<void>;
  note: string | null;
  heading?: string;
  children: ReactNode;
}) {
  const { lock } = useViewer();
  const input = useRef<HTMLInputElement>(null);
  const change = useMutation({
    mutationFn: async (file: File | null) => onPut(file === null ? null : await readPicture(file)),
    onSuccess: (_, file) => toast.done(file === null ? texts.removed : texts.saved),
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
            // Cleared, so that choosing the same file again is noticed.
            event.currentTarget.value = "";
            if (file) change.mutate(file);
          }}
        />
        <Button size="sm" icon={Upload} pending={change.isPending} onClick={() => input.current?.click()} {...lock}>
          {hasOwn ? texts.replace : texts.upload}
        </Button>
        {hasOwn && (
          <Button size="sm" variant="quiet" disabled={change.isPending} onClick={() => change.mutate(null)} {...lock}>
            {texts.remove}
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

/** The file is refused before it is sent. */
class PictureError extends Error {}

/** Throws PictureError. */
async function readPicture(file: File): Promise<string> {
  if (!PICTURE_TYPES.includes(file.type)) throw new PictureError(t`The picture must be a PNG or WebP file.`);
  if (file.size > BRAND_PICTURE_BYTES_MAX) {
    throw new PictureError(
      t`The picture has ${{ size: formatBytes(file.size) }}. The limit is ${{ limit: formatBytes(BRAND_PICTURE_BYTES_MAX) }}.`,
    );
  }
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(new PictureError(t`The file could not be read.`));
    reader.readAsDataURL(file);
  });
}
