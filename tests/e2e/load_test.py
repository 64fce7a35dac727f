#!/usr/bin/env python3
"""Loads that are unusual: many at once, slow, impossible, empty, very long."""
import json
import time
import unittest

import harness
from harness import OK, PARTIAL, SLOWDOWN

CHUNK = ("--chunk-tokens", 64)
SHAPE = {"tokens": 512, "layers": 4, "heads": 2, "head_dim": 64}
CLIENTS = 16


class LoadTest(harness.EndToEnd):
    def test_two_writers_of_one_context(self):
        """Both succeed; every chunk is stored once."""
        cache = self.cache(**SHAPE)
        server = self.server()
        command = ("put", "--server", server.address, "--lossless", *CHUNK, cache)
        writers = [harness.Running(*command) for _ in range(2)]
        for writer in writers:
            result = writer.result()
            self.assertEqual(result.code, OK, str(result))
        self.assertEqual(len(list(server.data.rglob("*.chunk"))), 8)
        self.fetch(server, cache, *CHUNK, "--level", "lossless")
        self.assert_same_cache(self.folder / "out.safetensors", cache)
        self.end(server)

    def test_many_clients(self):
        cache = self.cache(**SHAPE)
        server = self.server()
        self.put(server, cache, "--lossless", *CHUNK)
        clients = [harness.Running(*self.fetch_command(
            server, cache, *CHUNK, "--level", "lossless", slo_ms=60_000, out=f"{i}.safetensors"))
                   for i in range(CLIENTS)]
        for i, client in enumerate(clients):
            result = client.result()
            self.assertEqual(result.code, OK, str(result))
            self.assert_same_cache(self.folder / f"{i}.safetensors", cache)
        self.end(server)

    def test_slow_reader_harms_nobody(self):
        """A client that hardly reads neither delays others nor makes the server grow."""
        cache = self.cache(tokens=1024, layers=4, heads=4, head_dim=128)
        server = self.server(config='[cache]\nlimit = "16 MiB"\n')
        self.put(server, cache, "--lossless", *CHUNK)
        self.fetch(server, cache, *CHUNK, "--level", "lossless")
        before = server.peak_memory_bytes()
        link = self.link(server, rate=20_000)
        slow = [harness.Running(*self.fetch_command(
            link, cache, *CHUNK, "--level", "lossless", slo_ms=60_000, out=f"slow{i}.safetensors"))
                for i in range(4)]
        link.wait_for("down", 20_000)
        self.fetch(server, cache, *CHUNK, "--level", "lossless")
        self.assert_same_cache(self.folder / "out.safetensors", cache)
        self.assertTrue(all(client.running() for client in slow))
        self.assertLess(server.peak_memory_bytes() - before, 64 << 20)
        for client in slow:
            client.child.kill()
            client.result()
        self.end(server)

    def test_slow_link_lowers_the_level(self):
        cache = self.cache(**SHAPE)
        server = self.server()
        self.put(server, cache, *CHUNK)
        fast = self.fetch(server, cache, *CHUNK)
        total = sum(chunk.bytes for chunk in fast.chunks())
        slo_ms = 4000
        link = self.link(server, rate=int(0.6 * total * 1000 / (slo_ms * SLOWDOWN)))
        slow = self.fetch(link, cache, *CHUNK, slo_ms=slo_ms, code=None)
        self.assertIn(slow.code, (OK, PARTIAL), str(slow))
        self.assertLess(sum(chunk.bytes for chunk in slow.chunks()), total)
        self.assertLess(max(chunk.ms for chunk in slow.chunks()), slo_ms * SLOWDOWN)
        self.end(server)

    def test_slo_of_zero(self):
        """Nothing can be loaded in no time; the answer comes at once."""
        cache = self.cache(**SHAPE)
        server = self.server()
        self.put(server, cache, *CHUNK)
        started = time.monotonic()
        result = self.fetch(server, cache, *CHUNK, slo_ms=0, code=PARTIAL)
        self.assertLess(time.monotonic() - started, 2 * SLOWDOWN)
        self.assertEqual(set(result.reasons()), {"late"}, str(result))
        self.end(server)

    def test_unknown_namespace(self):
        cache = self.cache(**SHAPE)
        server = self.server()
        result = self.fetch(server, cache, *CHUNK, code=PARTIAL)
        self.assertEqual(set(result.reasons()), {"not_stored"}, str(result))
        self.end(server)

    def test_other_tenant_sees_nothing(self):
        cache = self.cache(**SHAPE)
        server = self.server()
        self.put(server, cache, *CHUNK, "--tenant", "a")
        result = self.fetch(server, cache, *CHUNK, "--tenant", "b", code=PARTIAL)
        self.assertEqual(set(result.reasons()), {"not_stored"}, str(result))
        self.end(server)

    def test_chunk_missing_in_the_middle(self):
        cache = self.cache(**SHAPE)
        server = self.server()
        self.put(server, cache, "--lossless", *CHUNK)
        chunks = self.sluice("ls", "--server", server.address, "--json", "synthetic").json()
        third = next(chunk for chunk in chunks["chunks"] if chunk["start_token"] == 128)
        self.sluice("rm", "--server", server.address, "synthetic", "--chunk", third["chunk_key"])
        result = self.fetch(server, cache, *CHUNK, code=PARTIAL)
        self.assertEqual([chunk.reason for chunk in result.chunks()].index("not_stored"), 2)
        self.assertEqual(result.reasons(), ["not_stored"], str(result))
        self.end(server)

    def test_very_long_context(self):
        """100,000 tokens that are not stored: one quick answer."""
        cache = self.cache(**SHAPE)
        server = self.server()
        self.put(server, cache, *CHUNK)
        tokens = self.folder / "tokens.json"
        tokens.write_text(json.dumps([self.random.randrange(50000) for _ in range(100_000)]))
        started = time.monotonic()
        result = self.sluice("fetch", "--server", server.address, "--tokens", tokens,
                             "--model", "synthetic", *CHUNK, "--slo", int(5000 * SLOWDOWN),
                             "--json", self.folder / "out.safetensors", code=PARTIAL)
        self.assertLess(time.monotonic() - started, 5 * SLOWDOWN)
        self.assertEqual(len(result.chunks()), 100_000 // 64)
        self.assertEqual(set(result.reasons()), {"not_stored"})
        self.end(server)


if __name__ == "__main__":
    unittest.main()
