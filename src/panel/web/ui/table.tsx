import type { ReactNode } from "react";
import { Link } from "wouter";
import { Button } from "./buttons.tsx";
import { cx } from "./cx.ts";
import { Loading, SkeletonRows } from "./states.tsx";

/**
 * Rows of one kind: a real table, from 640 px on; below, a card a row.
 *
 *   <DataTable
 *     caption="API keys"
 *     rows={keys} rowKey={(key) => key.id}
 *     columns={[
 *       { head: "Name", cell: (key) => key.name },                       // the first column is the card's title
 *       { head: "Last used", cell: (key) => <Ago iso={key.usedAt} />, hideBelow: "lg" },
 *       { head: "Requests", align: "right", cell: (key) => formatCount(key.requests) },
 *     ]}
 *     rowHref={(key) => `/usage?key=${key.id}`}      // or onRow={(key) => …}: the first cell opens it, the whole row is its target
 *     actions={(key) => <Menu trigger={…} items={…} />}
 *     empty={<Empty>…</Empty>}
 *     older={{ hasMore, isPending, onLoad }}          // keyset: "Load older"
 *   />
 *
 * `toOlder(query)` makes `older` of a useInfiniteQuery. The table has no card of its own: put it into a Section with `flush`.
 */

export type Column<Row> = {
  head: string;
  cell: (row: Row) => ReactNode;
  /** Figures and money. */
  align?: "right";
  /** Left out in tables narrower than this; a card shows it always, unless `inCard` is false. */
  hideBelow?: "md" | "lg" | "xl";
  inCard?: boolean;
  /** A width for the column, as a class: "w-40". */
  className?: string;
};

export type Older = { hasMore: boolean; isPending: boolean; onLoad: () => void };

/** Lists longer than this are not read, they are filtered. */
const HIDDEN = { md: "max-md:sm:hidden", lg: "max-lg:sm:hidden", xl: "max-xl:sm:hidden" };

export function DataTable<Row>({
  caption,
  columns,
  rows,
  rowKey,
  rowHref,
  onRow,
  isSelected,
  actions,
  empty,
  older,
  skeletonRows = 5,
  footer,
}: {
  /** Names the table to those who do not see it. */
  caption: string;
  columns: readonly Column<Row>[];
  /** undefined while the first of them are loaded. */
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
  /** A row of totals under the others: one cell a column. */
  footer?: readonly ReactNode[];
}) {
  if (rows === undefined) {
    return (
      <Loading>
        <SkeletonRows rows={skeletonRows} />
      </Loading>
    );
  }
  // Nothing was found so far, and there may be more.
  if (rows.length === 0 && empty && !older?.hasMore) return empty;
  const first = columns[0];
  const opens = rowHref !== undefined || onRow !== undefined;
  return (
    <>
      {/* The roles are the elements' own; some browsers forget them when a table is laid out as cards. */}
      {/* biome-ignore-start lint/a11y/noRedundantRoles: see above. */}
      <table className="data-table" role="table">
        <caption className="sr-only">{caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map((column) => (
              <th
                key={column.head}
                scope="col"
                role="columnheader"
                data-align={column.align}
                className={cx(column.hideBelow && HIDDEN[column.hideBelow], column.className)}
              >
                {column.head}
              </th>
            ))}
            {actions && (
              <th scope="col" role="columnheader" className="w-12">
                <span className="sr-only">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <tr
              key={rowKey(row)}
              role="row"
              data-opens={opens || undefined}
              aria-selected={isSelected ? isSelected(row) : undefined}
            >
              {columns.map((column) => (
                <td
                  key={column.head}
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
          ))}
        </tbody>
        {footer && (
          <tfoot role="rowgroup">
            <tr role="row">
              {footer.map((cell, index) => (
                <td
                  key={columns[index]?.head ?? index}
                  role="cell"
                  data-align={columns[index]?.align}
                  data-label={columns[index]?.head}
                  className={cx(columns[index]?.hideBelow && HIDDEN[columns[index].hideBelow])}
                >
                  {cell}
                </td>
              ))}
            </tr>
          </tfoot>
        )}
      </table>
      {/* biome-ignore-end lint/a11y/noRedundantRoles: see above. */}
      {older?.hasMore && (
        <div className="flex justify-center border-t border-line p-3">
          <Button variant="quiet" pending={older.isPending} onClick={older.onLoad}>
            Load older
          </Button>
        </div>
      )}
    </>
  );
}

function Opener({
  href,
  onOpen,
  children,
}: {
  href: string | undefined;
  onOpen: (() => void) | undefined;
  children: ReactNode;
}) {
  const className = "row-opens text-left font-medium text-ink";
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

/** `older` of a react-query useInfiniteQuery. */
export function toOlder(query: {
  hasNextPage: boolean;
  isFetchingNextPage: boolean;
  fetchNextPage: () => unknown;
}): Older {
  return { hasMore: query.hasNextPage, isPending: query.isFetchingNextPage, onLoad: () => void query.fetchNextPage() };
}
