import { afterAll, beforeAll, expect, test } from "bun:test";
import { codeAt } from "../accounts/authenticator.ts";
import { mailedTo } from "../panel/mailed_links.ts";
import { givePassword, PASSWORD } from "../panel/panel_client.ts";
import type { Person } from "../world.ts";
import { ACME_HOST, openPanel, PANEL_HOST, type Panel, said, type Visit } from "./browser.ts";

/** Passkeys, forgotten passwords and changes of address in the browser, with a virtual authenticator. Source: SGN-1, SGN-5, SGN-9, SGN-10, SGN-13. */

const NEW_PASSWORD = "three lanterns by the river";
const MAIL = { SMTP_URL: "smtp://127.0.0.1:1", MAIL_FROM: "mail@panel.localhost" };

let panel: Panel;
let addresses = 0;

beforeAll(async () => {
  panel = await openPanel({ env: { TRUSTED_PROXIES: "127.0.0.1,::1", ...MAIL } });
});
afterAll(() => panel.close());

async function addPerson(resellerId?: number): Promise<Person & { email: string }> {
  const person = await panel.shop.world.addCustomer(resellerId);
  return { ...person, email: await givePassword(panel.shop, person) };
}

/** A visit that is not signed in, from an unused address. */
function arrive(path = "/sign-in", host = PANEL_HOST): Promise<Visit> {
  return panel.visit(null, path, { host, extraHTTPHeaders: { "x-forwarded-for": `192.0.2.${++addresses}` } });
}

/** What the browser's virtual device keeps of a passkey. */
type Credential = { credentialId: string; isResidentCredential: boolean; privateKey: string; signCount: number };

/** A device with a fingerprint reader. While it is not `present`, nobody touches it. */
async function addDevice({ context, page, check }: Visit) {
  await context.addInitScript(() => {
    const get = navigator.credentials.get.bind(navigator.credentials);
    navigator.credentials.get = (options) => {
      document.documentElement.dataset.asked = options?.mediation ?? "modal";
      return get(options);
    };
  });
  const client = await context.newCDPSession(page);
  let isPresent = false;
  const plugIn = async () => {
    await client.send("WebAuthn.enable");
    const { authenticatorId } = await client.send("WebAuthn.addVirtualAuthenticator", {
      options: {
        ...{ protocol: "ctap2", transport: "internal", hasResidentKey: true, hasUserVerification: true },
        ...{ isUserVerified: true, automaticPresenceSimulation: isPresent },
      },
    });
    return authenticatorId;
  };
  let authenticatorId = await plugIn();
  const credentials = async (): Promise<Credential[]> =>
    (await client.send("WebAuthn.getCredentials", { authenticatorId })).credentials;
  return {
    credentials,
    async present(enabled: boolean) {
      isPresent = enabled;
      await client.send("WebAuthn.setAutomaticPresenceSimulation", { authenticatorId, enabled });
    },
    /** Puts a copy of the key in its place, with the counter that it had. */
    async restore(credential: Credential) {
      await client.send("WebAuthn.removeCredential", { authenticatorId, credentialId: credential.credentialId });
      await client.send("WebAuthn.addCredential", { authenticatorId, credential });
    },
    /** As the visit's `check`, which ends the browser's virtual devices: it detaches from the page. */
    async check() {
      const kept = await credentials();
      await check();
      await client.send("WebAuthn.disable");
      authenticatorId = await plugIn();
      for (const credential of kept) await client.send("WebAuthn.addCredential", { authenticatorId, credential });
    },
  };
}

/** Presses the button once the suggestions have been asked for. A device answers only what is asked while it is present. */
async function pressPasskey({ page }: Visit, device: Awaited<ReturnType<typeof addDevice>>): Promise<void> {
  await page.waitForFunction(() => document.documentElement.dataset.asked === "conditional");
  await device.present(true);
  await page.getByRole("button", { name: "Sign in with a passkey" }).click();
}

const isHome = ({ page }: Visit) => page.getByRole("heading", { name: "Home", level: 1 }).waitFor();

