import { type TSchema, Type } from "@sinclair/typebox";

const Nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const amount = (description: string) => Type.Optional(Type.Number({ description }));

/** The error envelope, as the API reference publishes it. `errors.ts` makes the errors themselves. */
export const ErrorShape = Type.Object(
  {
    error: Type.Object({
      message: Type.String(),
      type: Type.String(),
      code: Type.String(),
      param: Nullable(Type.String({ description: "The invalid field, as in messages.0.role." })),
      limit: amount("The limit that was reached: requests, USD for balances and spending limits, or bytes of a body."),
      used: amount("In the unit of limit."),
      remaining: amount("In the unit of limit."),
      resets_at: Type.Optional(Nullable(Type.String({ format: "date-time", description: "When the quota resets." }))),
    }),
    request_id: Type.String({ description: "The X-Request-Id of this answer. Give it to support." }),
  },
  { title: "ErrorEnvelope" },
);
