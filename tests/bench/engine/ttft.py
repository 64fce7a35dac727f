"""Time to the first token over a fast link: computed without the connector, new to the store, and
loaded; and what the loaded one is made of. Its transfer is how long its bytes take by themselves;
the daemon decodes meanwhile, and `decode, scatter` is what that adds."""
from stand import FAST_MBIT, fully_loaded, median

DEFAULT_PROMPTS = 9
TOKENS = 1500


def measure(stand, prompts=None):
    stand.link.set_rate(FAST_MBIT)
    runs = [run(stand, tokens)
            for tokens in stand.prompts(prompts or DEFAULT_PROMPTS, TOKENS, TOKENS)]
    result = {name: median(one[name] for one in runs) for name in runs[0]}
    result["warm/prefill"] = median(one["warm"] / one["prefill"] for one in runs)
    return {"prompts": len(runs), "tokens": TOKENS, **result}


def run(stand, tokens):
    prefill = stand.ask("plain", tokens)
    cold, = stand.store("sluice", [tokens])
    stand.new_record()
    warm = stand.load("sluice", tokens)
    assert fully_loaded(warm, tokens), warm
    record, told = stand.new_record(), warm["sluice"]
    local = stand.ask("sluice", tokens, load=False, save=False)
    raw = stand.fetch_ms(record["bytes"])
    return {"prefill": prefill["ms"], "cold": cold["ms"], "warm": warm["ms"],
            "look-up": told["lookup_ms"], "load": told["load_ms"], "transfer": raw,
            "decode, scatter": record["ms"] - raw, "load's rest": told["load_ms"] - record["ms"],
            "remaining prefill": local["ms"],
            "engine's rest": warm["ms"] - told["lookup_ms"] - told["load_ms"] - local["ms"]}


def table(measured):
    yield (f"time to the first token, {measured['tokens']} tokens, fast link, medians of "
           f"{measured['prompts']}, ms")
    yield ["prefill", "cold", "warm", "warm/prefill"]
    yield [*(f"{measured[name]:.0f}" for name in ("prefill", "cold", "warm")),
           f"{measured['warm/prefill']:.3f}"]
    parts = ("look-up", "load", "transfer", "decode, scatter", "load's rest", "remaining prefill",
             "engine's rest")
    yield "the warm one is made of (load = transfer + decode, scatter + rest)"
    yield list(parts)
    yield [f"{measured[name]:.0f}" for name in parts]
