/** What a check of `doctor` finds. */
export type Finding = {
  what: string;
  /** `wrong` makes the exit code 1. */
  state: "ok" | "warning" | "wrong";
  detail: string;
  /** What to do about it. */
  advice?: string;
};

/** A finding of a check that names itself. */
export type Found = Omit<Finding, "what">;
