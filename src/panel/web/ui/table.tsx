import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { Button } from "./buttons.tsx";
import { cx } from "./cx.ts";
import { Loading, SkeletonRows } from "./states.tsx";

/**
 * A table from 640 px on; below, one card a row.
 *
 *   <DataTable
 *     caption="API keys"
 *     rows={keys} rowKey={(key) => key.id}
 *     columns={[
 *       { head: "Name", cell: (key) => key.name },                       // the first column is the card's title
 *       { head: "Last used", cell: (key) => <Ago iso={key.usedAt} />, hideBelow: "lg" },
 *       { head: "Requests", align: "right", cell: (key) => formatCount(key.requests) },
 *     ]}
 *     rowHref={(key) => `/usage?key=${key.id}`}      // or onRow={(key) => …}; a click anywhere in the row opens it
 *     actions={(key) => <Menu trigger={…} items={…} />}
 *     empty={<Empty>…</Empty>}
 *     older={{ hasMore, isPending, onLoad }}          // keyset: "Load older"
 *   />
 *
 * `toOlder(query)` makes `older` from a useInfiniteQuery. Put the table into a Section with `flush`.
 */

export type Column<Row> = {
  head: string;
  cell: (row: Row) => ReactNode;
  /** Figures and money. */
  align?: "right";
  /** Hidden in tables narrower than this. A card always shows it, unless `inCard` is false. */
  hideBelow?: "md" | "lg" | "xl";
  inCard?: boolean;
  /** A width for the column, as a class: "w-40". */
  className?: string;
};

export type Older = { hasMore: boolean; isPending: boolean; hasFailed?: boolean; onLoad: () => void };

const HIDDEN = { md: "max-md:sm:hidden", lg: "max-lg:sm:hidden", xl: "max-xl:sm:hidden" };

type TableProps<Row> = {
  /** The table's name for screen readers. */
  caption: string;
  columns: readonly Column<Row>[];
  /** undefined while the first rows load. */
  rows: readonly Row[] | undefined;
  rowKey: (row: Row) => string;
  rowHref?: (row: Row) => string;
  onRow?: (row: Row) => void;
  /** The row whose details are open. */
  isSelected?: (row: Row) => boolean;
  actions?: (row: Row) => ReactNode;
  empty?: ReactNode;
  older?: Older;
  skeletonRows?: number;
  /** A row of totals below the others: one cell a column. */
  footer?: readonly ReactNode[];
  /** Without padding at its sides: it stands in text, and not in a section of its own. */
  isInset?: boolean;
};

export function DataTable<Row>(props: TableProps<Row>) {
  const { caption, columns, rows, rowKey, empty, older, skeletonRows = 5, footer, isInset = false } = props;
  if (rows === undefined) {
    return (
      <Loading>
        <SkeletonRows rows={skeletonRows} />
      </Loading>
    );
  }
  // With more pages to load, an empty first page does not mean that there is nothing.
  if (rows.length === 0 && empty && !older?.hasMore) return empty;
  return (
    <>
      {/* Some browsers drop the elements' own roles when a table is laid out as cards. */}
      {/* biome-ignore-start lint/a11y/noRedundantRoles: see above. */}
      <table className="data-table" role="table" data-inset={isInset || undefined}>
        <caption className="sr-only">{caption}</caption>
        <Head columns={columns} hasActions={props.actions !== undefined} />
        <tbody role="rowgroup">
          {rows.map((row) => (
            <TableRow key={rowKey(row)} row={row} table={props} />
          ))}
        </tbody>
        {footer && <Foot columns={columns} cells={footer} />}
      </table>
      {/* biome-ignore-end lint/a11y/noRedundantRoles: see above. */}
      {older && <LoadOlder older={older} />}
    </>
  );
}

/** The button below a list that loads more of it, and says if that failed. `children` replaces its text. */
export function LoadOlder({ older, children = t`Load older` }: { older: Older; children?: string }) {
  const { hasMore, isPending, hasFailed, onLoad } = older;
  if (!hasMore) return null;
  return (
    <div className="flex flex-wrap items-center justify-center gap-x-3 border-t border-line p-3">
      {hasFailed && !isPending && (
        <p role="alert" className="text-13 text-bad">
          <Trans>This did not load. Try again.</Trans>
        </p>
      )}
      <Button variant="quiet" pending={isPending} onClick={onLoad}>
        {children}
      </Button>
    </div>
  );
}

