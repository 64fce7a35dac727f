#!/usr/bin/env python3
"""Measures a serving engine with Sluice; prints tables, each of one run.

  ENV/bin/python tests/bench/engine/bench.py [--profile F] [--only levels,ttft,slo,delay,down]
                                             [--prompts N] [--seed N] [--cores 0-1]
                                             [--json]

ENV is of deploy/vllm/install-engine.sh. The environment names the rest as for tests/e2e/vllm:
SLUICE_SLUICED, SLUICE_NODE, SLUICE_CLI, SLUICE_ENGINE_MODEL.
"""
import argparse
import json
import os
import random
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[1:1] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/e2e/vllm")]
os.environ["PYTHONPATH"] = f"{ROOT / 'client/python'}:{os.environ.get('PYTHONPATH', '')}"
os.environ["SLUICE_ENGINE_PYTHON"] = sys.executable
TABLES = ("levels", "ttft", "slo", "delay", "down")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", type=Path, help="calibrated for the model")
    parser.add_argument("--only", type=lambda text: text.split(","), default=TABLES,
                        help="some of " + ",".join(TABLES))
    parser.add_argument("--prompts", type=int, help="instead of each table's own number")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--cores", help="that engines compute on, as 0-1; else vLLM chooses")
    parser.add_argument("--json", action="store_true")
    parsed = parser.parse_args()
    unknown = set(parsed.only) - set(TABLES)
    if unknown:
        parser.error(f"--only: no table {', '.join(sorted(unknown))}; there are "
                     + ", ".join(TABLES))
    return parsed


def print_table(lines):
    """Texts as they are, lists as rows."""
    lines = list(lines)
    rows = [line for line in lines if isinstance(line, list)]
    widths = [max(len(row[i]) for row in rows if i < len(row))
              for i in range(max(map(len, rows)))]
    for line in lines:
        if isinstance(line, list):
            line = "  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths))
        print(line)
    print(flush=True)


def main():
    options = arguments()
    import engine_case
    import shaped_link
    missing = engine_case.why_not() or shaped_link.why_not()
    if missing:
        sys.exit(f"bench: {missing}")
    from stand import Stand
    print(f"seed {options.seed}, load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
    measured = {}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        stand = Stand(Path(folder), options.seed, options.profile, options.cores)
        try:
            for name in [name for name in TABLES if name in options.only]:
                table = __import__(name)
                measured[name] = table.measure(stand, options.prompts)
                if not options.json:
                    print_table(table.table(measured[name]))
        finally:
            stand.close()
    if options.json:
        print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
