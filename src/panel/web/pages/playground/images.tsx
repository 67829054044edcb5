import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Download, ImagePlus } from "lucide-react";
import { useId } from "react";
import { IMAGE_PROMPT_CHARS, IMAGE_SIZES } from "../../../../limits.ts";
import { formatCount, formatTook } from "../../format.ts";
import { Button, TextLink } from "../../ui/buttons.tsx";
import { cx } from "../../ui/cx.ts";
import { Field, TextArea } from "../../ui/fields.tsx";
import { FormFrame } from "../../ui/form_frame.tsx";
import { Loading, Skeleton } from "../../ui/states.tsx";
import { CodeButton } from "./code.tsx";
import { clearImageError, imageBody, makeImage, type Picture, useImages } from "./image_session.ts";
import { type Choice, imageCost, type Offers, useChoice, useRefreshAfterCharge } from "./models.ts";
import { PlaygroundProblem } from "./problem.tsx";
import { ModelAndKey, SettingsPanel } from "./settings.tsx";
import { setPlayground, usePlayground } from "./state.ts";

/** Image generation: the price of each size, the images with their cost, and their files. */

/** Image pixels per screen pixel of a size tile. */
const TILE_SCALE = 40;
const ALT_CHARS_MAX = 200;

export function Images({ offers, blocked }: { offers: Offers; blocked: string | null }) {
  const choice = useChoice(offers, "images");
  const { pictures, sendingSince, error } = useImages();
  const size = usePlayground((state) => state.size);
  return (
    <div className="grid gap-6 lg:grid-cols-[minmax(0,1fr)_18rem] lg:gap-8">
      <SettingsPanel summary={choice.model ? choice.model.id : t`Settings`}>
        <ModelAndKey offers={offers} choice={choice} kind="images" />
      </SettingsPanel>
      <div className="grid min-w-0 content-start gap-6 lg:col-start-1 lg:row-start-1">
        <ImageForm choice={choice} blocked={blocked} />
        {error !== null && (
          <PlaygroundProblem error={error} model={choice.model?.id} alternatives={choice.models.map(({ id }) => id)} />
        )}
        <ul aria-label={t`Images`} className="grid gap-6 sm:grid-cols-2">
          {sendingSince !== null && (
            <li>
              <Loading>
                <div style={{ aspectRatio: size.replace("x", " / ") }}>
                  <Skeleton className="h-full rounded-md" />
                </div>
              </Loading>
            </li>
          )}
          {pictures.map((picture) => (
            <li key={picture.id}>
              <PictureView picture={picture} />
            </li>
          ))}
        </ul>
        {pictures.length === 0 && sendingSince === null && (
          <p className="text-14 text-ink-2">
            <Trans>Images appear here. They are not stored: download the ones you want to keep.</Trans>
          </p>
        )}
      </div>
    </div>
  );
}

function ImageForm({ choice, blocked }: { choice: Choice; blocked: string | null }) {
  const prompt = usePlayground((state) => state.prompt);
  const size = usePlayground((state) => state.size);
  const { sendingSince } = useImages();
  const onCharged = useRefreshAfterCharge();
  const length = countChars(prompt.trim());
  const cost = imageCost(choice, size);
  const problem = whyNot(choice, { blocked, length, cost });
  const submit = () => {
    if (problem !== null || choice.model === undefined) return;
    const keyId = choice.keyId === "" ? String(choice.model.keyId) : choice.keyId;
    void makeImage({ model: choice.model.id, prompt: prompt.trim(), size, api_key_id: keyId }, onCharged);
  };
  const isTooLong = length > IMAGE_PROMPT_CHARS.max;
  return (
    <FormFrame onSubmit={submit}>
      <Field
        label={t`Prompt`}
        aside={
          <span className={cx("tabular-nums", isTooLong && "font-medium text-bad")}>
            {t`${{ chars: formatCount(length) }} of ${{ most: formatCount(IMAGE_PROMPT_CHARS.max) }}`}
          </span>
        }
        error={
          isTooLong &&
          plural({ count: IMAGE_PROMPT_CHARS.max }, { one: "At most # character.", other: "At most # characters." })
        }
      >
        <TextArea
          value={prompt}
          onValue={(next) => {
            setPlayground({ prompt: next });
            clearImageError();
          }}
          rows={3}
          placeholder={t`A toll gate at dawn, ink on paper`}
          className="field-sizing-content max-h-64 min-h-20"
        />
      </Field>
      <Sizes choice={choice} value={size} />
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
        <Button
          type="submit"
          variant="primary"
          icon={ImagePlus}
          pending={sendingSince !== null}
          disabled={problem !== null}
        >
          <Trans>Create image</Trans>
        </Button>
        <p className="text-13 text-ink-2">{problem ?? (cost && t`Costs ${cost}.`)}</p>
      </div>
    </FormFrame>
  );
}

