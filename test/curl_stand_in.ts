/** Replaces curl on machines without it, as far as the demo and the documents use it: -sS, -N, -H, -d, -w, and a URL. */
const headers = new Headers();
let body: string | undefined;
let ending = "";
let url = "";
const args = process.argv.slice(2);
for (let arg = args.shift(); arg !== undefined; arg = args.shift()) {
  if (arg === "-H") {
    const [name = "", value = ""] = args.shift()?.split(/:\s*(.*)/s) ?? [];
    headers.set(name, value);
  } else if (arg === "-d") body = args.shift();
  else if (arg === "-w") ending = args.shift()?.replaceAll("\\n", "\n") ?? "";
  else if (!arg.startsWith("-")) url = arg;
  else if (!/^-[sSN]+$/.test(arg)) throw new Error(`this replacement of curl does not support ${arg}`);
}
const response = await fetch(url, { headers, ...(body !== undefined && { method: "POST", body }) });
for await (const part of response.body ?? []) process.stdout.write(part);
process.stdout.write(ending);
