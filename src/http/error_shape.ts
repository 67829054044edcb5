import { type TSchema, Type } from "@sinclair/typebox";

const Nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const amount = (description: string) => Type.Optional(Type.Number({ description }));

/** The error envelope, as the API reference publishes it. Errors themselves are made in `errors.ts`. */
export const ErrorShape = Type.Object(
  {
    error: Type.Object({
      message: Type.String(),
      type: Type.String(),
      code: Type.String(),
      param: Nullable(Type.String({ description: "The field at fault, as in messages.0.role." })),
      limit: amount("Of what is used up: requests, or USD where money ran out; of a body, bytes."),
      used: amount("In the unit of limit."),
      remaining: amount("In the unit of limit."),
      resets_at: Type.Optional(Nullable(Type.String({ format: "date-time", description: "When there will be more." }))),
    }),
    request_id: Type.String({ description: "The X-Request-Id of this answer. Quote it to support." }),
  },
  { title: "ErrorEnvelope" },
);
