#!/usr/bin/env python3
"""Rules of the code base that a program can check: who includes whom, lengths, words, comments."""
import ast
import re
import statistics
import unittest

import source_tree as tree

MAX_PRODUCT_LINES = 600
MAX_TEST_LINES = 800
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100
MAX_MEDIAN_LINES = 150
MAX_ROOT_README_LINES = 150
MAX_README_LINES = 40

# Folder -> prefixes of our own headers that it may include.
MAY_INCLUDE = {
    "codec": ("codec/",),
    "adapt": ("adapt/",),
    "sim": ("sim/", "adapt/"),
    "cuda": ("cuda/", "codec/"),
    "server": ("server/", "sluice/v1/") + tuple(
        f"codec/{name}.h" for name in ("bytes", "chunk_key", "container", "digest", "geometry",
                                       "profile", "status_macros")),
    "client": ("client/", "sluice/v1/", "codec/", "cuda/", "adapt/", "sim/"),
    "proto": (),
}
# Files in which gRPC types may appear.
GRPC_FILES = re.compile(
    r"^(server/(service|main|grpc_status)\w*|server/\w+_(service|reactor)|"
    r"client/(remote|store_channel|node_service|node_client|node_main|grpc_status)\w*)\.(h|cc)$")
# Pure folders know no clock, thread, file or log.
# Matrices that are packed when first needed, by whichever thread is first.
LOCKED_CACHES = {("codec/group_transform.h", "absl/synchronization/mutex.h"),
                 ("codec/onednn_kernel.h", "absl/synchronization/mutex.h")}
# Headers that a source includes once for every set of instructions.
HIGHWAY_GUARD = re.compile(r"^#if defined\(\w+_INL_H_\) == defined\(HWY_TARGET_TOGGLE\)$", re.M)
IMPURE_HEADERS = re.compile(
    r"^(grpcpp/|grpc/|spdlog/|absl/time/clock\.h|absl/synchronization/)|"
    r"^(thread|mutex|condition_variable|fstream|iostream|random|chrono)$")
BANNED_WORDS = re.compile(r"\b(%s)\b|using namespace\s+std;|/wor[k]/|\bissue #?\d" % "|".join(
    ("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")))
# Tests wait for events, not for time to pass.
SLEEPS = re.compile(r"\b(sleep_for|sleep_until|SleepFor|usleep|nanosleep|time\.sleep)\s*\(")
PROTO_ITEM = re.compile(
    r"^\s*(rpc|message|enum|service)\s+\w+|^\s*(repeated |optional )?[\w.]+ \w+ = \d+|"
    r"^\s*[A-Z_0-9]+ = \d+;")


