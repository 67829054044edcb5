import { MessageSquare, Image as Picture, SquarePen, Waypoints } from "lucide-react";
import { lazy, Suspense, useEffect } from "react";
import { EMPTY, READ_ONLY } from "../../copy.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { Button, ButtonLink } from "../../ui/buttons.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { Page } from "../../ui/page.tsx";
import { Empty, Loaded, Loading, Skeleton } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.tsx";
import { Chat } from "./chat.tsx";
import { loadCost, useChatStatus } from "./chat_session.ts";
import { type Offers, useOffers } from "./models.ts";
import { openPlayground, playground, setPlayground, usePlayground } from "./state.ts";

/** The playground: try a model, and see what each request costs. */

const Images = lazy(() => import("./images.tsx").then((module) => ({ default: module.Images })));
const Embeddings = lazy(() => import("./embeddings.tsx").then((module) => ({ default: module.Embeddings })));

const TABS = [
  { value: "chat", label: "Chat", icon: MessageSquare },
  { value: "images", label: "Images", icon: Picture },
  { value: "embeddings", label: "Embeddings", icon: Waypoints },
] as const;

export function PlaygroundPage() {
  const { accountId, lock } = useViewer();
  openPlayground(accountId);
  useMissedCosts();
  const tab = usePlayground((state) => state.tab);
  const offers = useOffers();
  return (
    <Page title="Playground" lead="Try a model and see what it costs." size="full">
      <div className="flex flex-wrap items-center justify-between gap-3">
        <Segmented
          label="Playground mode"
          value={tab}
          onValue={(next) => setPlayground({ tab: next })}
          options={TABS}
        />
        {tab === "chat" && <NewChat />}
      </div>
      <Loaded query={offers} skeleton={<PlaygroundSkeleton />}>
        {(data) => {
          const blocked = lock.disabled ? READ_ONLY : null;
          if (data.models.length === 0 && playground().turns.length === 0) return <NothingToTry offers={data} />;
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

/** Loads the cost of answers that a reload cut short. */
function useMissedCosts(): void {
  useEffect(() => {
    playground().turns.forEach((turn, index) => {
      if (turn.role === "assistant" && turn.end === "left") void loadCost(index);
    });
  }, []);
}

function NewChat() {
  const isEmpty = usePlayground((state) => state.turns.length === 0);
  const { sendingSince } = useChatStatus();
  const clear = () => {
    const { turns } = playground();
    setPlayground({ turns: [] });
    toast.undo("Conversation cleared.", () => {
      // A new conversation may have begun since.
      if (playground().turns.length === 0) setPlayground({ turns });
    });
  };
  if (isEmpty) return null;
  return (
    <Button icon={SquarePen} disabled={sendingSince !== null} onClick={clear}>
      New chat
    </Button>
  );
}

/** Shown when no key can be used, or nothing can pay. */
function NothingToTry({ offers: { keys } }: { offers: Offers }) {
  const { lock, role } = useViewer();
  if (keys.length === 0) {
    return (
      <Empty
        icon={MessageSquare}
        action={
          !lock.disabled && (
            <ButtonLink href="/keys?create=1" variant="primary">
              Create key
            </ButtonLink>
          )
        }
      >
        The playground sends its requests with one of your keys, and none can be used here yet. Create one, or switch
        one on.
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
            Get a package
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
