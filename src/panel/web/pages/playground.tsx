import { useQuery, useQueryClient } from "@tanstack/react-query";
import { MessageSquare, Image as Picture, SquarePen } from "lucide-react";
import { lazy, Suspense, useEffect } from "react";
import { api, ask } from "../api.ts";
import { EMPTY, READ_ONLY } from "../copy.ts";
import { Button, ButtonLink } from "../ui/buttons.tsx";
import { Segmented } from "../ui/choices.tsx";
import { Page } from "../ui/page.tsx";
import { Empty, Loaded, Loading, Skeleton } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { Chat } from "./chat.tsx";
import { learnCost, useChatStatus } from "./chat_run.ts";
import { useViewer } from "./page_hooks.ts";
import { openPlayground, playground, setPlayground, usePlayground } from "./playground_state.ts";

/** Try a model, and see what it costs. */

export type Offers = NonNullable<Awaited<ReturnType<typeof api.playground.models.get>>["data"]>;
export type Offer = Offers["models"][number];

const Images = lazy(() => import("./images.tsx").then((module) => ({ default: module.Images })));

const TABS = [
  { value: "chat", label: "Chat", icon: MessageSquare },
  { value: "images", label: "Images", icon: Picture },
] as const;

export function PlaygroundPage() {
  const { accountId, lock } = useViewer();
  openPlayground(accountId);
  useMissedCosts();
  const tab = usePlayground((state) => state.tab);
  const offers = useQuery({ queryKey: ["playground", "models"], queryFn: () => ask(api.playground.models.get()) });
  return (
    <Page title="Playground" lead="Try a model, and see what it costs." size="full">
      <div className="flex items-center justify-between gap-3">
        <Segmented label="What to try" value={tab} onValue={(next) => setPlayground({ tab: next })} options={TABS} />
        {tab === "chat" && <NewChat />}
      </div>
      <Loaded query={offers} skeleton={<PlaygroundSkeleton />}>
        {(data) => {
          const blocked = lock.disabled ? READ_ONLY : null;
          if (data.models.length === 0 && playground().turns.length === 0) return <NothingToTry offers={data} />;
          return (
            <Suspense fallback={<PlaygroundSkeleton />}>
              {tab === "chat" ? <Chat offers={data} blocked={blocked} /> : <Images offers={data} blocked={blocked} />}
            </Suspense>
          );
        }}
      </Loaded>
    </Page>
  );
}

/** What was charged is asked for anywhere else as well: by what has just been spent. */
export function useSpent(): () => void {
  const client = useQueryClient();
  return () => {
    for (const name of ["home", "usage", "keys", "billing", "playground"]) {
      void client.invalidateQueries({ queryKey: [name] });
    }
  };
}

/** Answers that were cut short by a reload have a receipt, too. */
function useMissedCosts(): void {
  useEffect(() => {
    playground().turns.forEach((turn, index) => {
      if (turn.role === "assistant" && turn.end === "left") void learnCost(index);
    });
  }, []);
}

function NewChat() {
  const isEmpty = usePlayground((state) => state.turns.length === 0);
  const { sendingSince } = useChatStatus();
  const clear = () => {
    const { turns } = playground();
    setPlayground({ turns: [] });
    toast.undo("The conversation is cleared.", () => {
      // One that has begun since stays.
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

/** No key, or nothing that could pay. */
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
        No key can pay for this. Create one or switch one on; the playground uses it in your stead.
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
            Ask for a package
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
