import { t } from "@lingui/core/macro";
import { ArrowUp, ImagePlus, Square, X } from "lucide-react";
import { type ClipboardEvent, type DragEvent, type KeyboardEvent, useRef, useState } from "react";
import { MODALITIES } from "../../../../catalog/modalities.ts";
import { formatBytes } from "../../format.ts";
import { Button, IconButton } from "../../ui/buttons.tsx";
import { cx } from "../../ui/cx.ts";
import { FieldError } from "../../ui/fields.tsx";
import { ATTACHED_TYPES, attach } from "./attachments.ts";
import { clearChatError, sendChat, stopChat, useChatStatus, type Wanted } from "./chat_session.ts";
import type { Attachment } from "./exchanges.ts";
import type { Choice, Offer } from "./models.ts";
import { useRefreshAfterCharge } from "./models.ts";
import { wrongMaxTokens, wrongTemperature } from "./settings.tsx";
import { isFull, playground, setPlayground, usePlayground } from "./state.ts";

/** Where a message is written: its text, its images, and Send, which is Stop while answers arrive. */

const MESSAGE_CHARS_MAX = 200_000;
/** Stop works only after this time, so that a double click does not send and stop. */
const STOP_AFTER_MS = 500;

export function Composer({ choice, blocked, onSent }: { choice: Choice; blocked: string | null; onSent: () => void }) {
  const draft = usePlayground((state) => state.draft);
  const images = usePlayground((state) => state.images);
  const problem = useWhyNot(choice, blocked);
  const adding = useAdding(choice);
  const { isSending, send, stop } = useSend(choice, onSent);
  const isOff = !isSending && (problem !== null || (draft.trim() === "" && images.length === 0));
  const onKeyDown = (event: KeyboardEvent) => {
    // In an input method, Enter chooses a word. Safari reports that only by the old key code.
    const isComposing = event.nativeEvent.isComposing || event.keyCode === 229;
    if (event.key !== "Enter" || event.shiftKey || isComposing) return;
    event.preventDefault();
    if (!isOff && !isSending) send();
  };
  return (
    <>
      <fieldset
        aria-label={t`New message`}
        onDragOver={(event) => event.preventDefault()}
        onDrop={adding.onDrop}
        className="grid min-w-0 gap-2 rounded-lg border border-edge bg-surface p-2 has-[textarea:focus-visible]:border-focus has-[textarea:focus-visible]:outline-2 has-[textarea:focus-visible]:-outline-offset-1 has-[textarea:focus-visible]:outline-focus"
      >
        {images.length > 0 && <Attached images={images} />}
        <div className="flex items-end gap-2">
          <AttachButton onFiles={adding.add} />
          <textarea
            aria-label={t`Message`}
            aria-describedby="composer-hint"
            placeholder={t`Message`}
            rows={1}
            value={draft}
            maxLength={MESSAGE_CHARS_MAX}
            onChange={(event) => {
              setPlayground({ draft: event.currentTarget.value });
              adding.clear();
              clearChatError();
            }}
            onKeyDown={onKeyDown}
            onPaste={adding.onPaste}
            className="field-sizing-content max-h-48 min-h-9 min-w-0 flex-1 resize-none bg-transparent px-2 py-2 text-16 leading-5 outline-none sm:text-14"
          />
          {/* One button for both, so that Stop keeps the focus of Send. */}
          <Button
            variant={isSending ? "secondary" : "primary"}
            icon={isSending ? Square : ArrowUp}
            // Not `disabled`: the button would lose the focus when the answer ends.
            aria-disabled={isOff || undefined}
            onClick={isSending ? stop : () => isOff || send()}
            className={cx("min-w-24", isOff && "opacity-50 saturate-50")}
          >
            {isSending ? t`Stop` : t`Send`}
          </Button>
        </div>
      </fieldset>
      <div role="alert" className="px-1">
        {adding.problem !== null && <FieldError>{adding.problem}</FieldError>}
      </div>
      <p id="composer-hint" className="mt-1 min-h-4 px-1 text-12 text-ink-3">
        {problem ?? t`Enter sends. Shift+Enter starts a new line.`}
      </p>
    </>
  );
}

