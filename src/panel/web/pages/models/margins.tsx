import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { formatCount } from "../../format.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { TextLink } from "../../ui/buttons.tsx";
import { Section } from "../../ui/page.tsx";
import { Banner } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { modelHref } from "./catalog.tsx";
import { lossText } from "./loss_text.ts";

/** What is left of each model's price after its routes, for admins: the lowest first, and a warning for each route that loses money. */

const SHOWN = 10;
const PERMILLE_PER_PERCENT = 10;

type Margins = NonNullable<Awaited<ReturnType<typeof api.admin.margins.get>>["data"]>;
type ModelMargin = Margins["models"][number];

export function Margins() {
  const { data } = useQuery({ queryKey: [...ADMIN_KEY, "margins"], queryFn: () => ask(api.admin.margins.get()) });
  if (data === undefined || data.models.length === 0) return null;
  return (
    <>
      {data.losing.map(({ modelId, ...loss }) => (
        <Banner key={loss.routeId} tone="bad" title={t`${modelId} loses money`}>
          {lossText(loss)}{" "}
          <Trans>
            <TextLink href={modelHref(modelId)}>Open the model</TextLink> to raise its price, correct the cost or switch
            the route off.
          </Trans>
        </Banner>
      ))}
      <Section
        title={t`Margins`}
        description={`${t`What is left of each model's price after the cost of its most expensive route.`} ${
          data.models.length > SHOWN
            ? t`The lowest ${SHOWN} of ${plural({ all: data.models.length }, { one: "# model", other: "# models" })}.`
            : ""
        }`}
        flush
      >
        <DataTable
          caption={t`Margins`}
          rows={data.models.slice(0, SHOWN)}
          rowKey={({ id }) => id}
          rowHref={({ id }) => modelHref(id)}
          columns={COLUMNS}
          empty={null}
        />
      </Section>
    </>
  );
}

const COLUMNS: Column<ModelMargin>[] = [
  { head: t`Model`, cell: ({ id }) => <span className="font-mono wrap-anywhere">{id}</span> },
  { head: t`Margin`, align: "right", cell: ({ permille }) => <Margin permille={permille} /> },
];

/** In percent of the price; null: not known. */
export function Margin({ permille }: { permille: number | null }) {
  if (permille === null) return <span className="text-ink-3">{t`Unknown`}</span>;
  const percent = `${formatCount(permille / PERMILLE_PER_PERCENT)}%`;
  return permille < 0 ? <span className="font-medium text-bad">{percent}</span> : percent;
}
