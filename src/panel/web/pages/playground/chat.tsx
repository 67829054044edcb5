import { ArrowDown, ArrowUp, Square } from "lucide-react";
import { type KeyboardEvent, memo, useEffect, useRef, useState } from "react";
import { CHAT, NOTHING_CHARGED } from "../../copy.ts";
import { formatCount, formatOf, formatTook } from "../../format.ts";
import { Button, TextLink } from "../../ui/buttons.tsx";
import { Collapsed } from "../../ui/collapsed.tsx";
import { cx } from "../../ui/cx.ts";
import { inPlace } from "../../ui/in_place.tsx";
import { Markdown } from "../../ui/markdown.tsx";
import { clearChatError, sendChat, stopChat, useChatStatus } from "./chat_session.ts";
import { type Choice, type Offers, useChoice, useRefreshAfterCharge } from "./models.ts";
import { PlaygroundProblem } from "./problem.tsx";
import { ChatFields, ModelAndKey, SettingsPanel, wrongMaxTokens, wrongTemperature } from "./settings.tsx";
import { type Answer, playground, setPlayground, type Turn, usePlayground } from "./state.ts";

/** The conversation, its composer, and the cost of each answer. */

const MESSAGE_CHARS_MAX = 200_000;
/** The longest conversation: each message is sent with all earlier ones. */
const TURNS_MAX = 200;
/** The distance from the bottom that still counts as being at the end. */
const END_PX = 64;
/** Stop works only after this time, so that a double click does not send and stop. */
const STOP_AFTER_MS = 500;

export function Chat({ offers, blocked }: { offers: Offers; blocked: string | null }) {
  const choice = useChoice(offers, "chat");
  const { error } = useChatStatus();
  const isEmpty = usePlayground((state) => state.turns.length === 0);
  const end = useStickToEnd();
  return (
    <div className="-mb-8 grid min-h-0 flex-1 gap-6 max-lg:grid-rows-[auto_1fr] lg:grid-cols-[minmax(0,1fr)_18rem] lg:gap-8">
      <SettingsPanel summary={choice.model ? choice.model.id : "Settings"}>
        <ModelAndKey offers={offers} choice={choice} kind="chat" />
        <ChatFields />
      </SettingsPanel>
      <div className="flex min-w-0 flex-col lg:col-start-1 lg:row-start-1">
        <div ref={end.content} className="flex-1">
          {isEmpty ? <Suggestions /> : <Conversation />}
        </div>
        <div className="sticky bottom-[calc(var(--tabs)+env(safe-area-inset-bottom))] z-[5] bg-bg pt-3 pb-4">
          {!end.isThere && (
            <Button size="sm" icon={ArrowDown} onClick={end.go} className="absolute -top-10 left-1/2 -translate-x-1/2">
              Latest
            </Button>
          )}
          {error !== null && (
            <div className="mb-3">
              <PlaygroundProblem
                error={error}
                model={choice.model?.id}
                alternatives={choice.models.map(({ id }) => id)}
              />
            </div>
          )}
          <Composer choice={choice} blocked={blocked} onSent={end.go} />
        </div>
      </div>
    </div>
  );
}

const SUGGESTIONS = [
  "Explain what a gateway for AI models does, in three sentences.",
  "Write a table of five rivers and their lengths.",
];

function Suggestions() {
  return (
    <div className="grid justify-items-start gap-3 py-6">
      <p className="text-14 text-ink-2">
        Ask something. The cost is shown under each answer. The conversation stays in this tab.
      </p>
      <ul className="grid gap-2">
        {SUGGESTIONS.map((text) => (
          <li key={text}>
            <Button
              onClick={() => setPlayground({ draft: text })}
              className="max-w-full py-2 text-left font-normal whitespace-normal!"
            >
              {text}
            </Button>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Conversation() {
  const turns = usePlayground((state) => state.turns);
  return (
    <ol aria-label="Conversation" className="grid gap-6 py-2">
      {inPlace(turns, (turn) => (
        <li className="min-w-0">
          <Bubble turn={turn} />
        </li>
      ))}
    </ol>
  );
}

/** Memoised, so that only the streaming answer is rendered again. */
const Bubble = memo(({ turn }: { turn: Turn }) =>
  turn.role === "user" ? <Question text={turn.text} /> : <AnswerView answer={turn} />,
);

function Question({ text }: { text: string }) {
  return (
    <div className="ml-auto w-fit max-w-[min(36rem,90%)] rounded-lg bg-accent-soft px-4 py-2">
      <span className="sr-only">You: </span>
      <p className="text-14 leading-6 break-words whitespace-pre-wrap">{text}</p>
    </div>
  );
}

function AnswerView({ answer }: { answer: Answer }) {
  const { text, thoughts, model, end } = answer;
  return (
    <article
      aria-label={`Answer of ${model}`}
      aria-busy={end === null}
      className="grid max-w-[48rem] min-w-0 grid-cols-[minmax(0,1fr)] gap-2"
    >
      {/* Headings inside the answer start one level below. */}
      <h2 className="text-12 font-medium text-ink-3">{model}</h2>
      {thoughts !== "" && <Thoughts text={thoughts} isThinking={end === null && text === ""} />}
      {text !== "" && <Markdown text={text} />}
      {end === null && <Streaming hasText={text !== ""} />}
      {end === "complete" && text === "" && <p className="text-14 text-ink-2">The answer is empty.</p>}
      {end !== null && <Ending answer={answer} />}
    </article>
  );
}

function Streaming({ hasText }: { hasText: boolean }) {
  return (
    <p className="flex items-center gap-2 text-13 text-ink-3">
      <span aria-hidden className="size-2 animate-pulse rounded-full bg-accent" />
      <span className={cx(hasText && "sr-only")}>Answering…</span>
    </p>
  );
}

/** The reasoning text, collapsed, since it is not the answer. */
function Thoughts({ text, isThinking }: { text: string; isThinking: boolean }) {
  return (
    <Collapsed look="quiet" label={isThinking ? "Thinking…" : "Thoughts"}>
      <p className="px-4 pb-3 text-13 leading-5 break-words whitespace-pre-wrap text-ink-2">{text}</p>
    </Collapsed>
  );
}

/** The cost of an answer, and how it ended unless it is complete. */
function Ending({ answer }: { answer: Answer }) {
  const { requestId, cost } = answer;
  const ended = endText(answer);
  return (
    <div className="grid gap-1">
      {ended && <p className="text-13 font-medium text-warn">{ended}</p>}
      <p className="flex flex-wrap items-center gap-x-1 text-12 text-ink-3 tabular-nums">
        {cost?.isCharged && (
          <span>
            {formatCount(cost.promptTokens)} in, {formatCount(cost.completionTokens)} out, {formatTook(cost.durationMs)}
            , {cost.words},
          </span>
        )}
        {requestId !== null && (
          <TextLink href={`/usage?receipt=${requestId}`} className="inline-flex min-h-6 items-center">
            receipt
          </TextLink>
        )}
      </p>
    </div>
  );
}

/** Text about an early end. The receipt tells whether it was charged. */
function endText({ end, cost, requestId }: Answer): string | null {
  if (end === "complete" || end === null) return null;
  if (requestId === null)
    return "Stopped before anything arrived. If the request had reached the model, its prompt is charged: see Usage.";
  const how = {
    stopped: "Stopped.",
    broke_off: "The answer was cut off.",
    left: "The page was closed before the end.",
  }[end];
  if (cost === null) return how;
  if (!cost.isCharged) return end === "broke_off" ? CHAT.brokeOff : `${how} ${NOTHING_CHARGED}`;
  if (end === "stopped") return CHAT.stopped(cost.completionTokens);
  return `${how} Charged for what arrived, about ${formatOf(cost.completionTokens, "token")}.`;
}

function Composer({ choice, blocked, onSent }: { choice: Choice; blocked: string | null; onSent: () => void }) {
  const draft = usePlayground((state) => state.draft);
  const problem = useWhyNot(choice, blocked);
  const { isSending, send, stop } = useSend(choice, onSent);
  const isOff = !isSending && (problem !== null || draft.trim() === "");
  const onKeyDown = (event: KeyboardEvent) => {
    // In an input method, Enter chooses a word. Safari reports that only by the old key code.
    const isComposing = event.nativeEvent.isComposing || event.keyCode === 229;
    if (event.key !== "Enter" || event.shiftKey || isComposing) return;
    event.preventDefault();
    if (!isOff && !isSending) send();
  };
  return (
    <>
      <div className="flex items-end gap-2 rounded-lg border border-edge bg-surface p-2 has-[textarea:focus-visible]:border-focus has-[textarea:focus-visible]:outline-2 has-[textarea:focus-visible]:-outline-offset-1 has-[textarea:focus-visible]:outline-focus">
        <textarea
          aria-label="Message"
          aria-describedby="composer-hint"
          placeholder="Message"
          rows={1}
          value={draft}
          maxLength={MESSAGE_CHARS_MAX}
          onChange={(event) => {
            setPlayground({ draft: event.currentTarget.value });
            clearChatError();
          }}
          onKeyDown={onKeyDown}
          className="field-sizing-content max-h-48 min-h-9 flex-1 resize-none bg-transparent px-2 py-2 text-16 leading-5 outline-none sm:text-14"
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
          {isSending ? "Stop" : "Send"}
        </Button>
      </div>
      <p id="composer-hint" className="mt-1 min-h-4 px-1 text-12 text-ink-3">
        {problem ?? "Enter sends. Shift+Enter starts a new line."}
      </p>
    </>
  );
}

/** Sends the composer's text with the current settings, and stops the running answer. */
function useSend({ model, keyId }: Choice, onSent: () => void) {
  const { sendingSince } = useChatStatus();
  const onCharged = useRefreshAfterCharge();
  const send = () => {
    if (model === undefined) return;
    const { temperature, maxTokens, system } = playground();
    const settings = {
      model: model.id,
      system,
      api_key_id: keyId === "" ? String(model.keyId) : keyId,
      ...(temperature.trim() !== "" && { temperature: Number(temperature) }),
      ...(maxTokens.trim() !== "" && { max_tokens: Number(maxTokens.replaceAll(",", "")) }),
    };
    void sendChat(settings, onCharged);
    onSent();
  };
  const stop = () => {
    if (sendingSince !== null && performance.now() - sendingSince > STOP_AFTER_MS) stopChat();
  };
  return { isSending: sendingSince !== null, send, stop };
}

/** Why no message can be sent now; null if one can. */
function useWhyNot({ model }: Choice, blocked: string | null): string | null {
  const temperature = usePlayground((state) => state.temperature);
  const maxTokens = usePlayground((state) => state.maxTokens);
  const isFull = usePlayground((state) => state.turns.length >= TURNS_MAX);
  if (blocked !== null) return blocked;
  if (model === undefined)
    return "No model is available: no package is active, or this key cannot use a model for chat.";
  if (isFull) return "This conversation is full. Start a new one.";
  if (wrongTemperature(temperature) ?? wrongMaxTokens(maxTokens)) return "A value in the settings is not valid.";
  return null;
}

/** Scrolls with the growing conversation while the reader is at its end. */
function useStickToEnd() {
  const content = useRef<HTMLDivElement>(null);
  const sticks = useRef(true);
  const [isThere, setThere] = useState(true);
  const go = () => {
    sticks.current = true;
    scrollToEnd();
  };
  useEffect(() => {
    let lastY = window.scrollY;
    const onScroll = () => {
      // Only the reader scrolls up; new content below must not stop the following.
      if (isAtEnd()) sticks.current = true;
      else if (window.scrollY < lastY) sticks.current = false;
      lastY = window.scrollY;
      setThere(sticks.current);
    };
    const observer = new ResizeObserver(() => {
      if (sticks.current) scrollToEnd();
      setThere(sticks.current);
    });
    if (content.current) observer.observe(content.current);
    addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      removeEventListener("scroll", onScroll);
    };
  }, []);
  return { content, isThere, go };
}

function isAtEnd(): boolean {
  const { scrollHeight } = document.documentElement;
  return scrollHeight - window.innerHeight - window.scrollY < END_PX;
}

function scrollToEnd(): void {
  window.scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
}
