import { type QueryKey, useMutation, useQueryClient } from "@tanstack/react-query";
import { toast } from "../ui/toast.ts";

/**
 * Switches a thing on or off, tells so, and offers to undo it.
 *
 *   const switching = useSwitching<Model>({
 *     send: ({ id }, isOn) => ask(api.admin.model.patch({ enabled: isOn }, { query: { id } })),
 *     stale: MODELS_KEY,
 *     done: ({ id }, isOn) => (isOn ? `${id} is on.` : `${id} is off. Requests for it get the error model_not_found.`),
 *     stays: ({ id }, isOn) => `${id} stays ${isOn ? "off" : "on"}.`,
 *   });
 *   switching.mutate({ what: model, isOn: false });
 */
export function useSwitching<What>({ send, stale, done, stays }: SwitchingOptions<What>) {
  const client = useQueryClient();
  const set = async (what: What, isOn: boolean) => {
    await send(what, isOn);
    await client.invalidateQueries(stale === undefined ? {} : { queryKey: stale });
  };
  return useMutation({
    mutationFn: ({ what, isOn }: Switched<What>) => set(what, isOn),
    onSuccess: (_, { what, isOn, isQuiet = false }) => {
      if (!isQuiet) toast.undo(done(what, isOn), () => set(what, !isOn));
    },
    onError: (error, { what, isOn }) => toast.failed(error, stays(what, isOn)),
  });
}

/** `isQuiet`: the switch shows it by itself. */
type Switched<What> = { what: What; isOn: boolean; isQuiet?: boolean };

type SwitchingOptions<What> = {
  send: (what: What, isOn: boolean) => Promise<unknown>;
  /** The queries to load again; without it, all. */
  stale?: QueryKey;
  done: (what: What, isOn: boolean) => string;
  /** Said before the error. */
  stays: (what: What, isOn: boolean) => string;
};
