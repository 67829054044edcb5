/**
 * PostgreSQL refuses to run as root, and its initdb refuses a user without a name. An identity says how to start its
 * programs all the same: as we are, inside a user namespace, or as another user.
 */
import { spawnSync } from "node:child_process";
import { lchownSync, lstatSync, readdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";

export interface Identity {
  /** For messages: "as user alice". */
  name: string;
  /** Command and arguments to put before the program's own. */
  prefix: string[];
  /** The user who must own the data, as seen from here. */
  ownerUid: number;
  /** Set when the process has to be started as another user. */
  uid?: number;
  gid?: number;
}

/**
 * The identities worth trying for data below `folder`, best first. Which of them works depends on the kernel, the container
 * and the folders' rights, so try with `canRun`.
 */
export function possibleIdentities(folder: string): Identity[] {
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
    // Beside a person's files the data should be theirs too, so that they can delete it without root.
    const owner = userName(statSync(dirname(folder)).uid);
    if (owner && owner !== "root") identities.push(...otherUser(owner));
    identities.push(...otherUser("nobody"));
  } else if (!ownName) {
    identities.push({ name: `as user ${uid}`, prefix: [], ownerUid: uid });
  }
  return identities;
}

/** Tries to run `program --version` and to enter the folder that holds `folder`. Answers what went wrong, or null. */
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
 * Gives a file or a folder and all below it to the identity's owner. For root only; links are not followed.
 * The folder itself comes last: its owner tells that everything below was given as well.
 */
export function giveTo(identity: Identity, path: string): void {
  const entry = lstatSync(path);
  if (entry.isDirectory()) for (const name of readdirSync(path)) giveTo(identity, join(path, name));
  if (entry.uid !== identity.ownerUid) lchownSync(path, identity.ownerUid, identity.gid ?? entry.gid);
}

function otherUser(name: string): Identity[] {
  const numbers = userNumbers(name);
  return numbers ? [{ name: `as user ${name}`, prefix: [], ownerUid: numbers.uid, ...numbers }] : [];
}

function userName(uid: number): string | undefined {
  return askId("-un", String(uid));
}

function userNumbers(name: string): { uid: number; gid: number } | undefined {
  const uid = askId("-u", name);
  const gid = askId("-g", name);
  return uid && gid ? { uid: Number(uid), gid: Number(gid) } : undefined;
}

function askId(option: string, user: string): string | undefined {
  const { status, stdout } = spawnSync("id", [option, user], { encoding: "utf8" });
  return status === 0 ? stdout.trim() : undefined;
}
