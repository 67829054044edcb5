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
    <>
      The oldest from <Ago iso={oldestAt} />
    </>
  ) : (
    "Nothing has to be sent"
  );
  return (
    <Section>
      <Figures>
        <Figure label="Waiting" note={oldest}>
          {formatCount(waiting)}
        </Figure>
        <Figure label="Failed" note="In the last 24 hours">
          {formatCount(failed)}
        </Figure>
      </Figures>
    </Section>
  );
}
