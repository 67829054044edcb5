/** Of argon2id, which is the library's default. OWASP's parameters: 19 MiB, two passes, one lane. */
export const PARAMETERS = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };
