/** A file that is written page by page as the client reads, so that a slow client keeps neither a snapshot nor a connection open. */

/** A file's pages wait longer for a connection than a page on screen, so that a download that began can finish. */
export const FILE_WAIT_MS_MAX = 10_000;

/** The pages as a stream. Throws what the first page throws; a later failure aborts the download. `clientGone` is aborted with it. */
export async function streamPages(
  pages: AsyncGenerator<string, undefined>,
  clientGone: AbortController,
): Promise<ReadableStream<Uint8Array>> {
  const encoder = new TextEncoder();
  const first = await pages.next();
  let text: string | undefined = first.done ? undefined : first.value;
  return new ReadableStream({
    async pull(controller) {
      if (text === undefined) return controller.close();
      controller.enqueue(encoder.encode(text));
      const next = await pages.next();
      text = next.done ? undefined : next.value;
    },
    async cancel() {
      clientGone.abort();
      await pages.return(undefined);
    },
  });
}

/** The response that a browser saves under this name. */
export function csvResponse(csv: ReadableStream<Uint8Array>, fileName: string): Response {
  return new Response(csv, {
    headers: {
      "content-type": "text/csv; charset=utf-8",
      "content-disposition": `attachment; filename="${fileName}"`,
    },
  });
}
