import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Zap } from "lucide-react";
import {
  type DialectName,
  FACT_NAMES,
  type FactName,
  type Facts,
  type FactsOverride,
  PROBE_CALLS_MAX,
} from "../../../../catalog/dialects.ts";
import type { ProbeResult } from "../../../../catalog/provider_probe.ts";
import { api, ask } from "../../api.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { Button } from "../../ui/buttons.tsx";
import { Problem } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";
import { dialectTitle, factLabel, factValue } from "../models/fact_fields.tsx";

/** What one provider takes: its dialect, the facts that are set, and a probe that proposes others. */

/** Its dialect, and the facts that differ from it. */
export function ProviderDialect({ dialect, facts }: { dialect: DialectName; facts: FactsOverride }) {
  return (
    <span className="grid gap-1">
      {dialectTitle(dialect)}
      {factNamesOf(facts).map((name) => (
        <span key={name} className="text-12 text-ink-2">
          {factLabel(name)}: <FactValue of={facts[name]} />
        </span>
      ))}
    </span>
  );
}

/** The names of facts that are set, in their usual order. */
function factNamesOf(facts: FactsOverride): FactName[] {
  return FACT_NAMES.filter((name) => facts[name] !== undefined);
}

function FactValue({ of }: { of: Facts[FactName] | undefined }) {
  return <span className="font-mono text-12 wrap-anywhere">{factValue(of)}</span>;
}

/** Finds out what the provider takes, and sets what was found. */
export function ProbeSection({
  provider: { id, name, takes },
}: {
  provider: { id: number; name: string; takes: Facts };
}) {
  const client = useQueryClient();
  const probe = useMutation({
    mutationFn: () => ask(api.admin.providers({ id }).test.post({ probe: true })),
  });
  const found = probe.data?.probe ?? null;
  const apply = useMutation({
    mutationFn: () => ask(api.admin.providers({ id }).patch({ facts: { ...found?.proposed } })),
    onSuccess: async () => {
      probe.reset();
      await client.invalidateQueries({ queryKey: ADMIN_KEY });
      toast.done(t`What ${name} takes is changed.`);
    },
  });
  const mayApply = found !== null && factNamesOf(found.proposed).length > 0;
  return (
    <section className="grid gap-3 border-t border-line pt-4" aria-label={t`What it takes`}>
      <h3 className="text-14">
        <Trans>What it takes</Trans>
      </h3>
      <p className="text-13 text-ink-2">
        {plural(PROBE_CALLS_MAX, {
          other:
            "A probe sends it at most # tiny requests, which it may bill, and proposes facts that differ from those above.",
        })}
      </p>
      <Button
        icon={Zap}
        pending={probe.isPending}
        onClick={() => {
          apply.reset();
          probe.mutate();
        }}
        className="justify-self-start"
      >
        <Trans>Probe now</Trans>
      </Button>
      <div role="status" className="grid gap-2 text-13">
        {probe.error && <Problem error={probe.error} />}
        {probe.data && !probe.data.ok && <span className="text-bad wrap-anywhere">{probe.data.problem}</span>}
        {found && <Found probe={found} takes={takes} />}
      </div>
      {mayApply && (
        <Button pending={apply.isPending} onClick={() => apply.mutate()} className="justify-self-start">
          <Trans>Set these facts</Trans>
        </Button>
      )}
      {apply.error && <Problem error={apply.error} />}
    </section>
  );
}

/** What a probe found: each proposed fact with its value now, and facts of which nothing is known. */
function Found({ probe: { proposed, unknown, calls }, takes }: { probe: ProbeResult; takes: Facts }) {
  const names = factNamesOf(proposed);
  const count = names.length;
  return (
    <>
      <p className={count === 0 && unknown.length === 0 ? "text-ok" : "text-ink-2"}>
        {count > 0
          ? t`${plural(calls, { one: "# request", other: "# requests" })}: ${plural(count, { one: "# fact should change.", other: "# facts should change." })}`
          : unknown.length > 0
            ? plural(calls, {
                one: "# request: nothing should change.",
                other: "# requests: nothing should change.",
              })
            : plural(calls, { one: "# request: its facts hold.", other: "# requests: its facts hold." })}
      </p>
      {count > 0 && (
        <dl className="grid gap-2">
          {names.map((name) => (
            <div key={name} className="grid">
              <dt className="text-ink-2">{factLabel(name)}</dt>
              <dd>
                <FactValue of={takes[name]} /> <span className="text-ink-3">→</span>{" "}
                <strong className="font-semibold">
                  <FactValue of={proposed[name]} />
                </strong>
              </dd>
            </div>
          ))}
        </dl>
      )}
      {unknown.length > 0 && (
        <p className="text-warn">
          {t`It refused every form of these, so nothing is proposed for them: ${{ facts: unknown.map(factLabel).join(", ") }}.`}
        </p>
      )}
    </>
  );
}