function AttachButton({ onFiles }: { onFiles: (files: readonly File[]) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <IconButton icon={ImagePlus} label={t`Attach images`} onClick={() => input.current?.click()} />
      <input
        ref={input}
        type="file"
        accept={ATTACHED_TYPES}
        multiple
        hidden
        onChange={(event) => {
          onFiles([...(event.currentTarget.files ?? [])]);
          // The same file can be chosen again.
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}

function Attached({ images }: { images: readonly Attachment[] }) {
  return (
    <ul aria-label={t`Attached images`} className="flex flex-wrap gap-2">
      {images.map((image) => (
        <li key={image.src} className="flex items-center gap-2 rounded-md border border-line bg-sunken py-1 pe-1 ps-1">
          <img src={image.src} alt="" className="size-10 rounded-sm object-cover" />
          <span className="grid max-w-40 text-12">
            <span className="truncate">{image.name}</span>
            <span className="text-ink-3 tabular-nums">{formatBytes(image.bytes)}</span>
          </span>
          <IconButton
            icon={X}
            label={t`Remove ${{ name: image.name }}`}
            size="sm"
            onClick={() => setPlayground({ images: playground().images.filter((each) => each !== image) })}
          />
        </li>
      ))}
    </ul>
  );
}

/** Adds files that are chosen, pasted or dropped. */
function useAdding(choice: Choice) {
  const [problem, setProblem] = useState<string | null>(null);
  const add = async (files: readonly File[]) => {
    if (files.length === 0) return;
    const blind = modelsOf(choice).find((model) => !readsImages(model));
    if (blind) return setProblem(cannotRead(blind));
    const added = await attach(files, playground());
    setPlayground({ images: added.images });
    setProblem(added.problem);
  };
  const addFrom = (event: ClipboardEvent | DragEvent, { files }: DataTransfer) => {
    if (files.length === 0) return;
    event.preventDefault();
    void add([...files]);
  };
  return {
    problem,
    clear: () => setProblem(null),
    add: (files: readonly File[]) => void add(files),
    onPaste: (event: ClipboardEvent) => addFrom(event, event.clipboardData),
    onDrop: (event: DragEvent) => addFrom(event, event.dataTransfer),
  };
}

function readsImages({ modality }: Offer): boolean {
  return MODALITIES[modality].readsImages === true;
}

function cannotRead({ id }: Offer): string {
  return t`${id} does not read images. Choose a model for text and images.`;
}

/** The models that a message goes to. */
function modelsOf({ model, other }: Choice): Offer[] {
  return [model, other].flatMap((each) => each ?? []);
}

/** Sends the composer's message with the current settings, and stops the running answers. */
function useSend(choice: Choice, onSent: () => void) {
  const { sendingSince } = useChatStatus();
  const onCharged = useRefreshAfterCharge();
  const send = () => {
    const { temperature, maxTokens, system, endpoint } = playground();
    const settings = {
      endpoint,
      system,
      ...(temperature.trim() !== "" && { temperature: Number(temperature) }),
      ...(maxTokens.trim() !== "" && { maxTokens: Number(maxTokens.replaceAll(",", "")) }),
    };
    const wanted = modelsOf(choice).map(
      (model): Wanted => ({ ...settings, model: model.id, keyId: choice.keyId || String(model.keyId) }),
    );
    void sendChat(wanted, onCharged);
    onSent();
  };
  const stop = () => {
    if (sendingSince !== null && performance.now() - sendingSince > STOP_AFTER_MS) stopChat();
  };
  return { isSending: sendingSince !== null, send, stop };
}

/** Why no message can be sent now; null if one can. */
function useWhyNot(choice: Choice, blocked: string | null): string | null {
  const temperature = usePlayground((state) => state.temperature);
  const maxTokens = usePlayground((state) => state.maxTokens);
  const isOpening = usePlayground((state) => state.isOpening);
  const full = usePlayground(isFull);
  const hasImages = usePlayground(
    ({ images, exchanges }) => images.length > 0 || exchanges.some((exchange) => exchange.images.length > 0),
  );
  if (blocked !== null) return blocked;
  if (isOpening) return t`The conversation is loading.`;
  if (choice.model === undefined)
    return t`No model is available: no package is active, or this key cannot use a model for chat.`;
  if (full) return t`This conversation is full. Start a new one.`;
  const blind = hasImages ? modelsOf(choice).find((model) => !readsImages(model)) : undefined;
  if (blind) return `${t`This conversation has images.`} ${cannotRead(blind)}`;
  if (wrongTemperature(temperature) ?? wrongMaxTokens(maxTokens)) return t`A value in the settings is not valid.`;
  return null;
}
