import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { ArrowDown } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { Button } from "../../ui/buttons.tsx";
import { inPlace } from "../../ui/in_place.tsx";
import { Loading, Skeleton } from "../../ui/states.tsx";
import { useChatStatus } from "./chat_session.ts";
import { Composer } from "./composer.tsx";
import { ExchangeView } from "./exchange_view.tsx";
import { type Offers, useChoice } from "./models.ts";
import { PlaygroundProblem } from "./problem.tsx";
import { ChatFields, ModelAndKey, SettingsPanel } from "./settings.tsx";
import { setPlayground, usePlayground } from "./state.ts";

/** The conversation and its composer. */

/** The distance from the bottom that still counts as being at the end. */
const END_PX = 64;

export function Chat({ offers, blocked }: { offers: Offers; blocked: string | null }) {
  const choice = useChoice(offers, "chat");
  const { model, other, models } = choice;
  const { refused } = useChatStatus();
  const end = useStickToEnd();
  const summary = [model, other].flatMap((each) => each?.id ?? []).join(", ");
  return (
    <div className="-mb-8 grid min-h-0 flex-1 gap-6 max-lg:grid-rows-[auto_1fr] lg:grid-cols-[minmax(0,1fr)_18rem] lg:gap-8">
      <SettingsPanel summary={summary || t`Settings`}>
        <ModelAndKey offers={offers} choice={choice} kind="chat" />
        <ChatFields />
      </SettingsPanel>
      <div className="flex min-w-0 flex-col lg:col-start-1 lg:row-start-1">
        <div ref={end.content} className="flex-1">
          <Conversation offers={offers} isLocked={blocked !== null} />
        </div>
        <div className="sticky bottom-[calc(var(--tabs)+env(safe-area-inset-bottom))] z-[5] bg-bg pt-3 pb-4">
          {!end.isThere && (
            <Button size="sm" icon={ArrowDown} onClick={end.go} className="absolute -top-10 left-1/2 -translate-x-1/2">
              {t({ message: "Latest", context: "button: to the newest message" })}
            </Button>
          )}
          {inPlace(refused, ({ model: of, error }) => (
            <div className="mb-3">
              {refused.length > 1 && <p className="mb-1 text-12 font-medium text-ink-3">{of}</p>}
              <PlaygroundProblem error={error} model={of} alternatives={models.map(({ id }) => id)} />
            </div>
          ))}
          <Composer choice={choice} blocked={blocked} onSent={end.go} />
        </div>
      </div>
    </div>
  );
}

function Conversation({ offers, isLocked }: { offers: Offers; isLocked: boolean }) {
  const exchanges = usePlayground((state) => state.exchanges);
  const isOpening = usePlayground((state) => state.isOpening);
  const { sendingSince } = useChatStatus();
  if (isOpening)
    return (
      <Loading>
        <Skeleton className="h-24 rounded-md" />
      </Loading>
    );
  if (exchanges.length === 0) return <Suggestions />;
  return (
    <ol aria-label={t`Conversation`} className="grid gap-6 py-2">
      {inPlace(exchanges, (exchange, index) => (
        <li className="min-w-0">
          <ExchangeView
            exchange={exchange}
            index={index}
            isLast={index === exchanges.length - 1}
            isLocked={isLocked || sendingSince !== null}
            offers={offers}
          />
        </li>
      ))}
    </ol>
  );
}

const SUGGESTIONS = [
  t`Explain what a gateway for AI models does, in three sentences.`,
  t`Write a table of five rivers and their lengths.`,
];

function Suggestions() {
  return (
    <div className="grid justify-items-start gap-3 py-6">
      <p className="text-14 text-ink-2">
        <Trans>
          Ask something. The cost is shown under each answer. Conversations are kept in this browser until you sign out.
        </Trans>
      </p>
      <ul className="grid gap-2">
        {inPlace(SUGGESTIONS, (text) => (
          <li>
            <Button
              onClick={() => setPlayground({ draft: text })}
              className="max-w-full py-2 text-start font-normal whitespace-normal!"
            >
              {text}
            </Button>
          </li>
        ))}
      </ul>
    </div>
  );
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
