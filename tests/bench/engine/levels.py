"""How often a loaded context gives the engine's own next token, by level.

The engine continues a context greedily by itself. Then each of the next tokens is asked for with
all before it given, upon the engine's own blocks and upon blocks loaded at a level: the
computations are the same, so that lossless must agree always."""
from stand import CHUNK, full_tokens

NEXT_TOKENS = 64
DEFAULT_PROMPTS = 20
MAX_LEVELS = 8  # of a profile


def measure(stand, prompts=None):
    contexts = [shortened(tokens) for tokens in
                stand.prompts(prompts or DEFAULT_PROMPTS, 1000 + CHUNK, 3000)]
    rows = agreement(stand, "sluice", contexts)
    if stand.profile:
        rows += [{**row, "profile": "built in"} for row in agreement(stand, "builtin", contexts)]
    return {"prompts": len(contexts), "rows": rows}


def shortened(tokens):
    """So that the next tokens fill no chunk."""
    return tokens[:full_tokens(tokens) - CHUNK + 1]


def agreement(stand, engine, contexts):
    stand.store(engine, contexts)
    levels = loadable_levels(stand, engine, contexts[0])
    equal = {level: 0 for level in levels}
    for context in contexts:
        stand.forget(engine)
        continued = stand.ask(engine, context, max_tokens=NEXT_TOKENS, load=False, save=False)
        own = next_tokens(stand, engine, context, continued["tokens"])
        for level in levels:
            result = stand.load(engine, context, level=level)
            assert result["sluice"]["loaded_tokens"] == full_tokens(context), result
            loaded = next_tokens(stand, engine, context, continued["tokens"])
            equal[level] += sum(a == b for a, b in zip(own, loaded, strict=True))
    asked = NEXT_TOKENS * len(contexts)
    return [{"profile": "calibrated" if stand.profile else "built in", "level": level,
             "top1": count / asked} for level, count in equal.items()]


def loadable_levels(stand, engine, context):
    lossy = []
    for level in range(MAX_LEVELS):
        result = stand.load(engine, context, level=level)
        if result.get("sluice", {}).get("loaded_tokens", 0) == 0:
            break
        lossy.append(level)
    return [*lossy, "lossless"]


def next_tokens(stand, engine, context, following):
    """The engine's choice after the context and each beginning of `following`."""
    requests = [{"tokens": context + following[:count], "max_tokens": 1,
                 "params": {"load": False, "save": False}} for count in range(NEXT_TOKENS)]
    results = stand.ask_all(engine, requests)
    assert all(result["cached"] == full_tokens(context) for result in results), "blocks were lost"
    return [result["tokens"][0] for result in results]


def table(measured):
    yield f"top-1 agreement of the next {NEXT_TOKENS} tokens, {measured['prompts']} contexts"
    yield ["profile", "level", "top-1 %"]
    for row in measured["rows"]:
        yield [row["profile"], str(row["level"]), f"{100 * row['top1']:.2f}"]
