import { t } from "@lingui/core/macro";
import type { useKeyOptions } from "../../shared/account_queries.ts";
import { CheckboxList } from "../../ui/choices.tsx";
import type { Option } from "../../ui/fields.tsx";
import type { FieldState } from "../../ui/form.tsx";

/** The models and hosts that a key may be used with, for the forms that create it and change them. null: all. */

export type KeyScope = { modelIds: string[] | null; hosts: string[] | null };
type Options = NonNullable<ReturnType<typeof useKeyOptions>["data"]>;

export function checkKeyScope({ modelIds, hosts }: KeyScope): Record<keyof KeyScope, string | null> {
  return {
    modelIds: modelIds?.length === 0 ? t`Choose a model, or allow all.` : null,
    hosts: hosts?.length === 0 ? t`Choose a host, or allow all.` : null,
  };
}

type ListProps = FieldState<string[] | null> & { options: Options };

export function ModelList({ options: { models }, ...field }: ListProps) {
  return (
    <CheckboxList
      label={t`Models the key may use`}
      allLabel={t`All models, new ones too`}
      options={withChosen(
        models.map(({ id }) => ({ value: id, label: id })),
        field.value,
      )}
      {...field}
    />
  );
}

export function HostList({ options: { hosts }, ...field }: ListProps) {
  return (
    <CheckboxList
      label={t`Hosts the key may be used on`}
      allLabel={t`All hosts, new ones too`}
      options={withChosen(
        hosts.map(({ host, label }) => ({ value: host, label: host, hint: label })),
        field.value,
      )}
      {...field}
    />
  );
}

/** A key may have a model or host that is gone now. */
function withChosen(options: Option[], chosen: readonly string[] | null): Option[] {
  const gone = (chosen ?? []).filter((each) => !options.some(({ value }) => value === each));
  return [...options, ...gone.map((each) => ({ value: each, label: each, hint: t`not available now` }))];
}
