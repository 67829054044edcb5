import { readFileSync } from "node:fs";

/** Preloaded into a replica: its clock runs behind by as many milliseconds as the file CLOCK_BACK_FILE says. */
const file = process.env.CLOCK_BACK_FILE ?? "";
const now = Date.now.bind(Date);
Date.now = () => now() - Number(readFileSync(file, "utf8"));