/** Why no image can be requested now; null if one can. */
function whyNot(
  { model }: Choice,
  { blocked, length, cost }: { blocked: string | null; length: number; cost: string | null },
): string | null {
  if (blocked !== null) return blocked;
  if (model === undefined)
    return t`No model is available: no package is active, or this key cannot use a model for images.`;
  if (cost === null) return t`The balance cannot pay for this size: it has no price.`;
  if (length < IMAGE_PROMPT_CHARS.min)
    return plural(
      { count: IMAGE_PROMPT_CHARS.min },
      {
        one: "Describe the image in at least # character.",
        other: "Describe the image in at least # characters.",
      },
    );
  return length > IMAGE_PROMPT_CHARS.max ? t`The prompt is too long.` : null;
}

function countChars(text: string): number {
  let chars = 0;
  for (const _ of text) chars++;
  return chars;
}

/** Each size drawn to scale, with its price. */
function Sizes({ choice, value }: { choice: Choice; value: string }) {
  const name = useId();
  return (
    <fieldset className="grid gap-1">
      <legend className="mb-1 text-13 font-medium">
        <Trans>Size</Trans>
      </legend>
      <div className="grid grid-cols-2 gap-2 sm:grid-cols-4">
        {IMAGE_SIZES.map((size) => (
          <SizeTile key={size} name={name} size={size} isChosen={size === value} cost={imageCost(choice, size)} />
        ))}
      </div>
    </fieldset>
  );
}

function SizeTile({
  name,
  size,
  isChosen,
  cost,
}: {
  name: string;
  size: string;
  isChosen: boolean;
  cost: string | null;
}) {
  const [width = 0, height = 0] = size.split("x").map(Number);
  return (
    <label
      className={cx(
        "grid justify-items-center gap-2 rounded-md border p-3 text-center transition-colors",
        "has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-focus",
        isChosen ? "border-accent bg-accent-soft" : "border-line bg-surface hover:border-edge",
      )}
    >
      <input
        type="radio"
        name={name}
        value={size}
        checked={isChosen}
        onChange={() => setPlayground({ size })}
        className="sr-only"
      />
      <span aria-hidden className="grid h-10 place-content-center">
        <span
          className={cx(
            "block rounded-[2px] border",
            isChosen ? "border-accent bg-accent/20" : "border-edge bg-sunken",
          )}
          style={{ width: width / TILE_SCALE, height: height / TILE_SCALE }}
        />
      </span>
      <span className="grid text-13 tabular-nums">
        <span className={isChosen ? "font-semibold text-accent-text" : "font-medium"}>
          {width} × {height}
        </span>
        <span className="text-12 text-ink-3">{cost ?? t`no price`}</span>
      </span>
    </label>
  );
}

function PictureView({ picture }: { picture: Picture }) {
  const { src, fileName, prompt, revised, size, model, requestId, cost } = picture;
  const [width, height] = size.split("x").map(Number);
  return (
    <figure className="grid gap-2">
      <img
        src={src}
        alt={Array.from(prompt).slice(0, ALT_CHARS_MAX).join("")}
        width={width}
        height={height}
        className="h-auto w-full rounded-md border border-line bg-sunken"
      />
      <figcaption className="grid gap-2">
        <p className="text-13 wrap-anywhere text-ink-2">{revised ?? prompt}</p>
        <div className="flex flex-wrap items-center justify-between gap-2">
          <p className="flex flex-wrap items-center gap-x-1 text-12 text-ink-3 tabular-nums">
            {model}, {cost && `${formatTook(cost.durationMs)}, ${cost.words}, `}
            {requestId !== null && (
              <TextLink href={`/usage?receipt=${requestId}`} className="inline-flex min-h-6 items-center">
                {t`receipt`}
              </TextLink>
            )}
          </p>
          <div className="flex gap-1">
            <CodeButton codeOf={() => ({ endpoint: "images", body: imageBody({ model, prompt, size }) })} />
            <DownloadLink src={src} fileName={fileName} />
          </div>
        </div>
      </figcaption>
    </figure>
  );
}

function DownloadLink({ src, fileName }: { src: string; fileName: string }) {
  return (
    <a
      href={src}
      download={fileName}
      className="inline-flex min-h-8 items-center gap-2 rounded-md px-3 text-13 font-medium text-ink-2 hover:bg-hover hover:text-ink pointer-coarse:min-h-11"
    >
      <Download size={16} aria-hidden />
      <Trans>Download</Trans>
    </a>
  );
}
