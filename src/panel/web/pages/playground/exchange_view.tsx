import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Pencil, RotateCw, Square } from "lucide-react";
import { memo } from "react";
import { CHAT } from "../../copy.ts";
import { NOTHING_CHARGED } from "../../failures.ts";
import { formatCount, formatTook } from "../../format.ts";
import { Button, IconButton, TextLink } from "../../ui/buttons.tsx";
import { Collapsed } from "../../ui/collapsed.tsx";
import { cx } from "../../ui/cx.ts";
import { inPlace } from "../../ui/in_place.tsx";
import { Markdown } from "../../ui/markdown.tsx";
import { toast } from "../../ui/toast.ts";
import { editFrom, regenerate, stopChat } from "./chat_session.ts";
import { CodeButton } from "./code.tsx";
import { type Answer, bodyOf, type Exchange, type Place } from "./exchanges.ts";
import { type Offers, useRefreshAfterCharge } from "./models.ts";
import { PlaygroundProblem } from "./problem.tsx";
import { playground } from "./state.ts";

/** A message with its answers, and the cost of each. */

type ExchangeProps = {
  exchange: Exchange;
  index: number;
  isLast: boolean;
  /** Nothing can be sent now. */
  isLocked: boolean;
  offers: Offers;
};

/** Memoised, so that only the streaming answers are rendered again. */
export const ExchangeView = memo(({ exchange, index, isLast, isLocked, offers }: ExchangeProps) => (
  <div className="grid gap-6">
    <Question exchange={exchange} index={index} isLocked={isLocked} />
    <div className={cx("grid min-w-0 gap-6", exchange.answers.length > 1 && "md:grid-cols-2")}>
      {inPlace(exchange.answers, (answer, side) => (
        <AnswerView
          answer={answer}
          place={{ index, side }}
          isOneOfTwo={exchange.answers.length > 1}
          isLast={isLast}
          isLocked={isLocked}
          offers={offers}
        />
      ))}
    </div>
  </div>
));

function Question({
  exchange: { text, images },
  index,
  isLocked,
}: Pick<ExchangeProps, "exchange" | "index" | "isLocked">) {
  const edit = () => toast.undo(t`The message is back in its field.`, editFrom(index));
  return (
    <div className="ms-auto flex max-w-[min(38rem,95%)] items-start gap-1">
      <IconButton icon={Pencil} label={t`Edit this message`} size="sm" disabled={isLocked} onClick={edit} />
      <div className="grid min-w-0 gap-2 rounded-lg bg-accent-soft px-4 py-2">
        <span className="sr-only">{t({ message: "You:", context: "before a message" })} </span>
        {images.length > 0 && (
          <div className="flex flex-wrap gap-2">
            {images.map(({ src, name }) => (
              <img key={src} src={src} alt={name} className="max-h-40 max-w-full rounded-md border border-line" />
            ))}
          </div>
        )}
        {text !== "" && <p className="text-14 leading-6 break-words whitespace-pre-wrap">{text}</p>}
      </div>
    </div>
  );
}

type AnswerProps = Pick<ExchangeProps, "isLast" | "isLocked" | "offers"> & {
  answer: Answer;
  place: Place;
  isOneOfTwo: boolean;
};

function AnswerView({ answer, place, isOneOfTwo, isLast, isLocked, offers }: AnswerProps) {
  const { text, thoughts, sent, end, error } = answer;
  return (
    <article
      aria-label={t`Answer of ${{ model: sent.model }}`}
      aria-busy={end === null}
      className="grid max-w-[48rem] min-w-0 grid-cols-[minmax(0,1fr)] content-start gap-2"
    >
      {/* Headings inside the answer start one level below. */}
      <h2 className="text-12 font-medium text-ink-3">{sent.model}</h2>
      {thoughts !== "" && <Thoughts text={thoughts} isThinking={end === null && text === ""} />}
      {text !== "" && <Markdown text={text} />}
      {end === null && <Streaming hasText={text !== ""} />}
      {end === null && isOneOfTwo && (
        <Button
          size="sm"
          icon={Square}
          onClick={() => stopChat(place.side)}
          aria-label={t`Stop ${{ model: sent.model }}`}
          className="justify-self-start"
        >
          <Trans>Stop</Trans>
        </Button>
      )}
      {end === "complete" && text === "" && (
        <p className="text-14 text-ink-2">
          <Trans>The answer is empty.</Trans>
        </p>
      )}
      {error !== null && (
        <PlaygroundProblem error={error} model={sent.model} alternatives={offers.models.map(({ id }) => id)} />
      )}
      {end !== null && <Ending {...{ answer, place, isLast, isLocked, offers }} />}
    </article>
  );
}

