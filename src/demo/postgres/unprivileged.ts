/**
 * Ways to run PostgreSQL without root: it refuses to run as root, and its initdb refuses a user without a name. An identity is
 * the current user, the current user inside a user namespace, or another user.
 */
import { spawnSync } from "node:child_process";
import { lchownSync, lstatSync, readdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";

export interface Identity {
  /** For messages: "as user alice". */
  name: string;
  /** Command and arguments that run the program: put before its own. */
  prefix: string[];
  /** Uid that must own the data, as this process sees it. */
  ownerUid: number;
  /** Set if the process must be started as another user. */
  uid?: number;
  gid?: number;
}

/**
 * Identities to try for data below `folder`, best first. Which one works depends on the kernel, the container and the
 * permissions of the folders, so check each with `whyCannotRun`.
 */
export function candidateIdentities(folder: string): Identity[] {
  const uid = process.getuid?.() ?? -1;
  const isRoot = uid === 0;
  const ownName = isRoot ? undefined : userName(uid);
  const nobody = userNumbers("nobody");
  const identities: Identity[] = [];
  if (ownName) identities.push({ name: `as user ${ownName}`, prefix: [], ownerUid: uid });
  if (!ownName && nobody && process.platform === "linux") {
    const prefix = ["unshare", "-U", `--map-user=${nobody.uid}`, "--"];
    identities.push({ name: "in a user namespace", prefix, ownerUid: uid });
  }
  if (isRoot) {
    // Prefers the owner of the parent folder, who can then delete the data without root.
    const owner = userName(statSync(dirname(folder)).uid);
    if (owner && owner !== "root") identities.push(...otherUser(owner));
    identities.push(...otherUser("nobody"));
  } else if (!ownName) {
    identities.push({ name: `as user ${uid}`, prefix: [], ownerUid: uid });
  }
  return identities;
}

/** Tries to run `program --version` in the parent of `folder`. Returns why that failed, or null if it worked. */
export function whyCannotRun(identity: Identity, program: string, folder: string): string | null {
  const { prefix, uid, gid } = identity;
  const [command = "", ...args] = [
    ...prefix,
    "/bin/sh",
    "-c",
    'cd "$1" && "$2" --version',
    "sh",
    dirname(folder),
    program,
  ];
  const tried = spawnSync(command, args, { uid, gid, cwd: "/", encoding: "utf8" });
  if (tried.status === 0) return null;
  const lines = (tried.error?.message ?? tried.stderr ?? "").trim().split("\n");
  return lines.at(-1) || `exit code ${tried.status}`;
}

/**
 * Makes the identity's user the owner of a file, or of a folder with everything below it. For root only; links are not followed.
 * The folder itself comes last: its new owner proves that everything below was changed too.
 */
export function chownTree(identity: Identity, path: string): void {
  const entry = lstatSync(path);
  if (entry.isDirectory()) for (const name of readdirSync(path)) chownTree(identity, join(path, name));
  if (entry.uid !== identity.ownerUid) lchownSync(path, identity.ownerUid, identity.gid ?? entry.gid);
}

function otherUser(name: string): Identity[] {
  const numbers = userNumbers(name);
  return numbers ? [{ name: `as user ${name}`, prefix: [], ownerUid: numbers.uid, ...numbers }] : [];
}

function userName(uid: number): string | undefined {
  return idOf("-un", String(uid));
}

function userNumbers(name: string): { uid: number; gid: number } | undefined {
  const uid = idOf("-u", name);
  const gid = idOf("-g", name);
  return uid && gid ? { uid: Number(uid), gid: Number(gid) } : undefined;
}

function idOf(option: string, user: string): string | undefined {
  const { status, stdout } = spawnSync("id", [option, user], { encoding: "utf8" });
  return status === 0 ? stdout.trim() : undefined;
}
