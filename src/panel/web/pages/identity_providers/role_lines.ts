import type { IdentityProvider } from "./queries.ts";

/** The values of a claim and the roles that they give, as lines of text: `staff = developer`. */

type Roles = IdentityProvider["roles"];
const ROLES: readonly string[] = ["owner", "developer", "billing", "viewer"] satisfies Roles[number]["role"][];

export function toLines(roles: Roles): string {
  return roles.map(({ value, role }) => `${value} = ${role}`).join("\n");
}

/** null: a line has no role. The value may itself have an equals sign. */
export function rolesIn(typed: string): Roles | null {
  const lines = typed.split("\n").filter((line) => line.trim() !== "");
  const roles = lines.map((line) => {
    const at = line.lastIndexOf("=");
    return {
      value: line.slice(0, Math.max(at, 0)).trim(),
      role: line
        .slice(at + 1)
        .trim()
        .toLowerCase(),
    };
  });
  return roles.every(isRole) ? roles : null;
}

function isRole(line: { value: string; role: string }): line is Roles[number] {
  return line.value !== "" && ROLES.includes(line.role);
}
