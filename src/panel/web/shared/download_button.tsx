import { t } from "@lingui/core/macro";
import { useMutation } from "@tanstack/react-query";
import { Download } from "lucide-react";
import type { ReactNode } from "react";
import { Button } from "../ui/buttons.tsx";
import { toast } from "../ui/toast.ts";
import { download } from "./download.ts";

/** Saves a file of the server, such as a list as CSV. `path` is asked for when it is pressed. */
export function DownloadButton({
  path,
  fileName,
  size = "md",
  children,
}: {
  path: () => string;
  /** If the server gives none. */
  fileName: string;
  size?: "md" | "sm";
  children: ReactNode;
}) {
  const file = useMutation({
    mutationFn: () => download(path(), fileName),
    onError: (error) => toast.failed(error, t`The file was not downloaded.`),
  });
  return (
    <Button icon={Download} size={size} pending={file.isPending} onClick={() => file.mutate()}>
      {children}
    </Button>
  );
}
