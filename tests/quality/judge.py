#!/usr/bin/env python3
"""Judges decoded caches by what a model predicts with them.

  judge.py --caches FOLDER NAME=FILE[:BYTES]...
  judge.py --caches FOLDER --sluice PROGRAM [--profile FILE] [--only NAME,...]

The first form judges decoded caches; the second encodes the caches of FOLDER and judges every
level. FOLDER has a folder NAME for each context (contexts.py says which files). A line a context
and level, then the means by level: bits per element, KL in nats, top-1 agreement, rise of the
negative log-likelihood. FILE may be an encoded context (.sluice) if --sluice is given.
"""
import argparse
import dataclasses
import json
import pathlib
import statistics
import tempfile

from codec import Sluice
from contexts import Context, contexts_in, read_planes
from model import Model


def mean_of(rows):
    """Mean of every number of some rows."""
    return {key: statistics.fmean(row[key] for row in rows)
            for key, value in rows[0].items() if isinstance(value, float)}


def judge(model, context, planes, num_bytes=None):
    """One row: what the bench reports of a decoded cache."""
    bits = {} if num_bytes is None else {"bits": 8 * num_bytes / context.elements()}
    return bits | dataclasses.asdict(model.score(context, planes))


def judge_levels(model, sluice, context, encoded):
    """Yields (level, row), coarsest first."""
    for level, num_bytes in sluice.level_bytes(encoded).items():
        planes = read_planes(sluice.decode(encoded, level))
        yield level, judge(model, context, planes, num_bytes)


def all_rows(args, model, sluice):
    """Yields (context's name, level or "", row)."""
    for word in args.decoded:
        name, _, path = word.partition("=")
        path, _, num_bytes = path.partition(":")
        context = Context(args.caches / name)
        if path.endswith(".sluice"):
            for level, row in judge_levels(model, sluice, context, path):
                yield name, level, row
        else:
            yield name, "", judge(model, context, read_planes(path),
                                  int(num_bytes) if num_bytes else None)
    for context in contexts_in(args.caches) if not args.decoded else []:
        if not args.only or context.name in args.only.split(","):
            encoded = sluice.encode(context.cache, args.profile)
            for level, row in judge_levels(model, sluice, context, encoded):
                yield context.name, level, row


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--caches", required=True, type=pathlib.Path)
    parser.add_argument("--sluice", help="the program")
    parser.add_argument("--profile", help="to encode with (default: built in)")
    parser.add_argument("--only", help="names of contexts, separated by commas")
    parser.add_argument("decoded", nargs="*", metavar="NAME=FILE[:BYTES]")
    args = parser.parse_args()
    if not args.sluice and (not args.decoded or any(".sluice" in d for d in args.decoded)):
        parser.error("nothing to judge: name decoded caches, or the program with --sluice")
    by_level = {}
    with tempfile.TemporaryDirectory(prefix="sluice-judge.") as work:
        for name, level, row in all_rows(args, Model(), Sluice(args.sluice, work)):
            by_level.setdefault(level, []).append(row)
            print(json.dumps({"context": name, "level": level} | row), flush=True)
    for level, rows in by_level.items():
        print(json.dumps({"mean of": len(rows), "level": level} | mean_of(rows)))


if __name__ == "__main__":
    main()
