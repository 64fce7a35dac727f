"""What the connector costs while nothing can be loaded: time to the first token of new prompts,
beside that of an engine without it."""
import signal

from stand import FAST_MBIT, median

DEFAULT_PROMPTS = 15
TOKENS = 1500


def measure(stand, prompts=None):
    stand.link.set_rate(FAST_MBIT)
    rows = [compare(stand, "all is well", prompts)]
    stand.server.child.send_signal(signal.SIGSTOP)
    rows.append(compare(stand, "server frozen", prompts))
    stand.server.kill()
    rows.append(compare(stand, "server dead", prompts))
    stand.node.kill()
    rows.append(compare(stand, "daemon dead", prompts))
    stand.start_server(stand.server.address)
    stand.start_node()
    return {"tokens": TOKENS, "rows": rows}


def compare(stand, what, prompts):
    """The first request is what it takes to notice, and not among the medians."""
    pairs, count = [], 1 + (prompts or DEFAULT_PROMPTS)
    for number, tokens in enumerate(stand.prompts(count, TOKENS, TOKENS)):
        order = ("plain", "default") if number % 2 else ("default", "plain")
        ms = {engine: stand.ask(engine, tokens)["ms"] for engine in order}
        stand.wait_for_saves()
        pairs.append((ms["plain"], ms["default"]))
    return {"what": what, "pairs": len(pairs) - 1, "first": pairs[0][1],
            "plain": median(plain for plain, _ in pairs[1:]),
            "connector": median(connector for _, connector in pairs[1:]),
            "ratio": median(connector / plain for plain, connector in pairs[1:])}


def table(measured):
    yield f"time to the first token of new prompts of {measured['tokens']} tokens, ms"
    yield ["", "pairs", "no connector", "connector", "median of ratios", "first request"]
    for row in measured["rows"]:
        yield [row["what"], str(row["pairs"]), f"{row['plain']:.0f}", f"{row['connector']:.0f}",
               f"{row['ratio']:.3f}", f"{row['first']:.0f}"]
