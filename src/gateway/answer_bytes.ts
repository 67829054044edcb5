/** The most that is read of an answer, in bytes. */

/** 2,048 embeddings of 4,096 numbers in base64 have 43 MiB. */
export const EMBEDDINGS_BYTES_MAX = 64 * 1024 * 1024;
/** An image of 32 MiB in base64 takes 43. */
export const IMAGE_ANSWER_BYTES_MAX = 64 * 1024 * 1024;
