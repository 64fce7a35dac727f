#!/usr/bin/env python3
"""Loads with random time limits over real links of random, changing rate.

  tests/bench/links.py --build DIR [--loads N] [--seed N] [--work DIR] [--json]

Needs root: the server is in a network namespace behind a token bucket filter. Half of the loads
have the built-in profile, half a calibrated one. Each load's link is recorded as it was set, and
the simulator replays the load on it. Prints how many feasible loads were late (in the SLO less 5 %
the smallest level of all chunks can be here, and be decoded if that takes half as long again), how
far any load went beyond its SLO, and the mean level beside the simulator's.
"""
import argparse
import datetime
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

SHAPE = {"tokens": 4096, "layers": 12, "heads": 4, "head_dim": 64}
CALIBRATING = 3  # contexts
TENANTS = 80  # loads of one after the other; what the daemon keeps of transfers is of no use
CHUNK = ("--chunk-tokens", 256)
STEP_MS = 10
RTT_MS = 1.0
PAYLOAD_SHARE = 0.95  # of what the link carries; the rest is headers
MIN_MBIT, MAX_MBIT = 6, 800
MIN_SLO_MS, MAX_SLO_MS = 60, 2500
MAX_TRACE_MS = 3 * MAX_SLO_MS


def log_uniform(chance, low, high):
    return low * (high / low) ** chance.random()


def random_rates(chance):
    """(ms since the start of the load, Mbit/s), the first at 0."""
    mean = log_uniform(chance, MIN_MBIT, MAX_MBIT)
    kind = chance.choice(("constant", "steps", "stall"))
    if kind == "constant":
        return [(0, mean)]
    if kind == "stall":
        start = chance.uniform(20, 600)
        return [(0, mean), (start, 0.1), (start + chance.uniform(100, 500), mean)]
    times = sorted(chance.uniform(20, 1500) for _ in range(chance.randint(1, 5)))
    return [(0, mean)] + [(at, mean * log_uniform(chance, 0.2, 3)) for at in times]


def started(record):
    """When a load began, by the name of its record, in seconds since 1970."""
    text, _, _ = record.name.partition("-")
    return datetime.datetime.strptime(text + "+0000", "%Y%m%dT%H%M%S.%f%z").timestamp()


