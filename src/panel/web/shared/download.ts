import { send, toApiError } from "../api.ts";

/** Files for the visitor's own disk. */

/** The browser reads the address a moment after the click. */
const KEPT_MS = 10_000;

/** Asks for a file and saves it under the name the server gave it. Throws ApiError. */
export async function download(path: string, fallbackName: string): Promise<void> {
  const response = await send(path, {});
  if (!response.ok) throw await toApiError(response);
  const [, name] = /filename="([^"]+)"/.exec(response.headers.get("content-disposition") ?? "") ?? [];
  saveAs(await response.blob(), name ?? fallbackName);
}

export function saveAs(file: Blob, name: string): void {
  const url = URL.createObjectURL(file);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), KEPT_MS);
}
