import { readFileSync } from "node:fs";

/** Preloaded into a replica: sets its clock back by the milliseconds in the file CLOCK_BACK_FILE. */
const file = process.env.CLOCK_BACK_FILE ?? "";
const now = Date.now.bind(Date);
Date.now = () => now() - Number(readFileSync(file, "utf8"));
