#!/usr/bin/env python3
"""Measures what the levels of `sluice` cost and how well a model predicts with them.

  bench.py --sluice PROGRAM [--levels-bench PROGRAM] --work FOLDER [--quick] [--json]

Caches of some texts calibrate profiles, those of others are encoded, decoded at every level and
judged by SmolLM2-135M-Instruct, as are other codecs. FOLDER keeps the caches, what does not depend
on the program, results.json and rate_kl.png; a second run makes only what is missing or depends on
the program. --quick: few texts and levels that mean little, to try the bench itself.
"""
import argparse
import dataclasses
import json
import pathlib

import baselines
import plot
import queries
import report
import sensitivity
import texts
from codec import Sluice, levels_cost
from contexts import Context
from judge import judge, judge_levels, mean_of
from model import Model
from progress import progress

# Of the contexts to calibrate with, every so many-th measures sensitivities, which takes a second
# for every plane; the kinds of text follow each other.
SENSITIVITY_STRIDE = 6
QUICK_BASELINES = ("4-bit groups of 64", "CacheGen, code")


@dataclasses.dataclass(frozen=True)
class ProfilePlan:
    """How one profile is made, and on which kinds of text it is judged."""
    calibrate: tuple = texts.KINDS  # kinds of the contexts to calibrate with; () is built in
    files: bool = True              # sensitivity and queries are given
    judge: tuple = texts.KINDS


PROFILES = {
    report.OURS: ProfilePlan(),
    "sluice, without sensitivity and queries": ProfilePlan(files=False),
    "sluice, built-in profile": ProfilePlan(calibrate=(), files=False),
    report.PROSE_ONLY: ProfilePlan(calibrate=("prose",), judge=texts.KINDS[1:]),
}


def some(wanted, quick):
    """The texts of a run; a quick one takes the first of some kinds."""
    if not quick:
        return list(wanted)
    return list({text.kind: text for text in reversed(wanted)}.values())


def make_caches(model, wanted, folder):
    """[(text, context)], made where they are missing."""
    pairs = [(text, Context(folder / text.name)) for text in wanted]
    missing = [(text, context) for text, context in pairs if not context.complete()]
    for text, context in progress("caches", missing):
        model.read(text.read(), context)
    return pairs


def model_files(model, contexts, work):
    """The files that `sluice calibrate` takes besides caches, made where they are missing."""
    costs, moments = work / "sensitivity.json", work / "queries.safetensors"
    if not costs.exists():
        table = sensitivity.sensitivity(model, contexts[::SENSITIVITY_STRIDE])
        costs.write_text(json.dumps({"kl_per_variance": table}) + "\n")
    if not moments.exists():
        queries.write_query_moments(queries.query_moments(model, contexts), moments)
    return costs, moments


def judge_baselines(model, pairs, work, families):
    """{family: {setting: {context: row}}}; rows judged before are taken from the work folder."""
    kept = work / "baselines.json"
    rows = json.loads(kept.read_text()) if kept.exists() else {}
    jobs = [(family, setting, context) for _, context in pairs for family in families
            for setting in baselines.BASELINES[family]
            if context.name not in rows.get(family, {}).get(setting, {})]
    for family, setting, context in progress("other codecs", jobs):
        decoded, bits = baselines.apply(baselines.BASELINES[family][setting], context.planes())
        by_context = rows.setdefault(family, {}).setdefault(setting, {})
        by_context[context.name] = judge(model, context, decoded, bits / 8)
        kept.write_text(json.dumps(rows))
    names = [context.name for _, context in pairs]
    return {family: {setting: {name: rows[family][setting][name] for name in names}
                     for setting in baselines.BASELINES[family]} for family in families}


def judge_profile(model, sluice, name, profile, pairs):
    """{level: {context: row}}"""
    rows = {}
    for _, context in progress(name, pairs):
        encoded = sluice.encode(context.cache, profile)
        for level, row in judge_levels(model, sluice, context, encoded):
            rows.setdefault(f"level {level}", {})[context.name] = row
    return rows


def points(by_setting):
    """Points of a curve: means over the contexts, which stay below."""
    return [{"setting": setting, **mean_of(list(rows.values())), "contexts": rows}
            for setting, rows in by_setting.items()]


def run(args):
    model, work = Model(), args.work
    to_calibrate = make_caches(model, some(texts.TO_CALIBRATE, args.quick), work / "calibrate")
    to_judge = make_caches(model, some(texts.TO_JUDGE, args.quick)[:3 if args.quick else None],
                           work / "judge")
    files = model_files(model, [context for _, context in to_calibrate], work)
    sluice = Sluice(args.sluice, work / "out")
    results = {"model": "SmolLM2-135M-Instruct", "calibrated_on": len(to_calibrate),
               "judged": {text.name: text.kind for text, _ in to_judge}, "profiles": {},
               "curves": {}}
    for name, plan in PROFILES.items():
        caches = [context.cache for text, context in to_calibrate if text.kind in plan.calibrate]
        made = sluice.calibrate(name, caches, *(files if plan.files else ())) if caches else None
        pairs = [(text, context) for text, context in to_judge if text.kind in plan.judge]
        results["curves"][name] = points(judge_profile(model, sluice, name, made, pairs))
        results["profiles"][name] = {"bytes": made.stat().st_size if made else 0,
                                     "contexts": len(caches)}
        if name == report.OURS and args.levels_bench:
            results["levels"] = levels_cost(args.levels_bench, made,
                                            [context.cache for _, context in to_judge])
    families = QUICK_BASELINES if args.quick else tuple(baselines.BASELINES)
    for family, by_setting in judge_baselines(model, to_judge, work, families).items():
        results["curves"][family] = points(by_setting)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True, help="the program")
    parser.add_argument("--levels-bench", help="the program; empty: do not measure levels' cost")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="folder for files")
    parser.add_argument("--quick", action="store_true", help="few texts")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    results = run(args)
    (args.work / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    plot.draw(results, args.work / "rate_kl.png")
    print(json.dumps(results, indent=1) if args.json else report.text(results))


if __name__ == "__main__":
    main()
