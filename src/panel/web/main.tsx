import "./app.css";
import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { setNonce } from "get-nonce";
import { RotateCw } from "lucide-react";
import {
  Component,
  type ErrorInfo,
  lazy,
  type ReactNode,
  StrictMode,
  Suspense,
  useEffect,
  useRef,
  useSyncExternalStore,
} from "react";
import { createRoot } from "react-dom/client";
import { Redirect, Route, Switch, useLocation, useSearch } from "wouter";
import { ApiError, call, useMeQuery, useSignOut } from "./api.ts";
import { FAILURES } from "./failures.ts";
import { language, showIn } from "./language.ts";
import { movedTo } from "./places.ts";
import { maySee, preloadPage, ROUTES, SIGNED_OUT } from "./routes.tsx";
import { Shell } from "./shell.tsx";
import { chooseTheme, currentTheme, subscribeTheme } from "./theme.ts";
import { Button } from "./ui/buttons.tsx";
import { Page } from "./ui/page.tsx";
import { Empty, ErrorState, Loading, Skeleton } from "./ui/states.tsx";
import { toast } from "./ui/toast.ts";

/** Starts the panel: loads who is signed in, then draws the shell, then the page of the URL. */

const STALE_MS = 15_000;
const RETRIES_MAX = 2;
/** Signing out redirects once; the URL to return to is kept in the query. */
const SIGN_IN = "/sign-in";
/** Only admins view other people's panels; they return to that person's page. */
const PEOPLE = "/admin/people";

/** Loaded once the page stands. A page that cannot load it works, without notices. */
const Toaster = lazy<() => ReactNode>(() =>
  import("./ui/toaster.tsx").then(
    ({ Toaster }) => ({ default: Toaster }),
    () => ({ default: () => null }),
  ),
);

const client = new QueryClient({
  defaultOptions: {
    queries: { staleTime: STALE_MS, refetchOnWindowFocus: true, retry: mayRetry },
    mutations: { retry: false },
  },
  queryCache: new QueryCache({ onError: (error) => isSignedOut(error) && goToSignIn() }),
  mutationCache: new MutationCache({ onError: (error) => isSignedOut(error) && goToSignIn() }),
});

/** A request that the server refused is not retried; one that did not arrive is. */
function mayRetry(failures: number, error: Error): boolean {
  const isPassing = !(error instanceof ApiError) || error.status === 0 || error.status >= 500;
  return isPassing && failures < RETRIES_MAX;
}

function isSignedOut(error: unknown): boolean {
  return error instanceof ApiError && error.code === "session_required";
}

function goToSignIn(): void {
  const { pathname, search } = window.location;
  if (SIGNED_OUT.some(({ path }) => pathname.startsWith(path.split("/:")[0] ?? path))) return;
  const next = pathname === "/" ? "" : `?next=${encodeURIComponent(pathname + search)}`;
  // A full page load, so that nothing the last person saw stays in memory.
  window.location.replace(`${SIGN_IN}${next}`);
}

function App() {
  return (
    <Crash>
      <QueryClientProvider client={client}>
        <Switch>
          {SIGNED_OUT.map(({ path, page: SignedOutPage }) => (
            <Route key={path} path={path}>
              <Suspense fallback={null}>
                <SignedOutPage />
              </Suspense>
            </Route>
          ))}
          <Route>
            <SignedIn />
          </Route>
        </Switch>
        <Suspense fallback={null}>
          <Toaster />
        </Suspense>
      </QueryClientProvider>
    </Crash>
  );
}

