"""Progress on a terminal, and nothing anywhere else."""
import sys


def progress(what, items):
    """Yields the items and says on the error output how many are done."""
    items = list(items)
    shown = sys.stderr.isatty()
    for done, item in enumerate(items):
        if shown:
            print(f"\r\033[K{what} {done + 1}/{len(items)}", end="", file=sys.stderr, flush=True)
        yield item
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
