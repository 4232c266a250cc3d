// A window over the page: the browser's own dialog keeps the focus inside and closes with Escape.
import { useEffect, useRef, type ReactNode } from "react";

interface Props {
  title: string;
  onClose(): void;
  children: ReactNode;
  testId?: string;
}

export function Dialog({ title, onClose, children, testId }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    if (dialog && !dialog.open) dialog.showModal();
  }, []);
  return (
    <dialog
      ref={element}
      className="dialog"
      aria-label={title}
      data-testid={testId}
      onClose={onClose}
      onClick={(event) => event.target === element.current && onClose()}
    >
      <div className="dialog-body">
        <header className="dialog-head">
          <h2>{title}</h2>
          <button type="button" className="quiet" aria-label="Close" data-testid="close-dialog" onClick={onClose}>
            ✕
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