def trace_text(told, begin_ms):
    """The link as it was from `begin_ms` on, one Mbit/s value of payload per step."""
    values, current = [], told[0][1]
    changes = [(at_ms - begin_ms, mbit) for at_ms, mbit in told]
    for step in range(MAX_TRACE_MS // STEP_MS):
        while changes and changes[0][0] <= step * STEP_MS:
            current = changes.pop(0)[1]
        values.append(f"{current * PAYLOAD_SHARE:.4f}")
    return f"# step_ms: {STEP_MS}\n" + "\n".join(values) + "\n"


class Bench:
    def __init__(self, arguments, folder):
        import cache_file
        import harness
        import shaped_link
        self.harness = harness
        self.chance = random.Random(arguments.seed)
        self.folder = folder
        self.link = shaped_link.ShapedLink()
        self.processes = []
        self.original = folder / "in.safetensors"
        cache_file.write_synthetic(self.original, self.chance, **SHAPE)
        self.server = harness.Server(folder, folder / "data", listen=f"{self.link.host}:0",
                                     prefix=self.link.inside())
        self.processes.append(self.server)
        self.records, config = folder / "records", folder / "node.toml"
        config.write_text(f'[node]\nrecord_dir = "{self.records}"\nmax_records = 65536\n')
        self.node = harness.Node(folder, self.server.address, "--config", config)
        self.processes.append(self.node)
        self.profile = self.calibrate(cache_file)
        for tenant in range(TENANTS):
            put = harness.Running("put", "--server", self.server.address, *self.identity(tenant),
                                  self.original).result()
            assert put.code == harness.OK, str(put)
        for tenant in range(2):  # the daemon learns how fast it decodes
            self.fetch(tenant, MAX_SLO_MS)

    def calibrate(self, cache_file):
        contexts = [self.folder / f"calibrate{i}.safetensors" for i in range(CALIBRATING)]
        for context in contexts:
            cache_file.write_synthetic(context, self.chance, **SHAPE)
        profile = self.folder / "a.profile"
        made = self.harness.Running("calibrate", "--out", profile, "--group-layers",
                                    SHAPE["layers"] // 4, *contexts).result()
        assert made.code == self.harness.OK, str(made)
        for context in contexts:
            context.unlink()
        return profile

    def identity(self, tenant):
        profile = ("--profile", self.profile) if tenant % 2 else ()
        return (*CHUNK, "--tenant", tenant, *profile)

    def fetch(self, tenant, slo_ms):
        return self.harness.Running(
            "fetch", "--node", self.node.socket_path, "--like", self.original,
            *self.identity(tenant), "--slo", slo_ms, "--json",
            self.folder / "out.safetensors").result()

    def close(self):
        for process in reversed(self.processes):
            process.kill()
        self.link.close()

    def record_files(self):
        return set(self.records.glob("*.load"))

    def load(self, number):
        slo_ms = int(log_uniform(self.chance, MIN_SLO_MS, MAX_SLO_MS))
        rates = random_rates(self.chance)
        trace, before = self.folder / f"{number}.trace", self.record_files()
        self.link.drain()
        playing = time.time()
        with self.link.playing(rates) as told:
            result = self.fetch((number + 2) % TENANTS, slo_ms)
        record, = self.harness.wait_until(lambda: self.record_files() - before, "a record")
        trace.write_text(trace_text(told, (started(record) - playing) * 1e3), encoding="ascii")
        assert result.code in (self.harness.OK, self.harness.PARTIAL), str(result)
        levels = [int(level) for level in result.levels() if level is not None]
        return {"slo_ms": slo_ms, "link": told, "code": result.code, "ms": result.json()["ms"],
                "late": sum(reason == "late" for reason in result.reasons()),
                "loaded": len(levels), "mean_level": statistics.fmean(levels or [0]),
                "record": str(record), "trace": str(trace)}


def summary(loads):
    feasible = [load for load in loads if load["model"]["feasible"]]
    gaps = [load["mean_level"] - load["model"]["mean_level"] for load in feasible]
    return {
        "loads": len(loads), "feasible": len(feasible),
        "feasible_late": sum(load["late"] > 0 for load in feasible),
        "model_late": sum(load["model"]["loaded"] < load["loaded"] + load["late"]
                          for load in feasible),
        "most_beyond_slo_ms": max(load["ms"] - load["slo_ms"] for load in loads),
        "mean_level": statistics.fmean(load["mean_level"] for load in feasible),
        "model_mean_level": statistics.fmean(load["model"]["mean_level"] for load in feasible),
        "mean_gap": statistics.fmean(gaps),
        "gap_above_half": sum(abs(gap) > 0.5 for gap in gaps),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="folder of the built programs")
    parser.add_argument("--loads", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--work", type=Path, help="keeps records and traces")
    parser.add_argument("--json", action="store_true", help="every load, as JSON")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    for name, program in (("SLUICED", "server/sluiced"), ("NODE", "client/sluice-node"),
                          ("CLI", "client/cli/sluice")):
        os.environ[f"SLUICE_{name}"] = str(build / program)
    import shaped_link
    if shaped_link.why_not():
        print(f"links: skipped, {shaped_link.why_not()}")
        return
    print(f"seed {arguments.seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(arguments, folder)
        try:
            loads = [bench.load(number) for number in range(arguments.loads)]
        finally:
            bench.close()
        pairs = [path for load in loads for path in (load["record"], load["trace"])]
        model = (build / "tests/bench/link_model", str(RTT_MS))
        told = subprocess.run([*model, *pairs], check=True, capture_output=True, text=True).stdout
        for load, line in zip(loads, told.splitlines(), strict=True):
            load["model"] = json.loads(line)
    if arguments.json:
        print(json.dumps({"seed": arguments.seed, "each": loads, **summary(loads)}, indent=1))
    else:
        for name, value in summary(loads).items():
            print(f"{name:20} {value:.3f}" if isinstance(value, float) else f"{name:20} {value}")


if __name__ == "__main__":
    main()
