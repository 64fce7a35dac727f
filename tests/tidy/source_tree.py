"""The files of the repository as the tidy tests see them."""
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT_FOLDERS = ("proto", "codec", "cuda", "adapt", "sim", "server", "client")
CODE_SUFFIXES = (".h", ".cc", ".cu", ".proto", ".py")
SKIPPED_FOLDERS = re.compile(r"^(\.git|build.*|__pycache__|\.cache)$")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
OURS = re.compile(r"^(codec|cuda|adapt|sim|server|client|tests|sluice/v1)/")


def walk(*folders):
    """Paths of all files below the folders (all of the tree if none is given), relative to ROOT."""
    found = []
    for folder in folders or ("",):
        for directory, subfolders, names in os.walk(ROOT / folder):
            subfolders[:] = sorted(name for name in subfolders if not SKIPPED_FOLDERS.match(name))
            found += [(Path(directory) / name).relative_to(ROOT) for name in sorted(names)]
    return found


def code(*folders):
    return [path for path in walk(*folders) if path.suffix in CODE_SUFFIXES]


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def lines(path):
    return text(path).splitlines()


def includes(path):
    """What a C++ file includes, as written."""
    return INCLUDE.findall(text(path))


def our_includes(path):
    return [name for name in includes(path) if OURS.match(name)]


def is_test(path):
    return path.parts[0] == "tests"
