import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { toast } from "../../ui/toast.ts";
import { type OwnOrder, wants } from "./order_parts.tsx";

/** A button that withdraws one of the person's own open orders. */
export function WithdrawOrder({
  order,
  variant,
}: {
  order: Pick<OwnOrder, "orderId" | "offering" | "amountNanoUsd">;
  /** `quiet` in a list, beside the button that pays. */
  variant?: "quiet";
}) {
  const { lock } = useViewer();
  const wish = wants(order);
  const refresh = useRefresh();
  const withdraw = useMutation({
    mutationFn: () => ask(api.orders({ id: order.orderId }).withdraw.post()),
    onSuccess: async () => {
      await refresh();
      toast.done(t`${wish}: order withdrawn.`);
    },
    onError: (error) => toast.failed(error),
  });
  return (
    <Button
      size="sm"
      {...(variant && { variant })}
      pending={withdraw.isPending}
      onClick={() => withdraw.mutate()}
      {...lock}
    >
      <Trans>
        Withdraw<span className="sr-only"> {wish}</span>
      </Trans>
    </Button>
  );
}
