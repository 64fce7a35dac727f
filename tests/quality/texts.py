"""Texts of five kinds, all from packages of Debian and of PyPI: some to calibrate with, others,
from other sources, to judge by.
"""
import dataclasses
import glob
import gzip
import html
import importlib.util
import pathlib
import re
import sysconfig
from typing import Callable

KINDS = ("prose", "code", "dialogue", "tables", "language")


def read(path):
    path = pathlib.Path(path)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors="ignore") as file:
        return file.read()


def plain(pattern):
    """A file of Debian, by a pattern that has versions."""
    return lambda: read(sorted(glob.glob(pattern))[-1])


def library(name):
    """A module of Python's standard library."""
    return lambda: read(pathlib.Path(sysconfig.get_paths()["stdlib"], name))


def packaged(package, name):
    """A file of a package of PyPI."""
    return lambda: read(pathlib.Path(importlib.util.find_spec(package).origin).parent / name)


def handbook(language):
    """The Debian handbook, without its mark-up."""
    def text():
        pages = sorted(glob.glob(f"/usr/share/doc/debian-handbook/html/{language}/*.html"))
        words = re.sub(r"<[^>]+>", "", "".join(map(read, pages)))
        return html.unescape(re.sub(r"\s+\n", "\n", words))
    return text


def manual(folder, names):
    """Manual pages without their requests; words in bold or italics stay."""
    def text():
        lines = "\n".join(read(f"{folder}/{name}.gz") for name in names)
        lines = re.sub(r"^\.(SH|SS|[BIR]{1,2}) ", "", lines, flags=re.M)
        return re.sub(r"^[.'].*\n|\\f[A-Z]|\\", "", lines, flags=re.M)
    return text


def conversations(names):
    """Conversations of the package chatterbot-corpus as turns of two speakers."""
    def text():
        files = (packaged("chatterbot_corpus", f"data/english/{name}.yml")() for name in names)
        turns = "\n".join(file.partition("conversations:")[2] for file in files)
        return re.sub(r"^  ?- ", "Assistant: ", re.sub(r"^- - ", "User: ", turns, flags=re.M),
                      flags=re.M)
    return text


@dataclasses.dataclass(frozen=True)
class Text:
    name: str
    kind: str
    source: Callable[[], str]
    start: float = 0.0  # share of the source that is left out at its beginning

    def read(self):
        try:
            text = self.source()
        except (OSError, IndexError, AttributeError) as error:
            raise SystemExit(f"quality: text {self.name} is missing ({error}); "
                             "tests/quality/README.md says what to install") from error
        return text[int(self.start * len(text)):]


POD = "/usr/share/perl/5.*/pod/"
HEADERS = "/usr/include/c++/*/bits/"
CHAT_TO_JUDGE = ("psychology", "emotion", "humor", "literature", "conversations", "computers")

TO_CALIBRATE = (
    Text("handbook-1", "prose", handbook("en-US"), .05),
    Text("handbook-2", "prose", handbook("en-US"), .35),
    Text("handbook-3", "prose", handbook("en-US"), .7),
    Text("regular-expressions", "prose", plain(POD + "perlretut.pod"), .05),
    Text("processes", "prose", plain(POD + "perlipc.pod"), .05),
    Text("questions", "prose", plain(POD + "perlfaq4.pod"), .05),
    Text("licence", "prose", plain("/usr/share/common-licenses/GPL-3")),
    Text("quotations", "prose", plain("/usr/share/games/fortunes/literature")),
    Text("event-loop", "code", library("asyncio/base_events.py"), .05),
    Text("http-client", "code", library("http/client.py"), .1),
    Text("archives", "code", library("tarfile.py"), .1),
    Text("decimals", "code", library("_pydecimal.py"), .1),
    Text("vector", "code", plain(HEADERS + "stl_vector.h"), .1),
    Text("hash-table", "code", plain(HEADERS + "hashtable.h"), .05),
    Text("chat-coding", "dialogue", conversations(("coding",))),
    Text("chat-support-1", "dialogue", conversations(("tech_support",))),
    Text("chat-support-2", "dialogue", conversations(("tech_support",)), .5),
    Text("cars", "tables", packaged("vega_datasets", "_data/cars.json")),
    Text("barley", "tables", packaged("vega_datasets", "_data/barley.json")),
    Text("stocks", "tables", packaged("vega_datasets", "_data/stocks.csv"), .2),
    Text("weather", "tables", packaged("vega_datasets", "_data/seattle-weather.csv")),
    Text("german-1", "language", handbook("de-DE"), .1),
    Text("german-2", "language", handbook("de-DE"), .5),
    Text("french-1", "language", handbook("fr-FR"), .2),
    Text("french-2", "language", handbook("fr-FR"), .6),
    Text("spanish", "language", handbook("es-ES"), .3),
)

TO_JUDGE = (
    Text("essay", "prose", plain("/usr/share/doc/jargon-text/jargon.txt.gz"), .96),
    Text("manual", "prose", manual("/usr/share/man/man7", ("signal.7", "epoll.7"))),
    Text("source", "code", packaged("transformers", "cache_utils.py"), .1),
    Text("chat", "dialogue", conversations(CHAT_TO_JUDGE)),
    Text("regions", "tables", plain("/usr/share/iso-codes/json/iso_3166-2.json"), .3),
    Text("spanish-manual", "language", manual("/usr/share/man/es/man1", ("bash.1",)), .1),
)
