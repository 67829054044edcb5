/** The clocks of a replica, and of its machine. */

export type Clock = {
  /** Monotonic, ms. */
  nowMs(): number;
  /** Unix time by the database's clock, ms, as this replica estimates it: never ahead of it. For the expiry of cached keys, and for `created`. */
  unixMs(): number;
};

/** The clocks of the machine. Rooms get no `wallMs`: it may be minutes off, and no due time, claim or expiry may depend on it. */
export type MachineClock = {
  /** Monotonic, ms. */
  nowMs(): number;
  /** Unix time, ms. */
  wallMs(): number;
};