class Tidy(unittest.TestCase):
    def report(self, problems):
        self.assertFalse(problems, "\n" + "\n".join(problems))

    def test_include_direction(self):
        self.report([
            f"{path}: includes {name}" for folder, allowed in MAY_INCLUDE.items()
            for path in tree.code(folder) if path.suffix in (".h", ".cc", ".cu")
            for name in tree.our_includes(path) if not name.startswith(allowed)])

    def test_pure_folders(self):
        self.report([f"{path}: includes {name}" for path in tree.code("codec", "adapt")
                     for name in tree.includes(path) if IMPURE_HEADERS.match(name)
                     and (str(path), name) not in LOCKED_CACHES])

    def test_decoder_does_not_need_encoder(self):
        pending = [path for path in tree.code("codec") if "decod" in path.name]
        seen = set(map(str, pending))
        problems = []
        while pending:
            path = pending.pop()
            for name in tree.our_includes(path):
                if "encod" in name:
                    problems.append(f"{path}: includes {name} and is part of the decoder")
                if name not in seen and (tree.ROOT / name).exists():
                    seen.add(name)
                    pending.append(tree.ROOT.joinpath(name).relative_to(tree.ROOT))
        self.report(problems)

    def test_grpc_stays_at_the_edge(self):
        self.report([
            f"{path}: includes {name}" for path in tree.code("server", "client", "codec", "adapt")
            if not GRPC_FILES.match(str(path)) for name in tree.includes(path)
            if name.startswith("grpc") or name.endswith(".grpc.pb.h")])

    def test_every_include_exists(self):
        self.report([f"{path}: {name} does not exist" for path in tree.code()
                     if path.suffix in (".h", ".cc", ".cu") for name in tree.our_includes(path)
                     if not name.startswith("sluice/v1/") and not (tree.ROOT / name).exists()])

    def test_headers_have_one_guard(self):
        self.report([f"{path}: no #pragma once" for path in tree.code()
                     if path.suffix == ".h" and "#pragma once" not in tree.lines(path)
                     and not HIGHWAY_GUARD.search(tree.text(path))])

    def test_headers_say_what_they_are(self):
        self.report([f"{path}: does not open with a comment"
                     for path in tree.code(*tree.PRODUCT_FOLDERS)
                     if path.suffix == ".h" and not tree.text(path).startswith("//")])

    def test_file_lengths(self):
        problems, product = [], []
        for path in tree.code():
            count = len(tree.lines(path))
            limit = MAX_TEST_LINES if tree.is_test(path) else MAX_PRODUCT_LINES
            if count > limit:
                problems.append(f"{path}: {count} lines, more than {limit}")
            if path.parts[0] in tree.PRODUCT_FOLDERS:
                product.append(count)
        median = statistics.median(product)
        print(f"product code: {len(product)} files, {sum(product)} lines, median {median}")
        if median > MAX_MEDIAN_LINES:
            problems.append(f"median length of product files is {median}")
        self.report(problems)

    def test_function_lengths(self):
        problems = []
        for path in tree.code():
            functions = python_functions(path) if path.suffix == ".py" else cc_functions(path)
            problems += [f"{path}:{line}: function of {count} lines" for line, count in functions
                         if count > MAX_FUNCTION_LINES]
        self.report(problems)

    def test_columns(self):
        self.report([f"{path}:{number}: {len(line)} columns" for path in tree.code()
                     if path.suffix != ".proto" for number, line in enumerate(tree.lines(path), 1)
                     if len(line) > MAX_COLUMNS])

    def test_words(self):
        paths = [path for path in tree.walk()
                 if path.suffix in tree.CODE_SUFFIXES + (".md", ".sh", ".service", ".toml", ".txt")
                 and not str(path).startswith("tests/data/") and "corpus" not in path.parts]
        self.report([f"{path}:{number}: {line.strip()}" for path in paths
                     for number, line in enumerate(tree.lines(path), 1)
                     if BANNED_WORDS.search(line)])

    def test_tests_do_not_sleep(self):
        self.report([f"{path}:{number}: {line.strip()}" for path in tree.code("tests")
                     if path.name != "tidy_test.py"
                     for number, line in enumerate(tree.lines(path), 1) if SLEEPS.search(line)])

    def test_readmes(self):
        readmes = [path for path in tree.walk() if path.name == "README.md"]
        problems = [f"{path}: more than {limit} lines" for path in readmes
                    for limit in [MAX_README_LINES if path.parent.name else MAX_ROOT_README_LINES]
                    if len(tree.lines(path)) > limit]
        folders = {path.parts[0] for path in tree.walk() if len(path.parts) > 1}
        problems += [f"{folder}: no README.md" for folder in sorted(folders)
                     if not folder.startswith(".")
                     and not (tree.ROOT / folder / "README.md").exists()]
        self.report(problems)

    def test_wire_is_explained(self):
        problems = []
        for path in tree.code("proto"):
            previous = ""
            for number, line in enumerate(tree.lines(path), 1):
                if PROTO_ITEM.match(line) and not previous.strip().startswith("//"):
                    problems.append(f"{path}:{number}: no comment above {line.strip()}")
                previous = line
        self.report(problems)


def python_functions(path):
    """(first line, number of lines) of every function."""
    for node in ast.walk(ast.parse(tree.text(path))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


def cc_functions(path):
    """(first line, number of lines) of functions that end with `}` in the first column.

    Relies on clang-format's layout: such a function is closed by a line that is just `}`.
    """
    start = None
    for number, line in enumerate(tree.lines(path), 1):
        if line == "}" and start is not None:
            yield start, number - start + 1
        elif line and not line[0].isspace() and line[0] not in "#}/" and not line.endswith(":"):
            start = number


if __name__ == "__main__":
    unittest.main()
