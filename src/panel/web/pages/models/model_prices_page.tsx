import { t } from "@lingui/core/macro";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Page } from "../../ui/page.tsx";
import { PublicFrame } from "../sign_in/public_frame.tsx";
import { ModelDetailsPage } from "./model_page.tsx";
import { ModelPrices } from "./model_prices.tsx";

/** The models and their prices, and a page of each (`?model=`): inside the panel, and for visitors who are not signed in. */

const TITLE = t`Models and prices`;
const LEAD = t`What a request costs when your balance pays for it. A package counts requests instead, whatever their price.`;

export function ModelPricesPage() {
  const id = useModelId();
  if (id !== "") return <ModelDetailsPage id={id} path="/models" playground={playgroundOf(id)} />;
  return (
    <Page title={TITLE} lead={LEAD}>
      <ModelPrices />
    </Page>
  );
}

/** Without a session: the host's brand above, and a way to sign in. */
export function PublicModelPricesPage() {
  const id = useModelId();
  return (
    <PublicFrame signIn="/sign-in?next=/billing">
      {id === "" ? (
        <Page title={TITLE} lead={LEAD}>
          <ModelPrices />
        </Page>
      ) : (
        <ModelDetailsPage
          id={id}
          path="/model-prices"
          playground={`/sign-in?next=${encodeURIComponent(playgroundOf(id))}`}
        />
      )}
    </PublicFrame>
  );
}

/** The model whose page this is; "": the list. Ids have slashes, so it is no part of the path. */
function useModelId(): string {
  const [{ model }] = useUrlState({ model: "" });
  return model;
}

function playgroundOf(id: string): string {
  return `/playground?model=${encodeURIComponent(id)}`;
}