function Streaming({ hasText }: { hasText: boolean }) {
  return (
    <p className="flex items-center gap-2 text-13 text-ink-3">
      <span aria-hidden className="size-2 animate-pulse rounded-full bg-accent" />
      <span className={cx(hasText && "sr-only")}>
        <Trans>Answering…</Trans>
      </span>
    </p>
  );
}

/** The reasoning text, collapsed, since it is not the answer. */
function Thoughts({ text, isThinking }: { text: string; isThinking: boolean }) {
  return (
    <Collapsed look="quiet" label={isThinking ? t`Thinking…` : t`Thoughts`}>
      <p className="px-4 pb-3 text-13 leading-5 break-words whitespace-pre-wrap text-ink-2">{text}</p>
    </Collapsed>
  );
}

/** How an answer ended unless it is complete, its cost, and what can be done with it. */
function Ending({ answer, place, isLast, isLocked, offers }: Omit<AnswerProps, "isOneOfTwo">) {
  const { requestId, cost, sent } = answer;
  const ended = endText(answer);
  const onCharged = useRefreshAfterCharge();
  const again = () => {
    const keyId = playground().keyId || String(offers.models.find(({ id }) => id === sent.model)?.keyId ?? "");
    void regenerate(place.side, { ...sent, keyId }, onCharged);
  };
  return (
    <div className="grid gap-1">
      {ended && <p className="text-13 font-medium text-warn">{ended}</p>}
      <p className="flex flex-wrap items-center gap-x-1 text-12 text-ink-3 tabular-nums">
        {cost?.isCharged && (
          <span>
            <Trans>
              {{ prompt: formatCount(cost.promptTokens) }} in, {{ answer: formatCount(cost.completionTokens) }} out,{" "}
              {{ time: formatTook(cost.durationMs) }}, {{ cost: cost.words }},
            </Trans>
          </span>
        )}
        {requestId !== null && (
          <TextLink href={`/usage?receipt=${requestId}`} className="inline-flex min-h-6 items-center">
            {t`receipt`}
          </TextLink>
        )}
      </p>
      <div className="-ms-2 flex flex-wrap gap-1">
        {isLast && (
          <Button size="sm" variant="quiet" icon={RotateCw} disabled={isLocked} onClick={again} className="px-2">
            <Trans>Regenerate</Trans>
          </Button>
        )}
        <CodeButton codeOf={() => ({ endpoint: sent.endpoint, body: bodyOf(playground().exchanges, place) })} />
      </div>
    </div>
  );
}

/** Text about an early end. The receipt tells whether it was charged. */
function endText({ end, cost, requestId, error }: Answer): string | null {
  if (end === "complete" || end === null) return null;
  // While the error is known, it is shown.
  if (end === "refused") return error === null ? `${t`The request was refused.`} ${NOTHING_CHARGED}` : null;
  if (requestId === null)
    return t`Stopped before anything arrived. If the request had reached the model, its prompt is charged: see Usage.`;
  const how = {
    stopped: t`Stopped.`,
    broke_off: t`The answer was cut off.`,
    left: t`The page was closed before the end.`,
  }[end];
  if (cost === null) return how;
  if (!cost.isCharged) return end === "broke_off" ? CHAT.brokeOff : `${how} ${NOTHING_CHARGED}`;
  if (end === "stopped") return CHAT.stopped(cost.completionTokens);
  const charged = plural(
    { tokens: cost.completionTokens },
    { one: "Charged for what arrived, about # token.", other: "Charged for what arrived, about # tokens." },
  );
  return `${how} ${charged}`;
}