/** Two heads may be the same word in a language. */
function keyOf<Row>(columns: readonly Column<Row>[], column: Column<Row> | undefined): number {
  return column === undefined ? -1 : columns.indexOf(column);
}

// biome-ignore-start lint/a11y/noRedundantRoles: see DataTable.
function Head<Row>({ columns, hasActions }: { columns: readonly Column<Row>[]; hasActions: boolean }) {
  return (
    <thead role="rowgroup">
      <tr role="row">
        {columns.map((column) => (
          <th
            key={keyOf(columns, column)}
            scope="col"
            role="columnheader"
            data-align={column.align}
            className={cx(column.hideBelow && HIDDEN[column.hideBelow], column.className)}
          >
            {column.head}
          </th>
        ))}
        {hasActions && (
          <th scope="col" role="columnheader" className="w-12">
            <span className="sr-only">
              <Trans>Actions</Trans>
            </span>
          </th>
        )}
      </tr>
    </thead>
  );
}

function TableRow<Row>({ row, table }: { row: Row; table: TableProps<Row> }) {
  const { columns, rowHref, onRow, isSelected, actions } = table;
  const first = columns[0];
  return (
    <tr
      role="row"
      data-opens={rowHref !== undefined || onRow !== undefined || undefined}
      aria-selected={isSelected ? isSelected(row) : undefined}
    >
      {columns.map((column) => (
        <td
          key={keyOf(columns, column)}
          role="cell"
          data-align={column.align}
          data-label={column.head}
          data-main={column === first || undefined}
          className={cx(
            column.hideBelow && HIDDEN[column.hideBelow],
            column.inCard === false && "max-sm:hidden!",
            column.className,
          )}
        >
          {column === first ? (
            <Opener href={rowHref?.(row)} onOpen={onRow && (() => onRow(row))}>
              {column.cell(row)}
            </Opener>
          ) : (
            column.cell(row)
          )}
        </td>
      ))}
      {actions && (
        <td role="cell" data-actions data-align="right">
          <span className="row-above inline-flex">{actions(row)}</span>
        </td>
      )}
    </tr>
  );
}

function Foot<Row>({ columns, cells }: { columns: readonly Column<Row>[]; cells: readonly ReactNode[] }) {
  return (
    <tfoot role="rowgroup">
      <tr role="row">
        {cells.map((cell, index) => (
          <td
            key={keyOf(columns, columns[index])}
            role="cell"
            data-align={columns[index]?.align}
            data-label={columns[index]?.head}
            data-main={index === 0 || undefined}
            className={cx(columns[index]?.hideBelow && HIDDEN[columns[index].hideBelow])}
          >
            {cell}
          </td>
        ))}
      </tr>
    </tfoot>
  );
}
// biome-ignore-end lint/a11y/noRedundantRoles: see DataTable.

function Opener({
  href,
  onOpen,
  children,
}: {
  href: string | undefined;
  onOpen: (() => void) | undefined;
  children: ReactNode;
}) {
  const className = "row-opens text-start font-medium text-ink";
  if (href !== undefined) {
    return (
      <Link href={href} className={className}>
        {children}
      </Link>
    );
  }
  if (onOpen) {
    return (
      <button type="button" onClick={onOpen} className={className}>
        {children}
      </button>
    );
  }
  return children;
}

/** `older` of a react-query useInfiniteQuery, for a DataTable, or for a LoadOlder below another list. */
export function toOlder(query: {
  hasNextPage: boolean;
  isFetchingNextPage: boolean;
  isFetchNextPageError: boolean;
  fetchNextPage: () => unknown;
}): Older {
  return {
    hasMore: query.hasNextPage,
    isPending: query.isFetchingNextPage,
    hasFailed: query.isFetchNextPageError,
    onLoad: () => void query.fetchNextPage(),
  };
}
