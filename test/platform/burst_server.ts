import { serve } from "../../src/platform/runtime.ts";

/**
 * Serves on a free port, which it prints. POSTs wait until there are as many as the argument says; then all are refused in one
 * turn of the event loop, with their bodies unread. Run by runtime.test.ts.
 */

const count = Number(process.argv[2]);
const all = Promise.withResolvers<void>();
let waiting = 0;
const { port } = serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    if (request.method === "POST") {
      waiting += 1;
      if (waiting === count) all.resolve();
      await all.promise;
    }
    return new Response("refused", { status: request.method === "POST" ? 429 : 200 });
  },
  onError: () => new Response(null, { status: 500 }),
});
console.log(port);
