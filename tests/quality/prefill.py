#!/usr/bin/env python3
"""Compares decoding a context with computing it anew, on all cores, in one run.

  prefill.py --bench BUILD/tests/bench/context_bench --profile PROFILE [--tokens 1408] CACHE

CACHE is a cache that bench.py keeps in its work folder, as are profiles. Prints how long the model
takes for the context's first tokens, and by level how long the decode takes, what part of the
former that is, and how it divides among entropy decoding, transform and scatter into blocks.
"""
import argparse
import json
import pathlib
import subprocess
import time

import torch

from contexts import Context
from model import Model

RUNS = 4


@torch.no_grad()
def prefill_ms(model, ids):
    """The best of some runs."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        model.network(ids, use_cache=True)
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--tokens", type=int, default=1408)
    parser.add_argument("cache", type=pathlib.Path)
    args = parser.parse_args()
    ids = torch.tensor([Context(args.cache.parent).token_ids()[:args.tokens]])
    prefill = prefill_ms(Model(), ids)
    command = [args.bench, args.profile, args.cache, str(ids.shape[1])]
    done = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    print(f"{ids.shape[1]} tokens: prefill {prefill:.0f} ms, {torch.get_num_threads()} threads; "
          f"memcpy {done['memcpy_ms']:.1f} ms")
    print("level   bits  decode ms  of prefill  entropy  transform  scatter  GB/s a core")
    for level in done["levels"]:
        work = level["entropy_ms"] + level["transform_ms"] + level["scatter_ms"]
        parts = [level[f"{part}_ms"] / work for part in ("entropy", "transform", "scatter")]
        print(f"{level['level']:5}  {level['bits']:5.2f}  {level['ms']:9.1f}  "
              f"{level['ms'] / prefill:10.1%}  {parts[0]:7.0%}  {parts[1]:9.0%}  {parts[2]:7.0%}  "
              f"{level['gb_per_s_core']:11.2f}")


if __name__ == "__main__":
    main()
