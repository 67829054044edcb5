import { plural, t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { ArrowLeft, MessageSquare } from "lucide-react";
import { i18n } from "#language";
import { MODALITIES } from "../../../../catalog/modalities.ts";
import { api, ask } from "../../api.ts";
import { formatDay, formatTook } from "../../format.ts";
import { levelOf, shareText } from "../../shared/uptime.ts";
import { ButtonLink, TextLink } from "../../ui/buttons.tsx";
import { nowMs } from "../../ui/clock.ts";
import { CopyField, SnippetTabs } from "../../ui/copy_field.tsx";
import { Facts, Figure, Figures, Page, Section } from "../../ui/page.tsx";
import { type CodeOf, requestCode } from "../../ui/request_code.ts";
import { Loaded, Skeleton } from "../../ui/states.tsx";
import { factsOf, type Model, needsSession, SignInFirst } from "./model_prices.tsx";

/** One model: its prices, how it did in the last 30 days, and its code. In the panel, and for visitors who are not signed in. */

type Details = NonNullable<Awaited<ReturnType<(typeof api)["model-prices"]["model"]["get"]>>["data"]>;

/** `path`: of the list. `playground`: where "Try it" leads to. */
export function ModelDetailsPage({ id, path, playground }: { id: string; path: string; playground: string }) {
  const details = useQuery({
    queryKey: ["model-prices", id],
    queryFn: () => ask(api["model-prices"].model.get({ query: { id } })),
    retry: false,
  });
  const name = details.data?.model.name ?? id;
  const isTried = details.data !== undefined && details.data.model.modality !== "rerank";
  return (
    <Page
      title={name}
      lead={
        <TextLink href={path}>
          <ArrowLeft size={14} aria-hidden className="me-1 inline align-[-2px]" />
          {t`All models`}
        </TextLink>
      }
      action={
        isTried && (
          <ButtonLink href={playground} variant="primary" icon={MessageSquare}>
            {t`Try it`}
          </ButtonLink>
        )
      }
    >
      {details.data === undefined && needsSession(details.error) ? (
        <SignInFirst />
      ) : (
        <Loaded query={details} skeleton={<Skeleton className="h-72 rounded-lg" />}>
          {(data) => (
            <>
              <Health health={data.health} />
              <Prices model={data.model} />
              <HowTo {...data} />
            </>
          )}
        </Loaded>
      )}
    </Page>
  );
}

function Health({ health: { answered, days, firstEvent } }: Pick<Details, "health">) {
  return (
    <Section title={t`Last 30 days`} description={t`UTC days. Uptime is the share of requests that were answered.`}>
      <Figures>
        <Figure label={t`Uptime`}>{answered === null ? t`No requests` : shareText(answered)}</Figure>
        <Figure
          label={t`First event`}
          note={
            firstEvent &&
            t`Half of the streams took at most this; 95 in 100 at most ${{ duration: formatTook(firstEvent.p95Ms) }}.`
          }
        >
          {firstEvent === null ? t`No streams` : formatTook(firstEvent.p50Ms)}
        </Figure>
      </Figures>
      {days.length > 0 && (
        <ol
          aria-label={t`Uptime by day`}
          className="mt-6 grid grid-cols-[repeat(auto-fill,minmax(3.25rem,1fr))] gap-y-4 text-12"
        >
          {days.toReversed().map(({ day, answered: share }) => (
            <li key={day} className="text-center text-ink-3 tabular-nums">
              <span
                aria-hidden
                className={`mx-auto block h-8 w-3 rounded-sm forced-color-adjust-none ${levelOf(share)}`}
              />
              <span className="block pt-1 text-ink-2">{shareText(share)}</span>
              <time dateTime={day} className="whitespace-nowrap">
                {formatDay(`${day}T00:00:00Z`, "UTC", nowMs())}
              </time>
            </li>
          ))}
        </ol>
      )}
    </Section>
  );
}

function Prices({ model }: { model: Model }) {
  const { modality, contextLength } = model;
  return (
    <Section title={t`Prices`} description={t`In US dollars, per million tokens or per image.`}>
      <Facts
        facts={[
          [t`Kind`, i18n._(MODALITIES[modality].label)],
          [
            t`Context`,
            contextLength === null ? t`Not known` : plural(contextLength, { one: "# token", other: "# tokens" }),
          ],
          ...factsOf(model),
        ]}
      />
    </Section>
  );
}

function HowTo({ model, baseUrl }: Pick<Details, "model" | "baseUrl">) {
  const code = firstRequest(model);
  return (
    <Section title={t`Use it`} description={t`With a key of your own, in the variable API_KEY.`}>
      <div className="grid gap-4">
        <div className="grid gap-4 sm:grid-cols-2">
          <CopyField label={t`Model`} value={model.id} />
          <CopyField label={t`Base URL`} value={baseUrl} />
        </div>
        {code && <SnippetTabs snippets={requestCode({ ...code, baseUrl, key: null })} />}
      </div>
    </Section>
  );
}

const HELLO = /* not a text */ "Hello";

/** null: the clients have no call for it. */
function firstRequest({ id: model, modality }: Model): CodeOf | null {
  switch (modality) {
    case "embedding":
      return { endpoint: "embeddings", body: { model, input: [HELLO] } };
    case "image":
      return {
        endpoint: "images",
        body: { model, prompt: /* not a text */ "A toll gate at dawn", size: "1024x1024", response_format: "b64_json" },
      };
    case "rerank":
      return null;
    default:
      return { endpoint: "chat", body: { model, messages: [{ role: "user", content: HELLO }] } };
  }
}