function SignedIn() {
  const { data: me, error, refetch } = useMeQuery();
  const theme = useSyncExternalStore(subscribeTheme, currentTheme);
  const signOut = useSignOut();
  const chosen = me?.person.language ?? null;
  useEffect(() => {
    if (chosen !== null && chosen !== language) showIn(chosen);
  }, [chosen]);
  if (me === undefined) {
    if (error && !isSignedOut(error)) return <ErrorState error={error} onRetry={() => void refetch()} />;
    return <PageSkeleton />;
  }
  const leave = async () => {
    try {
      window.location.replace((await signOut()) ?? SIGN_IN);
    } catch (thrown) {
      toast.failed(thrown, t`You are still signed in.`);
    }
  };
  const leaveView = async () => {
    try {
      await call("/api/panel/view/leave", { method: "POST" });
      // A full page load, so that nothing of the other person stays in memory.
      window.location.replace(me.viewing ? `${PEOPLE}/${me.viewing.accountId}` : PEOPLE);
    } catch (thrown) {
      toast.failed(thrown);
    }
  };
  const role = me.viewing?.role ?? me.account.role;
  return (
    <Shell
      me={me}
      theme={theme}
      onTheme={chooseTheme}
      onSignOut={() => void leave()}
      onLeaveView={() => void leaveView()}
    >
      <FocusOnChange />
      <Suspense fallback={<PageSkeleton />}>
        <Moved />
        <Switch>
          {ROUTES.filter(({ audience }) => maySee(role, audience)).map(({ path, page: RoutedPage }) => (
            <Route key={path} path={path}>
              <PageCrash path={path}>
                <RoutedPage />
              </PageCrash>
            </Route>
          ))}
          <Route>
            <NotFound />
          </Route>
        </Switch>
      </Suspense>
    </Shell>
  );
}

/** Leads from an address that a page had to where it is now. */
function Moved() {
  const [location] = useLocation();
  const to = movedTo(location, useSearch());
  return to && <Redirect to={to} replace />;
}

/** After a change of page the focus moves to its beginning, as after a page load. */
function FocusOnChange() {
  const [location] = useLocation();
  const before = useRef(location);
  useEffect(() => {
    if (before.current === location) return;
    before.current = location;
    window.scrollTo(0, 0);
    document.getElementById("content")?.focus({ preventScroll: true });
  }, [location]);
  return null;
}

function PageSkeleton() {
  return (
    <Loading className="mx-auto grid w-full max-w-[76rem] gap-6 px-4 pt-6 sm:px-6 lg:px-8 lg:pt-8">
      <Skeleton className="h-7 w-40" />
      <Skeleton className="h-48 rounded-lg" />
    </Loading>
  );
}

function NotFound() {
  const [, navigate] = useLocation();
  return (
    <Page title={t`Not found`}>
      <Empty
        action={
          <Button variant="primary" onClick={() => navigate("/")}>
            <Trans>Go home</Trans>
          </Button>
        }
      >
        {FAILURES.notFound}
      </Empty>
    </Page>
  );
}

type CrashProps = { children: ReactNode };

/** An error while a page was drawn: a text, the cause for support, and Reload. */
class Crash extends Component<CrashProps, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: unknown) {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override componentDidCatch(error: Error, info: ErrorInfo) {
    console.error(error, info.componentStack);
  }

  override render() {
    const { error } = this.state;
    if (error === null) return this.props.children;
    if (isOldVersion(error)) return <NewVersion />;
    return (
      <div role="alert" className="mx-auto grid max-w-[32rem] justify-items-center gap-4 px-4 py-12 text-center">
        <h1 className="text-20 font-semibold">
          <Trans>This page stopped working</Trans>
        </h1>
        <p className="text-14 text-ink-2">{FAILURES.crashed}</p>
        <code className="max-w-full rounded-sm bg-sunken px-2 py-1 font-mono text-12 break-words text-ink-2">
          {error.message}
        </code>
        <Button variant="primary" onClick={() => window.location.reload()}>
          <Trans>Reload</Trans>
        </Button>
      </div>
    );
  }
}

/** The script of a page no longer exists: a newer panel was deployed while this tab was open. */
function isOldVersion(error: Error): boolean {
  return /dynamically imported module|importing a module script failed/i.test(error.message);
}

function NewVersion() {
  return (
    <Empty
      icon={RotateCw}
      action={
        <Button variant="primary" onClick={() => window.location.reload()}>
          <Trans>Reload</Trans>
        </Button>
      }
    >
      {FAILURES.newVersion}
    </Empty>
  );
}

/** The same for one page: the shell stays, and another page starts fresh. */
function PageCrash({ path, children }: CrashProps & { path: string }) {
  return <Crash key={path}>{children}</Crash>;
}

// Overlays insert one <style>, which the strict CSP allows by the nonce of this response.
setNonce(document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "");

// Loads the page's script while the request for who is signed in is under way.
preloadPage(window.location.pathname);

const root = document.getElementById("root");
if (root === null) throw new Error("The page has no root element.");
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
