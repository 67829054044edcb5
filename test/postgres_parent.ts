/** A program that starts an embedded PostgreSQL on the folder in its argument, prints the process id and keeps running. */
import { startEmbeddedPostgres } from "../src/demo/postgres/embedded_postgres.ts";

const server = await startEmbeddedPostgres({ dataDir: process.argv[2] ?? "" });
console.log(server.pid);
setInterval(() => {}, 60_000);
