"""Requests with a time limit over a slow link: how many hold it, at which levels."""
import collections

from stand import FAST_MBIT

DEFAULT_PROMPTS = 50
MBIT = 100
LIMIT_MS = 1000


def measure(stand, prompts=None):
    contexts = stand.prompts(prompts or DEFAULT_PROMPTS, 1500, 2500)
    stand.link.set_rate(FAST_MBIT)
    stand.store("sluice", contexts)
    stand.link.set_rate(MBIT)
    levels, times = collections.Counter(), []
    stand.new_record()
    for tokens in contexts:
        times.append(stand.load("sluice", tokens, slo_ms=LIMIT_MS)["ms"])
        record = stand.new_record()
        if record is None:
            levels["not loaded"] += 1
            continue
        levels.update(f"level {chunk['level']}" if chunk["outcome"] == "loaded" else chunk["reason"]
                      for chunk in record["chunks"])
    stand.link.set_rate(FAST_MBIT)
    return {"requests": len(times), "within": sum(ms <= LIMIT_MS for ms in times) / len(times),
            "ms": sorted(times), "chunks": dict(sorted(levels.items()))}


def table(measured):
    yield f"{measured['requests']} requests of 1,500-2,500 tokens, {MBIT} Mbit/s, SLO {LIMIT_MS} ms"
    yield ["within the SLO", "median ms", "worst ms", *(f"{name}: chunks"
                                                        for name in measured["chunks"])]
    times = measured["ms"]
    yield [f"{100 * measured['within']:.0f} %", f"{times[len(times) // 2]:.0f}", f"{times[-1]:.0f}",
           *map(str, measured["chunks"].values())]
