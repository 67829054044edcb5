import type { ReactNode } from "react";

/** The `<form>` of every form: the browser's own checks are off, and submitting it loads no page. */
export function FormFrame({
  onSubmit,
  className = "grid gap-4",
  children,
}: {
  onSubmit: () => void;
  className?: string;
  children: ReactNode;
}) {
  return (
    <form
      noValidate
      className={className}
      onSubmit={(event) => {
        event.preventDefault();
        // Events of a portal bubble to the parents of the component, which may be a form too.
        event.stopPropagation();
        onSubmit();
      }}
    >
      {children}
    </form>
  );
}
