import type { ReceiptBatch } from "../books/receipt_export_store.ts";

/** Receipts as OTLP 1.5 logs in JSON (`ExportLogsServiceRequest`): pure. Source: MSG-15. */

/** SEVERITY_NUMBER_INFO. */
const INFO = 9;

type AnyValue = { stringValue: string } | { boolValue: boolean } | { intValue: string } | { doubleValue: number };
type Attribute = { key: string; value: AnyValue };

/** One log record for each receipt: its fields are attributes with the prefix `tollgate.receipt.`. */
export function otlpLogs(
  { batchId, number, plannedAt, receipts }: ReceiptBatch,
  { serviceName, version }: { serviceName: string; version: string },
) {
  const observedTimeUnixNano = unixNano(plannedAt);
  const batch = { "tollgate.batch.id": batchId, "tollgate.batch.number": number };
  return {
    resourceLogs: [
      {
        resource: { attributes: attributesOf({ "service.name": serviceName, "service.version": version }) },
        scopeLogs: [
          {
            scope: { name: "tollgate.receipts", version, attributes: attributesOf(batch) },
            logRecords: receipts.map((receipt) => ({
              timeUnixNano: unixNano(receipt.finishedAt),
              observedTimeUnixNano,
              severityNumber: INFO,
              severityText: "INFO",
              eventName: "tollgate.receipt",
              body: { stringValue: receipt.requestId },
              attributes: attributesOf(receipt, "tollgate.receipt."),
            })),
          },
        ],
      },
    ],
  };
}

/** How many records a collector says that it has rejected; 0: none. It may have cut its answer anywhere behind that. */
export function rejectedIn(answer: string): number {
  return Number(/"rejectedLogRecords"\s*:\s*"?(\d+)/.exec(answer)?.[1] ?? 0);
}

/** Without those that are null. Objects are JSON. */
function attributesOf(fields: Record<string, unknown>, prefix = ""): Attribute[] {
  return Object.entries(fields).flatMap(([name, field]) =>
    field === null || field === undefined ? [] : { key: prefix + name, value: anyValueOf(field) },
  );
}

function anyValueOf(field: unknown): AnyValue {
  if (typeof field === "string") return { stringValue: field };
  if (typeof field === "boolean") return { boolValue: field };
  if (typeof field === "number") return Number.isInteger(field) ? { intValue: String(field) } : { doubleValue: field };
  return { stringValue: JSON.stringify(field) };
}

function unixNano(iso: string): string {
  return String(BigInt(Date.parse(iso)) * 1_000_000n);
}
