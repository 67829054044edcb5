import { t } from "@lingui/core/macro";
import { Monitor, Moon, Sun } from "lucide-react";
import type { Theme } from "./theme.ts";

/** The themes to choose from. Not in theme.ts, which the page loads before its first paint. */
export const THEMES = [
  { value: "system", label: t`As the system`, icon: Monitor },
  { value: "light", label: t({ message: "Light", context: "theme" }), icon: Sun },
  { value: "dark", label: t({ message: "Dark", context: "theme" }), icon: Moon },
] as const satisfies readonly { value: Theme; label: string; icon: typeof Sun }[];
