"""Progress in a terminal or a notebook."""

from __future__ import annotations

import sys
import time
from typing import Any


class Bar:
    """Shows the step of a fit: a line that changes in a terminal or a notebook, and lines elsewhere."""

    WIDTH = 28

    def __init__(self, verbose: bool) -> None:
        self.verbose = verbose
        self.start = time.monotonic()
        self.name = ""
        self.count = 0
        self.width = 0
        self.display: Any = None

    def __enter__(self) -> Any:
        return self.show if self.verbose else None

    def __exit__(self, *_: object) -> None:
        if self.verbose:
            self._print("")

    def show(self, name: str, done: int | None, total: int | None, message: str | None) -> None:
        """Shows that ``done`` of ``total`` is done; None is one more."""
        if name != self.name:
            self.name, self.start, self.count = name, time.monotonic(), 0
            if not _changes() and name:
                print(name, file=sys.stderr, flush=True)
        self.count = self.count + 1 if done is None else done
        seconds = f"{time.monotonic() - self.start:.0f} s"
        parts = [name]
        if total:
            full = min(self.WIDTH, self.WIDTH * self.count // total)
            parts.append(f"[{'=' * full}{' ' * (self.WIDTH - full)}] {self.count}/{total}")
        self._print(" ".join([*parts, seconds, message or ""]) if name else "")

    def _print(self, line: str) -> None:
        if _notebook():
            self._display(line)
        elif sys.stderr.isatty():
            print("\r" + line.ljust(self.width), end="" if line else "\r", file=sys.stderr, flush=True)
            self.width = len(line)

    def _display(self, line: str) -> None:
        from IPython.display import display

        content = {"text/plain": line}
        if self.display is None:
            self.display = display(content, raw=True, display_id=True)
        else:
            self.display.update(content, raw=True)


def _notebook() -> bool:
    """Returns whether IPython shows pages, as kernels of notebooks do."""
    shell = sys.modules.get("IPython")
    instance = shell.get_ipython() if shell else None
    return instance is not None and getattr(instance, "kernel", None) is not None


def _changes() -> bool:
    return _notebook() or sys.stderr.isatty()
