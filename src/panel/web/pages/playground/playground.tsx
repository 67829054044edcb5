import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Clock, MessageSquare, Image as Picture, SquarePen, Waypoints } from "lucide-react";
import { lazy, Suspense, useEffect, useEffectEvent } from "react";
import { EMPTY } from "../../copy.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button, ButtonLink } from "../../ui/buttons.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Page } from "../../ui/page.tsx";
import { Empty, Loaded, Loading, Skeleton } from "../../ui/states.tsx";
import { Chat } from "./chat.tsx";
import { loadCost, useChatStatus } from "./chat_session.ts";
import { KINDS, kindOf, type Offer, type Offers, useOffers } from "./models.ts";
import { newChat, openPlayground, playground, setPlayground, usePlayground } from "./state.ts";

/** The playground: try a model, and see what each request costs. */

const Images = lazy(() => import("./images.tsx").then((module) => ({ default: module.Images })));
const Embeddings = lazy(() => import("./embeddings.tsx").then((module) => ({ default: module.Embeddings })));

const History = lazy(() => import("./history.tsx").then((module) => ({ default: module.History })));

const TABS = [
  { value: "chat", label: t`Chat`, icon: MessageSquare },
  { value: "images", label: t`Images`, icon: Picture },
  { value: "embeddings", label: t`Embeddings`, icon: Waypoints },
] as const;

export function PlaygroundPage() {
  const { accountId, lock } = useViewer();
  openPlayground(accountId, { isOwn: !lock.disabled });
  useMissedCosts();
  useWantedModel();
  const tab = usePlayground((state) => state.tab);
  const offers = useOffers();
  return (
    <Page title={t`Playground`} lead={t`Try a model and see what it costs.`} size="full">
      <div className="flex flex-wrap items-center justify-between gap-3">
        <Segmented
          label={t`Playground mode`}
          value={tab}
          onValue={(next) => setPlayground({ tab: next })}
          options={TABS}
        />
        {tab === "chat" && <ChatActions />}
      </div>
      <Loaded query={offers} skeleton={<PlaygroundSkeleton />}>
        {(data) => {
          const blocked = lock.title ?? null;
          if (data.models.length === 0 && playground().exchanges.length === 0) return <NothingToTry offers={data} />;
          return (
            <Suspense fallback={<PlaygroundSkeleton />}>
              {tab === "chat" && <Chat offers={data} blocked={blocked} />}
              {tab === "images" && <Images offers={data} blocked={blocked} />}
              {tab === "embeddings" && <Embeddings offers={data} blocked={blocked} />}
            </Suspense>
          );
        }}
      </Loaded>
    </Page>
  );
}

/** Other pages name the model to try: /playground?model=… */
function useWantedModel(): void {
  const [{ model }, setUrl] = useUrlState({ model: "" });
  const offers = useOffers();
  const found = offers.data?.models.find(({ id }) => id === model);
  const onFound = useEffectEvent((offer: Offer) => {
    const kind = kindOf(offer);
    if (kind !== null) setPlayground({ tab: kind, [KINDS[kind].saved]: offer.id });
    // The URL is cleaned, so that a reload keeps what was chosen since.
    setUrl({ model: "" });
  });
  useEffect(() => {
    if (found !== undefined) onFound(found);
  }, [found]);
}

/** Loads the cost of answers that a reload cut short. */
function useMissedCosts(): void {
  const isOpening = usePlayground((state) => state.isOpening);
  useEffect(() => {
    if (isOpening) return;
    playground().exchanges.forEach(({ answers }, index) => {
      answers.forEach(({ end }, side) => {
        if (end !== null) void loadCost({ index, side });
      });
    });
  }, [isOpening]);
}

function ChatActions() {
  const isEmpty = usePlayground((state) => state.exchanges.length === 0);
  const { sendingSince } = useChatStatus();
  const { lock } = useViewer();
  const history = useOpened<true>();
  const isBusy = sendingSince !== null;
  return (
    <div className="flex flex-wrap gap-2">
      {!isEmpty && (
        <Button icon={SquarePen} disabled={isBusy} onClick={newChat}>
          <Trans>New chat</Trans>
        </Button>
      )}
      {!lock.disabled && (
        <Button icon={Clock} disabled={isBusy} onClick={() => history.open(true)}>
          <Trans>History</Trans>
        </Button>
      )}
      {history.what && (
        <Suspense>
          <History open={history.isOpen} onClose={history.close} />
        </Suspense>
      )}
    </div>
  );
}

/** Shown when no key can be used, or nothing can pay. */
function NothingToTry({ offers: { keys } }: { offers: Offers }) {
  const { lock, role } = useViewer(keys.length === 0 ? "keys" : "orders");
  if (keys.length === 0) {
    return (
      <Empty
        icon={MessageSquare}
        action={
          !lock.disabled && (
            <ButtonLink href="/keys?create=1" variant="primary">
              <Trans>Create key</Trans>
            </ButtonLink>
          )
        }
      >
        <Trans>
          The playground sends its requests with one of your keys, and none can be used here yet. Create one, or switch
          one on.
        </Trans>
      </Empty>
    );
  }
  return (
    <Empty
      icon={MessageSquare}
      action={
        !lock.disabled &&
        role !== "admin" && (
          <ButtonLink href="/billing?ask=package" variant="primary">
            <Trans>Get a package</Trans>
          </ButtonLink>
        )
      }
    >
      {EMPTY.packages}
    </Empty>
  );
}

function PlaygroundSkeleton() {
  return (
    <Loading className="grid flex-1 content-between gap-6">
      <div className="grid gap-3">
        <Skeleton className="h-9 w-64" />
        <Skeleton className="h-5 w-48" />
      </div>
      <Skeleton className="h-24 rounded-lg" />
    </Loading>
  );
}
