"""Delay until the first token of a stored context over slow links, beside the same engine with
plain elements of 16 and 8 bits, and with no store.

A plain load takes a raw transfer of its bytes over the same link, the scatter into the engine's
blocks, and what the engine computes after a hit in its own cache."""
from stand import FAST_MBIT, full_tokens, fully_loaded, median
from uncompressed import num_bytes, scatter_ms

DEFAULT_PROMPTS = 5
TOKENS = 1500
RATES_MBIT = (50, 100, 200, 500)
LEVELS = (1, 0)
PLAIN_BITS = (16, 8)
CACHEGEN = "3.2-3.7"  # its paper, against 8 bits


def measure(stand, prompts=None):
    count = prompts or DEFAULT_PROMPTS
    scatter = {kind: scatter_ms(kind, full_tokens([0] * TOKENS)) for kind in PLAIN_BITS}
    rows = [at_rate(stand, mbit, count, scatter) for mbit in RATES_MBIT]
    stand.link.set_rate(FAST_MBIT)
    return {"prompts": count, "scatter_ms": scatter, "rows": rows}


def at_rate(stand, mbit, count, scatter):
    """Every load is of a context of its own: the daemon keeps what it has just transferred."""
    contexts = [stand.prompts(len(LEVELS), TOKENS, TOKENS) for _ in range(count)]
    stand.link.set_rate(FAST_MBIT)
    stand.store("sluice", sum(contexts, []))
    stand.link.set_rate(mbit)
    runs = []
    for each in contexts:
        run = {}
        for level, tokens in zip(LEVELS, each, strict=True):
            stand.new_record()
            result = stand.load("sluice", tokens, level=level)
            assert fully_loaded(result, tokens) and stand.new_record()["bytes"] > 0, result
            run[f"level {level}"] = result["ms"]
        rest = run["rest"] = stand.ask("sluice", tokens, load=False, save=False)["ms"]
        for kind in PLAIN_BITS:
            fetched = stand.fetch_ms(num_bytes(kind, full_tokens(tokens)))
            run[f"{kind} bit"] = fetched + scatter[kind] + rest
        stand.forget("plain")
        run["prefill"] = stand.ask("plain", tokens)["ms"]
        runs.append(run)
    row = {"mbit": mbit, **{name: median(run[name] for run in runs) for name in runs[0]}}
    for level in LEVELS:
        row[f"8 bit/level {level}"] = median(run["8 bit"] / run[f"level {level}"] for run in runs)
    return row


def table(measured):
    yield (f"delay until the first token, {TOKENS} tokens, medians of {measured['prompts']}, ms; "
           f"CacheGen (paper) against 8 bits: {CACHEGEN}")
    names = [name for name in measured["rows"][0] if name != "mbit"]
    yield ["Mbit/s", *names]
    for row in measured["rows"]:
        yield [str(row["mbit"]),
               *(f"{row[name]:.{2 if '/' in name else 0}f}" for name in names)]
