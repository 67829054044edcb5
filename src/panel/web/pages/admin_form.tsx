import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useEffect, useState } from "react";
import { Problem } from "../ui/states.tsx";
import { focusInvalid, useErrors } from "./forms.ts";

/**
 * The forms of the admin's dialogs. What the page finds wrong is said once somebody tried to send, what the server finds
 * wrong lands on its field, and the first of them gets the focus.
 *
 *   const form = useForm({ wrong: { days: checkCount(days, { min: 1, max: 30 }) }, send: () => ask(…), onSent: close });
 *   <Dialog … onSubmit={form.submit}><Field label="Days" error={form.errorOf("days")}>…</Field>{form.problem}</Dialog>
 */

/** By the server's names of the fields; every field that has a place in the form is in it. */
type Wrong<Name extends string> = Record<Name, string | null>;

export function useForm<Name extends string, Sent>({
  wrong,
  send,
  onSent,
}: {
  wrong: Wrong<Name>;
  send: () => Promise<Sent>;
  onSent: (sent: Sent) => void;
}): { submit: () => void; errorOf: (name: Name) => string | null; problem: ReactNode; isPending: boolean } {
  const [tries, setTries] = useState(0);
  const { mutate, error, isPending } = useMutation({ mutationFn: send, onSuccess: onSent });
  const { at, rest } = useErrors(error, Object.keys(wrong));
  useEffect(() => {
    if (tries > 0) focusInvalid();
  }, [tries]);
  return {
    submit() {
      setTries(tries + 1);
      if (!isPending && Object.values(wrong).every((each) => each === null)) mutate();
    },
    errorOf: (name) => (tries > 0 && wrong[name]) || at(name),
    problem: rest !== null && <Problem error={rest} />,
    isPending,
  };
}
