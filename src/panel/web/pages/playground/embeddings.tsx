import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Waypoints } from "lucide-react";
import { formatTook } from "../../format.ts";
import { Button, TextLink } from "../../ui/buttons.tsx";
import { Field, TextArea } from "../../ui/fields.tsx";
import { FormFrame } from "../../ui/form_frame.tsx";
import { inPlace } from "../../ui/in_place.tsx";
import { Loading, Skeleton } from "../../ui/states.tsx";
import { CodeButton } from "./code.tsx";
import { clearEmbeddingError, type Embedded, makeEmbeddings, useEmbeddings } from "./embedding_session.ts";
import { type Choice, type Offers, useChoice, useRefreshAfterCharge } from "./models.ts";
import { PlaygroundProblem } from "./problem.tsx";
import { ModelAndKey, SettingsPanel } from "./settings.tsx";
import { setPlayground, usePlayground } from "./state.ts";

/** Embeddings: texts, one a line, and how similar each is to the first. */

const TEXTS_MAX = 20;

export function Embeddings({ offers, blocked }: { offers: Offers; blocked: string | null }) {
  const choice = useChoice(offers, "embeddings");
  const { last, sendingSince, error } = useEmbeddings();
  return (
    <div className="grid gap-6 lg:grid-cols-[minmax(0,1fr)_18rem] lg:gap-8">
      <SettingsPanel summary={choice.model ? choice.model.id : t`Settings`}>
        <ModelAndKey offers={offers} choice={choice} kind="embeddings" />
      </SettingsPanel>
      <div className="grid min-w-0 content-start gap-6 lg:col-start-1 lg:row-start-1">
        <TextsForm choice={choice} blocked={blocked} />
        {error !== null && (
          <PlaygroundProblem error={error} model={choice.model?.id} alternatives={choice.models.map(({ id }) => id)} />
        )}
        {sendingSince !== null && (
          <Loading>
            <Skeleton className="h-24 rounded-md" />
          </Loading>
        )}
        {last !== null && sendingSince === null && <Result embedded={last} />}
        {last === null && sendingSince === null && (
          <p className="text-14 text-ink-2">
            <Trans>An embedding is a list of numbers. Texts with a similar meaning have similar numbers.</Trans>
          </p>
        )}
      </div>
    </div>
  );
}

function TextsForm({ choice, blocked }: { choice: Choice; blocked: string | null }) {
  const typed = usePlayground((state) => state.texts);
  const { sendingSince } = useEmbeddings();
  const onCharged = useRefreshAfterCharge();
  const texts = typed
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
  const problem = whyNot(choice, { blocked, count: texts.length });
  const submit = () => {
    if (problem !== null || choice.model === undefined) return;
    const keyId = choice.keyId === "" ? String(choice.model.keyId) : choice.keyId;
    void makeEmbeddings({ model: choice.model.id, input: texts, api_key_id: keyId }, onCharged);
  };
  return (
    <FormFrame onSubmit={submit}>
      <Field
        label={t`Texts`}
        hint={t`One text per line.`}
        error={
          texts.length > TEXTS_MAX &&
          plural({ count: TEXTS_MAX }, { one: "At most # text.", other: "At most # texts." })
        }
      >
        <TextArea
          value={typed}
          onValue={(next) => {
            setPlayground({ texts: next });
            clearEmbeddingError();
          }}
          rows={4}
          placeholder={[t`A toll gate`, t`A road with a barrier`, t`Apple pie`].join("\n")}
          className="field-sizing-content max-h-64 min-h-24"
        />
      </Field>
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
        <Button
          type="submit"
          variant="primary"
          icon={Waypoints}
          pending={sendingSince !== null}
          disabled={problem !== null}
        >
          <Trans>Create embeddings</Trans>
        </Button>
        {problem !== null && <p className="text-13 text-ink-2">{problem}</p>}
      </div>
    </FormFrame>
  );
}

/** Why nothing can be requested now; null if it can. */
function whyNot({ model }: Choice, { blocked, count }: { blocked: string | null; count: number }): string | null {
  if (blocked !== null) return blocked;
  if (model === undefined)
    return t`No model is available: no package is active, or this key cannot use a model for embeddings.`;
  if (model.pays === "balance" && model.prices === null)
    return t`The balance cannot pay for this model: it has no price.`;
  if (count === 0) return t`Enter at least one text.`;
  return count > TEXTS_MAX ? t`There are too many texts.` : null;
}

function Result({ embedded: { texts, dimensions, model, requestId, cost } }: { embedded: Embedded }) {
  return (
    <section aria-label={t`Embeddings`} className="grid gap-3">
      <div className="overflow-x-auto">
        <table className="w-full text-start text-14">
          <thead className="text-13 text-ink-2">
            <tr>
              <th className="py-2 pe-4 font-medium">
                <Trans>Text</Trans>
              </th>
              <th className="py-2 pe-4 text-end font-medium">
                <Trans>Similarity to the first</Trans>
              </th>
              <th className="py-2 font-medium max-sm:hidden">
                <Trans>First numbers</Trans>
              </th>
            </tr>
          </thead>
          <tbody>
            {inPlace(texts, ({ text, first, similarity }) => (
              <tr className="border-t border-line">
                <td className="py-2 pe-4 wrap-anywhere">{text}</td>
                <td className="py-2 pe-4 text-end tabular-nums">{similarity.toFixed(2)}</td>
                <td className="py-2 font-mono text-12 text-ink-2 max-sm:hidden">
                  {first.map((number) => number.toFixed(4)).join(", ")}
                  {dimensions > first.length && ", …"}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p className="flex flex-wrap items-center gap-x-1 text-12 text-ink-3 tabular-nums">
        {model}, {plural(dimensions, { one: "# dimension", other: "# dimensions" })},{" "}
        {cost && `${formatTook(cost.durationMs)}, ${cost.words}, `}
        {requestId !== null && (
          <TextLink href={`/usage?receipt=${requestId}`} className="inline-flex min-h-6 items-center">
            {t`receipt`}
          </TextLink>
        )}
      </p>
      <div className="-ms-2">
        <CodeButton
          codeOf={() => ({ endpoint: "embeddings", body: { model, input: texts.map(({ text }) => text) } })}
        />
      </div>
    </section>
  );
}
