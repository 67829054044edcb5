import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { formatCount } from "../../format.ts";
import { Figure, Figures, Section } from "../../ui/page.tsx";
import { Ago } from "../../ui/time.tsx";

/** The number of deliveries that wait, and of those that were given up. */
export function MessageFigures({
  state: { waiting, oldestAt, failed },
}: {
  state: { waiting: number; oldestAt: string | null; failed: number };
}) {
  const oldest = oldestAt ? (
    <Trans>
      The oldest from <Ago iso={oldestAt} />
    </Trans>
  ) : (
    t`Nothing has to be sent`
  );
  return (
    <Section>
      <Figures>
        <Figure label={t`Waiting`} note={oldest}>
          {formatCount(waiting)}
        </Figure>
        <Figure label={t`Failed`} note={t`In the last 24 hours`}>
          {formatCount(failed)}
        </Figure>
      </Figures>
    </Section>
  );
}
