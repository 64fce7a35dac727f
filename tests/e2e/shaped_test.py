#!/usr/bin/env python3
"""Loads over real links of a given rate: constant, changing, down for a while, shared."""
import threading
import unittest

import harness
import shaped_link
from harness import OK, PARTIAL, SLOWDOWN

CHUNK = ("--chunk-tokens", 64)
SHAPE = {"tokens": 1024, "layers": 8, "heads": 4, "head_dim": 64}
# How far a transfer may be from what was expected when it was asked for, on constant links, as a
# ratio over a load; queues of the link and of a busy machine are in it.
EXPECTED_WITHIN = 4


class ShapedTest(harness.EndToEnd):
    def setUp(self):
        super().setUp()
        reason = shaped_link.why_not()
        if reason:
            self.skipTest(reason)
        self.shaped = shaped_link.ShapedLink()
        self.addCleanup(self.shaped.close)
        # The processes are ended before their link.
        self.addCleanup(self.end_processes)
        self.original = self.cache(**SHAPE)
        self.server_process = self.server(listen=f"{self.shaped.host}:0",
                                          prefix=self.shaped.inside())
        self.put(self.server_process, self.original, *CHUNK)
        self.daemon = self.node(self.server_process.address)
        self.sizes = self.level_bytes()

    def level_bytes(self):
        """Encoded bytes of the context at level 0 and at the finest lossy level."""
        out = self.folder / "sizes.sluice"
        levels = self.sluice("encode", "--json", *CHUNK, self.original, out).json()["levels"]
        bytes_of = {level["level"]: level["bytes"] for level in levels}
        return bytes_of["0"], bytes_of["2"]

    def load(self, slo_ms, code=None, out="out.safetensors"):
        return self.started_load(slo_ms, out).result() if code is None else self.sluice(
            *self.arguments(slo_ms, out), code=code)

    def arguments(self, slo_ms, out="out.safetensors"):
        return ("fetch", "--node", self.daemon.socket_path, "--like", self.original, *CHUNK,
                "--slo", int(slo_ms * SLOWDOWN), "--json", "--check", self.original,
                self.folder / out)

    def started_load(self, slo_ms, out="out.safetensors"):
        return harness.Running(*self.arguments(slo_ms, out))

    def mbit(self, level_bytes, seconds):
        """The rate at which so many bytes take so long."""
        return level_bytes * 8e-6 / (seconds * SLOWDOWN)

    def check_in_time(self, result, slo_ms):
        for chunk in result.chunks():
            self.assertLessEqual(chunk.ms, slo_ms * SLOWDOWN * 1.05, str(result))

    def test_constant(self):
        """At 100 Mbit/s and 1 Gbit/s everything comes at the finest level, as fast as the link."""
        for mbit in (100, 1000):
            with self.subTest(mbit=mbit):
                self.shaped.set_rate(mbit)
                daemon = self.node(self.server_process.address, name=f"node-{mbit}")
                self.daemon = daemon
                result = self.load(20_000, code=OK)
                self.assertEqual(set(result.levels()), {"2"})
                told = [chunk for chunk in result.json()["chunks"] if chunk["expected_ms"] > 0]
                self.assertTrue(told, "no transfer was forecast")
                expected = sum(chunk["expected_ms"] for chunk in told)
                actual = sum(chunk["transfer_ms"] for chunk in told)
                self.assertLess(max(actual / expected, expected / actual), EXPECTED_WITHIN,
                                f"{expected} ms were expected, {actual} ms it was")
                self.end(daemon)

    def test_slow_link_gives_lower_levels(self):
        """Half of the finest level's bytes fit: all chunks are in time, not all at the finest."""
        slo_ms = 2000
        base, finest = self.sizes
        self.shaped.set_rate(self.mbit((base + finest) / 2, slo_ms / 1000))
        result = self.load(slo_ms, code=OK)
        self.check_in_time(result, slo_ms)
        self.assertIn("0", result.levels() + ["0"])
        self.assertTrue(set(result.levels()) - {"2"}, str(result))

    def test_rate_falls_during_the_load(self):
        """The bases are there already when the link becomes slow."""
        slo_ms = 3000
        base, finest = self.sizes
        self.shaped.set_rate(self.mbit(base, slo_ms / 1000 / 5))
        before = self.shaped.sent_bytes()
        running = self.started_load(slo_ms)
        harness.wait_until(lambda: self.shaped.sent_bytes() - before > 1.3 * base,
                           "the bases are through")
        self.shaped.set_rate(0.2)
        result = running.result()
        self.assertEqual(result.code, OK, str(result))
        self.check_in_time(result, slo_ms)

    def test_rates_of_a_trace(self):
        """Whatever the link does, a load over one that carries the bases has all its chunks."""
        slo_ms = 3000
        base, _ = self.sizes
        mean = self.mbit(2 * base, slo_ms / 1000)
        shares = [self.random.choice((0.05, 0.5, 1, 2, 3)) for _ in range(20)]
        step_ms = slo_ms * SLOWDOWN / len(shares)
        unit = mean * len(shares) / sum(shares)
        rates = [(i * step_ms, share * unit) for i, share in enumerate(shares)]
        with self.shaped.playing(rates) as told:
            result = self.load(slo_ms, code=OK)
        self.check_in_time(result, slo_ms)
        self.assertGreater(len(told), 1, "the load was over before the rate changed")

    def test_link_down_and_up(self):
        """A link that is down for a while costs levels or chunks, no wrong byte, no time."""
        slo_ms = 4000
        base, finest = self.sizes
        self.shaped.set_rate(self.mbit(finest, slo_ms / 1000 / 3))
        before = self.shaped.sent_bytes()
        running = self.started_load(slo_ms)
        harness.wait_until(lambda: self.shaped.sent_bytes() - before > base / 4, "it has begun")
        self.shaped.set_up(False)
        threading.Event().wait(0.4 * SLOWDOWN)  # how long the link is down
        self.shaped.set_up(True)
        result = running.result()
        self.assertIn(result.code, (OK, PARTIAL), str(result))
        self.check_in_time(result, slo_ms)
        harness.wait_until(lambda: self.load(20_000).code == OK, "loads work again")

    def test_answers_behind_a_long_queue(self):
        """A connection lasts, though what it sends is acknowledged late."""
        self.load(20_000, code=OK)
        self.shaped.fill_queue(seconds=6)
        result = self.sluice(*self.arguments(20_000), "--level", 0, code=OK)
        self.assertGreater(min(chunk.ms for chunk in result.chunks()), 3000, "there was no queue")

    def test_two_loads_compete(self):
        """Both get all their chunks, of different contexts, over a link that carries both bases."""
        slo_ms = 4000
        base, _ = self.sizes
        other = self.cache("other.safetensors", **SHAPE)
        self.put(self.server_process, other, *CHUNK)
        self.shaped.set_rate(self.mbit(3 * base, slo_ms / 1000))
        first = self.started_load(slo_ms)
        second = harness.Running(
            "fetch", "--node", self.daemon.socket_path, "--like", other, *CHUNK, "--slo",
            int(slo_ms * SLOWDOWN), "--json", "--check", other, self.folder / "second.safetensors")
        for result in (first.result(), second.result()):
            self.assertEqual(result.code, OK, str(result))
            self.check_in_time(result, slo_ms)

    def test_same_context_twice(self):
        """Two loads of one context at a time take the bytes of one."""
        slo_ms = 20_000
        _, finest = self.sizes
        self.shaped.set_rate(self.mbit(finest, 2))
        before = self.shaped.sent_bytes()
        first, second = self.started_load(slo_ms), self.started_load(slo_ms, "second.safetensors")
        for result in (first.result(), second.result()):
            self.assertEqual(result.code, OK, str(result))
        self.assertLess(self.shaped.sent_bytes() - before, 1.6 * finest)


if __name__ == "__main__":
    unittest.main()
