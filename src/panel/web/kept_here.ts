/**
 * The database that this browser keeps for the person who is signed in: the playground's conversations are there. Nobody else may find
 * it. Signing out deletes it, and so does another person who signs in.
 */

export const DATABASE = "kept-here";
const OWNER = "kept-here-of";

/** Whether the database is this person's. */
export function isKeptFor(accountId: number): boolean {
  return localStorage.getItem(OWNER) === String(accountId);
}

/** Makes the database this person's: another's is deleted. null: nobody's. */
export async function keepFor(accountId: number | null): Promise<void> {
  try {
    if (accountId !== null && isKeptFor(accountId)) return;
    const deleted = deleteDatabase();
    if (accountId === null) localStorage.removeItem(OWNER);
    else localStorage.setItem(OWNER, String(accountId));
    await deleted;
  } catch {
    // A browser that forbids storage has kept nothing.
  }
}

function deleteDatabase(): Promise<void> {
  return new Promise((done) => {
    const deleting = indexedDB.deleteDatabase(DATABASE);
    deleting.onsuccess = () => done();
    deleting.onerror = () => done();
  });
}
