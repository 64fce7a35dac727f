#!/usr/bin/env python3
"""Prints the results of the bench, as text or as the tables of a README.

  report.py RESULTS.json [--readme FILE]

--readme writes the tables between the lines `<!-- quality -->` and `<!-- /quality -->` of FILE.
"""
import argparse
import json
import math
import pathlib
import re

OURS = "sluice, calibrated"
PROSE_ONLY = "sluice, calibrated on prose only"
KL_GOALS = (0.0008, 0.0065, 0.06)


def bits_at(curve, kl):
    """Bits of a curve at a KL, by straight lines between its points in log KL; None outside."""
    ordered = sorted(curve, key=lambda point: point["kl"])
    for low, high in zip(ordered, ordered[1:]):
        if low["kl"] <= kl <= high["kl"]:
            share = math.log(kl / low["kl"]) / math.log(high["kl"] / low["kl"])
            return low["bits"] + share * (high["bits"] - low["bits"])
    return None


def number(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def method_rows(results):
    """Every codec: bits, what the model loses, and the bits of ours at that KL."""
    rows = [["codec", "bits", "KL", "top-1 %", "dNLL", "ours there", "factor"]]
    ours = results["curves"][OURS]
    for name, curve in results["curves"].items():
        if name == PROSE_ONLY:
            continue
        for point in curve:
            same = None if name == OURS else bits_at(ours, point["kl"])
            rows.append([f"{name}, {point['setting']}" if point["setting"] else name,
                         number(point["bits"], 3), number(point["kl"], 5),
                         number(100 * point["top1"], 1), number(point["dnll"], 4),
                         number(same, 2), number(same and point["bits"] / same, 1)])
    return rows


def goal_rows(results):
    """Bits of our profiles at some KLs."""
    rows = [["bits at a KL of", *map(str, KL_GOALS)]]
    for name in results["profiles"]:
        if name != PROSE_ONLY:
            curve = results["curves"][name]
            rows.append([name, *(number(bits_at(curve, kl), 3) for kl in KL_GOALS)])
    return rows


def context_rows(results):
    """Bits and KL of each text judged, by level."""
    curve = results["curves"][OURS]
    rows = [["text", "kind", *(f"{point['setting']}: bits, KL" for point in curve)]]
    for name, kind in results["judged"].items():
        cells = [point["contexts"][name] for point in curve]
        rows.append([name, kind, *(f"{row['bits']:.3f}, {row['kl']:.5f}" for row in cells)])
    return rows


def mismatch_rows(results):
    """A profile that saw prose only, on the other kinds, beside the one that saw all kinds."""
    rows = [["text", "kind", "level", "bits", "prose only", "KL", "prose only"]]
    for right, wrong in zip(results["curves"][OURS], results["curves"][PROSE_ONLY]):
        for name, row in wrong["contexts"].items():
            own = right["contexts"][name]
            rows.append([name, results["judged"][name], right["setting"].split()[-1],
                         f"{own['bits']:.3f}", f"{row['bits']:.3f}",
                         f"{own['kl']:.5f}", f"{row['kl']:.5f}"])
    return rows


def facts(results):
    """Sentences with what the tables leave out."""
    yield (f"{results['model']}: {results['calibrated_on']} texts calibrate, "
           f"{len(results['judged'])} others judge; every byte counts but the profile's")
    for name, profile in results["profiles"].items():
        if profile["bytes"]:
            yield f"{name}: {profile['contexts']} contexts, {profile['bytes'] / 1e6:.1f} MB"
    if "levels" in results:
        levels = results["levels"]
        yield (f"all levels together: {levels['all_levels_bits']:.3f} bits, the finest alone "
               f"by an ideal coder {levels['finest_alone_bits']:.3f}: "
               f"{levels['overhead_percent']:.2f} % more")


def aligned(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.rjust(width) if i else cell.ljust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))).rstrip()
                     for row in rows)


def markdown(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def text(results):
    tables = [aligned(make(results)) for make in
              (method_rows, goal_rows, context_rows, mismatch_rows)]
    return "\n\n".join(["\n".join(facts(results)), *tables])


def readme_table(results):
    """A line for each codec; its settings follow each other, the smallest first."""
    rows = [("codec, settings by size", "bits", "KL", "top-1 %")]
    for name, curve in results["curves"].items():
        if name == PROSE_ONLY:  # judged on fewer texts
            continue
        settings = sorted(curve, key=lambda point: point["bits"])
        rows.append((name, " / ".join(f"{point['bits']:.2f}" for point in settings),
                     " / ".join(f"{point['kl']:.4f}" for point in settings),
                     " / ".join(f"{100 * point['top1']:.1f}" for point in settings)))
    return markdown(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--readme", type=pathlib.Path)
    args = parser.parse_args()
    results = json.loads(args.results.read_text())
    if not args.readme:
        print(text(results))
        return
    page, found = re.subn(r"(<!-- quality -->\n).*?(<!-- /quality -->)",
                          lambda match: f"{match[1]}{readme_table(results)}\n{match[2]}",
                          args.readme.read_text(), flags=re.S)
    if found != 1:
        raise SystemExit(f"{args.readme}: {found} places for the table, not 1")
    args.readme.write_text(page)


if __name__ == "__main__":
    main()
