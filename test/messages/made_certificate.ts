import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/** Certificates for servers of tests, made by openssl. */

const run = promisify(execFile);
const NEW = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];

/** A certificate of `name`, as "DNS:localhost" or "IP:127.0.0.1". A client that trusts the file `authorityPath` accepts it. */
export async function makeCertificate(name: string) {
  const folder = await mkdtemp(join(tmpdir(), "certificate-"));
  const at = (file: string) => join(folder, file);
  await run("openssl", [...NEW, "-keyout", at("ca.key"), "-out", at("ca.pem"), "-subj", "/CN=Tests"]);
  const signed = ["-CA", at("ca.pem"), "-CAkey", at("ca.key"), "-keyout", at("key.pem"), "-out", at("cert.pem")];
  const says = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", `subjectAltName=${name}`];
  await run("openssl", [...NEW, ...signed, "-subj", "/CN=test", ...says]);
  const [key, cert] = await Promise.all([readFile(at("key.pem"), "utf8"), readFile(at("cert.pem"), "utf8")]);
  return { key, cert, authorityPath: at("ca.pem"), remove: () => rm(folder, { recursive: true }) };
}
