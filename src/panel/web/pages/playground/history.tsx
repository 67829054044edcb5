import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { MessageSquare, Pencil, Trash2 } from "lucide-react";
import { useState } from "react";
import { Button, IconButton } from "../../ui/buttons.tsx";
import { Confirm, Drawer } from "../../ui/dialog.tsx";
import { TextField } from "../../ui/fields.tsx";
import { FormFrame } from "../../ui/form_frame.tsx";
import { Banner, Empty } from "../../ui/states.tsx";
import { Ago } from "../../ui/time.tsx";
import { CHAT_NAME_CHARS_MAX, type Head } from "./kept_chats.ts";
import { keptChats, newChat, openChat, playground } from "./state.ts";

/** The conversations that this browser keeps: to open, rename and remove. */

const CHATS_KEY = ["playground-chats"] as const;

function RemovedNotice({ title, onUndo }: { title: string; onUndo: () => void }) {
  return (
    <Banner
      action={
        <Button size="sm" onClick={onUndo}>
          <Trans>Undo</Trans>
        </Button>
      }
    >
      {t`${title} is removed.`}
    </Banner>
  );
}

export function History({ open, onClose }: { open: boolean; onClose: () => void }) {
  // Read again each time it opens: other tabs write, too.
  const chats = useQuery({
    queryKey: CHATS_KEY,
    queryFn: async () => (await keptChats()?.list()) ?? [],
    enabled: open,
    gcTime: 0,
    staleTime: 0,
    retry: false,
  });
  const [isAsking, setAsking] = useState(false);
  const [removed, setRemoved] = useState<Removed | null>(null);
  const refresh = useRefreshChats();
  const putBack = async () => {
    await removed?.putBack();
    setRemoved(null);
    await refresh();
  };
  const removeAll = async () => {
    await keptChats()?.removeAll();
    newChat();
    setRemoved(null);
    await refresh();
  };
  const heads = chats.data ?? [];
  return (
    <Drawer
      open={open}
      onOpenChange={onClose}
      title={t`History`}
      description={t`Only this browser has these conversations, until you sign out. The oldest are removed when there are more than 100, or when they need too much room.`}
      footer={
        heads.length > 0 && (
          <Button onClick={() => setAsking(true)}>
            <Trans>Remove all</Trans>
          </Button>
        )
      }
    >
      {chats.isError && (
        <Banner tone="warn">
          <Trans>This browser keeps no conversations. Its settings may forbid it.</Trans>
        </Banner>
      )}
      {/* Not a toast: outside of the drawer it could not be reached. */}
      <div role="status">{removed && <RemovedNotice title={removed.title} onUndo={() => void putBack()} />}</div>
      {chats.data?.length === 0 && (
        <Empty icon={MessageSquare}>
          <Trans>No conversations yet.</Trans>
        </Empty>
      )}
      <ul aria-label={t`Conversations`} className="grid gap-1">
        {heads.map((head) => (
          <Row key={head.id} head={head} onOpened={onClose} onRemoved={setRemoved} />
        ))}
      </ul>
      <Confirm
        open={isAsking}
        onOpenChange={setAsking}
        title={t`Remove all conversations?`}
        confirmLabel={t`Remove all`}
        cancelLabel={t`Keep them`}
        onConfirm={removeAll}
      >
        <Trans>They are deleted from this browser. Receipts stay in Usage.</Trans>
      </Confirm>
    </Drawer>
  );
}

function useRefreshChats(): () => Promise<void> {
  const client = useQueryClient();
  return () => client.invalidateQueries({ queryKey: CHATS_KEY });
}

type Removed = { title: string; putBack: () => Promise<void> };

function Row({
  head,
  onOpened,
  onRemoved,
}: {
  head: Head;
  onOpened: () => void;
  onRemoved: (removed: Removed) => void;
}) {
  const [isRenaming, setRenaming] = useState(false);
  const refresh = useRefreshChats();
  const isCurrent = head.id === playground().chatId;
  const savedAt = new Date(head.savedAtMs).toISOString();
  const remove = async () => {
    const putBack = await keptChats()?.remove(head.id);
    if (isCurrent) newChat();
    if (putBack) onRemoved({ title: head.title, putBack });
    await refresh();
  };
  if (isRenaming) return <Rename head={head} onDone={() => setRenaming(false)} />;
  return (
    <li className="flex items-center gap-1 rounded-md hover:bg-hover">
      <button
        type="button"
        aria-current={isCurrent || undefined}
        onClick={() => {
          if (!isCurrent) void openChat(head.id);
          onOpened();
        }}
        className="grid min-h-11 min-w-0 flex-1 rounded-md px-3 py-1 text-start"
      >
        <span className="truncate text-14 font-medium">{head.title}</span>
        <span className="text-12 text-ink-3">
          {isCurrent ? (
            <Trans>
              <Ago iso={savedAt} />, open now
            </Trans>
          ) : (
            <Ago iso={savedAt} />
          )}
        </span>
      </button>
      <IconButton
        icon={Pencil}
        label={t`Rename ${{ title: head.title }}`}
        size="sm"
        onClick={() => setRenaming(true)}
      />
      <IconButton icon={Trash2} label={t`Remove ${{ name: head.title }}`} size="sm" onClick={() => void remove()} />
    </li>
  );
}

function Rename({ head, onDone }: { head: Head; onDone: () => void }) {
  const [typed, setTyped] = useState(head.title);
  const [error, setError] = useState<string | null>(null);
  const refresh = useRefreshChats();
  const save = async () => {
    if (typed.trim() === "") return setError(t`Enter a name.`);
    await keptChats()?.rename(head.id, typed.trim());
    await refresh();
    onDone();
  };
  return (
    <li className="px-3 py-2">
      <FormFrame onSubmit={() => void save()}>
        <TextField
          label={t`Name`}
          value={typed}
          onValue={(next) => {
            setTyped(next);
            setError(null);
          }}
          error={error}
          maxLength={CHAT_NAME_CHARS_MAX}
          autoFocus
        />
        <div className="flex gap-2">
          <Button type="submit" size="sm" variant="primary">
            <Trans>Save</Trans>
          </Button>
          <Button size="sm" onClick={onDone}>
            <Trans>Cancel</Trans>
          </Button>
        </div>
      </FormFrame>
    </li>
  );
}
