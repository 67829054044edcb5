import { useMutation } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { toast } from "../../ui/toast.tsx";
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
  const refresh = useRefresh();
  const withdraw = useMutation({
    mutationFn: () => ask(api.orders({ id: order.orderId }).withdraw.post()),
    onSuccess: async () => {
      await refresh();
      toast.done(`${wants(order)}: order withdrawn.`);
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
      Withdraw<span className="sr-only"> {wants(order)}</span>
    </Button>
  );
}
