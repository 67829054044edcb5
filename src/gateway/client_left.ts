import { Refusal } from "../errors.ts";

/** The client has left, so nobody reads this, and it counts as no error. */
export class ClientLeft extends Refusal {
  constructor() {
    super("service_unavailable", { message: "The client left." });
  }
}