async function signOut({ page }: Visit): Promise<void> {
  await page.getByRole("button", { name: /^Account/ }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in", level: 1 }).waitFor();
}

/** Adds a passkey in the settings, with the password. */
async function addPasskey({ page }: Visit, name: string): Promise<void> {
  await page.getByRole("button", { name: "Add passkey" }).click();
  const dialog = page.getByRole("dialog", { name: "Add a passkey" });
  await dialog.getByLabel("Name").fill(name);
  await dialog.getByLabel("Current password", { exact: true }).fill(PASSWORD);
  await dialog.getByRole("button", { name: "Continue" }).click();
  await page.getByText("Passkey added.").first().waitFor();
}

for (const host of [PANEL_HOST, ACME_HOST]) {
  test(`on ${host}: a passkey is added, signs in by its button and among the suggestions, and is removed with itself`, async () => {
    const person = await addPerson(host === ACME_HOST ? panel.acme.accountId : undefined);
    const visit = await arrive("/sign-in", host);
    const { page } = visit;
    const device = await addDevice(visit);
    await visit.signIn(person);
    await page.goto("/settings?tab=sign-in");
    await device.present(true);
    await said(page, "No passkeys yet. With one, you sign in without typing a password.");
    visit.expectProblem(/^422 POST \/api\/panel\/settings\/passkeys\/begin$/);
    await page.getByRole("button", { name: "Add passkey" }).click();
    const dialog = page.getByRole("dialog", { name: "Add a passkey" });
    await dialog.getByLabel("Current password", { exact: true }).fill("not the password");
    await dialog.getByRole("button", { name: "Continue" }).click();
    await dialog.getByText("This is not your password.").waitFor();
    await device.check();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await dialog.waitFor({ state: "hidden" });
    await addPasskey(visit, "My laptop");
    await page.getByText("Never used").waitFor();
    await device.check();
    const [credential] = await device.credentials();
    expect(credential).toMatchObject({ rpId: host, isResidentCredential: true });

    // The suggestions: the device answers as soon as the page asks.
    await device.present(false);
    await signOut(visit);
    await page.getByRole("button", { name: "Sign in with a passkey" }).waitFor();
    await device.check();
    await device.present(true);
    await page.reload();
    await isHome(visit);
    await device.check();

    // The button.
    await device.present(false);
    await signOut(visit);
    await pressPasskey(visit, device);
    await isHome(visit);

    await page.goto("/settings?tab=sign-in");
    await page.getByRole("button", { name: "Rename My laptop" }).click();
    await page.getByRole("dialog").getByLabel("Name").fill("Old laptop");
    await page.getByRole("button", { name: "Save name" }).click();
    await page.getByRole("button", { name: "Remove Old laptop" }).click();
    const removing = page.getByRole("dialog", { name: "Remove Old laptop?" });
    await device.check();
    await removing.getByRole("button", { name: "Remove" }).click();
    await said(page, "No passkeys yet. With one, you sign in without typing a password.");
    await device.check();
    await visit.close();
  });
}

test("with a passkey a forgotten password is changed, and the second factor set up, renewed and removed", async () => {
  const person = await addPerson();
  const visit = await arrive();
  const { page } = visit;
  const device = await addDevice(visit);
  await visit.signIn(person);
  await page.goto("/settings?tab=sign-in");
  await device.present(true);
  await addPasskey(visit, "My laptop");
  const dialogOf = async (button: string, name: string) => {
    await page.getByRole("button", { name: button, exact: true }).click();
    const dialog = page.getByRole("dialog", { name });
    expect(await dialog.getByRole("radio", { name: "Passkey" }).isChecked()).toBe(true);
    expect(await dialog.getByLabel("Current password", { exact: true }).count()).toBe(0);
    return dialog;
  };

  const changing = await dialogOf("Change password", "Change your password");
  await changing.getByLabel("New password", { exact: true }).fill("short");
  await changing.getByRole("button", { name: "Change password" }).click();
  await changing.getByText(/^Not yet: /).waitFor();
  await device.check();
  await changing.getByLabel("New password", { exact: true }).fill(NEW_PASSWORD);
  await changing.getByRole("button", { name: "Change password" }).click();
  await page.getByText("Password changed.").first().waitFor();

  const setUp = await dialogOf("Set up", "Set up the second factor");
  await setUp.getByRole("button", { name: "Continue" }).click();
  const scanning = page.getByRole("dialog", { name: "Scan this with your app" });
  const secret = ((await scanning.locator("code").textContent()) ?? "").replaceAll(" ", "");
  await scanning.getByRole("textbox", { name: "Code" }).fill(codeAt(secret));
  await scanning.getByRole("button", { name: "Switch on" }).click();
  const codes = page.getByRole("dialog", { name: "Your recovery codes" });
  await codes.waitFor();
  const first = await codes.getByRole("listitem").allInnerTexts();
  await codes.getByLabel(/stored/).check();
  await codes.getByRole("button", { name: "Done" }).click();

  const renewing = await dialogOf("New recovery codes", "New recovery codes");
  await device.check();
  await renewing.getByRole("button", { name: "Continue" }).click();
  await codes.waitFor();
  const second = await codes.getByRole("listitem").allInnerTexts();
  expect(new Set([...first, ...second]).size).toBe(20);
  await codes.getByLabel(/stored/).check();
  await codes.getByRole("button", { name: "Done" }).click();

  // The second factor's: the section of passkeys has a button of that name for each of them.
  const removing = await dialogOf("Remove", "Remove the second factor?");
  await removing.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("button", { name: "Set up", exact: true }).waitFor();
  await device.check();

  await device.present(false);
  await signOut(visit);
  visit.expectProblem(/^401 POST \/api\/panel\/sign-in$/);
  await page.getByLabel("E-mail").fill(person.email);
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.getByText("Wrong e-mail or password.").waitFor();
  await page.getByLabel("Password", { exact: true }).fill(NEW_PASSWORD);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await isHome(visit);
  await device.check();
  await visit.close();
});

test("a copied passkey is refused with a reason, and its owner sees it in the settings", async () => {
  const person = await addPerson();
  const visit = await arrive();
  const { page } = visit;
  const device = await addDevice(visit);
  await visit.signIn(person);
  await page.goto("/settings?tab=sign-in");
  await device.present(true);
  await addPasskey(visit, "Key on my desk");
  const [copy] = await device.credentials();
  await device.present(false);
  await signOut(visit);
  await device.present(true);
  await page.reload();
  await isHome(visit);
  await device.present(false);
  await signOut(visit);
  if (copy === undefined) throw new Error("the device has no credential");
  await device.restore(copy);
  visit.expectProblem(/^401 POST \/api\/panel\/sign-in\/passkey$/);
  const refused = page.waitForResponse((response) => response.status() === 401);
  await pressPasskey(visit, device);
  await refused;
  // Otherwise the device would answer the next suggestion too, which a person would have to choose.
  await device.present(false);
  await page.getByText(/There seems to be a copy of this passkey/).waitFor();
  await device.check();
  await visit.signIn(person);
  await page.goto("/settings?tab=sign-in");
  await said(page, "Blocked");
  await device.check();
  await visit.close();
});

test("a person who cancels reads what happened, and can try again", async () => {
  const visit = await arrive();
  const { page } = visit;
  const device = await addDevice(visit);
  await device.present(true);
  await page.reload();
  await page.getByRole("button", { name: "Sign in with a passkey" }).click();
  await page.getByText(/^No passkey was used\./).waitFor();
  await visit.check();
  await visit.close();
});

test("a forgotten password: the page says the same for everyone, and the link sets a new one", async () => {
  const person = await addPerson();
  const visit = await arrive();
  const { page } = visit;
  await page.getByRole("link", { name: "Forgot your password?" }).click();
  await page.getByRole("heading", { name: "Forgot your password?", level: 1 }).waitFor();
  await page.getByRole("button", { name: "Send link" }).click();
  await page.getByText("Enter your e-mail address.").waitFor();
  await visit.check();
  for (const email of ["nobody@example.com", person.email]) {
    await page.goto("/forgot");
    await page.getByLabel("E-mail").fill(email);
    await page.getByRole("button", { name: "Send link" }).click();
    await page.getByRole("heading", { name: "Check your mail", level: 1 }).waitFor();
    await said(page, new RegExp(`^If ${email} belongs to an account here`));
  }
  await visit.check();
  const [mail] = await mailedTo(panel.shop, person);
  await page.goto(mail?.url ?? "");
  await page.getByLabel("Password", { exact: true }).fill(NEW_PASSWORD);
  await page.getByRole("button", { name: "Set password and sign in" }).click();
  await isHome(visit);
  await visit.check();
  await visit.close();
});

test("an address is changed once both links are confirmed; the settings show what is missing", async () => {
  const person = await addPerson();
  const email = "moved@example.com";
  const visit = await panel.visit(person, "/settings?tab=sign-in");
  const { page } = visit;
  await page.getByRole("button", { name: "Change e-mail" }).click();
  const dialog = page.getByRole("dialog", { name: "Change your e-mail" });
  await dialog.getByLabel("New e-mail").fill(email);
  await dialog.getByLabel("Current password", { exact: true }).fill(PASSWORD);
  await visit.check();
  await dialog.getByRole("button", { name: "Send links" }).click();
  await said(page, `Waiting to change to ${email}`);
  await visit.check();
  const [old, fresh] = await mailedTo(panel.shop, person);
  const reader = await arrive(old?.url);
  await reader.page.getByText(/Was it you\?$/).waitFor();
  await reader.check();
  await reader.page.getByRole("button", { name: "Yes, change it" }).click();
  await reader.page.getByRole("heading", { name: "Confirmed", level: 1 }).waitFor();
  await reader.check();
  await page.reload();
  await said(page, `${person.email}: confirmed`);
  await reader.page.goto(fresh?.url ?? "");
  await reader.page.getByRole("button", { name: "Confirm", exact: true }).click();
  await reader.page.getByRole("heading", { name: "E-mail changed", level: 1 }).waitFor();
  await reader.check();
  reader.expectProblem(/^404 GET \/api\/panel\/email-changes\//);
  await reader.page.goto(old?.url ?? "");
  await reader.page.getByRole("heading", { name: "This link no longer works", level: 1 }).waitFor();
  await reader.check();
  await reader.close();
  await page.reload();
  await said(page, email);
  await visit.check();
  await visit.close();
});
