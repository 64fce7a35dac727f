#!/usr/bin/env python3
"""A server that dies, restarts or is asked to go, at the worst moments."""
import unittest

import harness
from harness import OK, PARTIAL, SLOWDOWN, UNREACHABLE

CHUNK = ("--chunk-tokens", 64)
SHAPE = {"tokens": 512, "layers": 4, "heads": 2, "head_dim": 64}
LARGE = {"tokens": 512, "layers": 8, "heads": 4, "head_dim": 64}  # 90 kB at its base level

PROFILE_CHUNK = ("--chunk-tokens", 16)
LARGE_PROFILE = {"tokens": 16, "layers": 40, "heads": 1, "head_dim": 8192, "own_rotary": True}


class KillTest(harness.EndToEnd):
    def test_kill_during_put(self):
        """Each chunk is there whole or not at all, and the put can be repeated."""
        cache = self.cache(**SHAPE)
        server = self.server()
        link = self.link(server)
        link.command("up-rate 1000000")
        put = harness.Running("put", "--server", link.address, "--lossless", *CHUNK, cache)
        link.wait_for("up", 500_000)
        server.kill()
        self.assertNotEqual(put.result().code, OK)

        server = self.server(name="sluiced-restarted")
        result = self.fetch(server, cache, *CHUNK, "--level", "lossless", code=None)
        self.assertIn(result.code, (OK, PARTIAL, harness.FAILURE), str(result))
        if result.out.strip():
            self.assertLessEqual(set(result.reasons()), {"not_stored"}, str(result))
        self.put(server, cache, "--lossless", *CHUNK)
        self.fetch(server, cache, *CHUNK, "--level", "lossless")
        self.assert_same_cache(self.folder / "out.safetensors", cache)
        self.assertEqual(list((server.data / "tmp").iterdir()), [])
        self.end(server)

    def test_kill_during_fetch(self):
        """What is missing is for the engine to recompute, long before the SLO."""
        cache = self.cache(**LARGE)
        server = self.server()
        self.put(server, cache, *CHUNK)
        link = self.link(server, rate=50_000)
        slo_ms = 20_000
        fetch = harness.Running(*self.fetch_command(link, cache, *CHUNK, slo_ms=slo_ms))
        link.wait_for("down", 30_000)
        server.kill()
        result = fetch.result()
        self.assertEqual(result.code, PARTIAL, str(result))
        self.assertIn("server_unavailable", result.reasons(), str(result))
        self.assertLess(max(chunk.ms for chunk in result.chunks()), slo_ms * SLOWDOWN / 2)

    def test_kill_during_profile(self):
        """A profile is there whole or not at all, and is sent again with the next put."""
        cache = self.cache(**LARGE_PROFILE)
        server = self.server()
        link = self.link(server)
        link.command("up-rate 300000")
        put = harness.Running("put", "--server", link.address, *PROFILE_CHUNK, cache)
        harness.wait_until(lambda: list((server.data / "tmp").iterdir()), "the profile arrives")
        server.kill()
        self.assertNotEqual(put.result().code, OK)

        server = self.server(name="sluiced-restarted")
        self.assertEqual(list((server.data / "tmp").iterdir()), [])
        self.assertEqual(list((server.data / "profiles").iterdir()), [])
        self.put(server, cache, *PROFILE_CHUNK)
        [profile] = (server.data / "profiles").iterdir()
        self.assertGreater(profile.stat().st_size, 1 << 20)
        server.kill()
        server = self.server(name="sluiced-again")
        self.fetch(server, cache, *PROFILE_CHUNK)
        self.sluice("rm", "--server", server.address, "synthetic")
        self.assertEqual(list((server.data / "profiles").iterdir()), [])
        self.end(server)

    def test_restart(self):
        """A server that was killed has everything that was put before."""
        cache = self.cache(**SHAPE)
        server = self.server()
        self.put(server, cache, "--lossless", *CHUNK)
        server.kill()
        server = self.server(name="sluiced-restarted")
        self.fetch(server, cache, *CHUNK, "--level", "lossless")
        self.assert_same_cache(self.folder / "out.safetensors", cache)
        self.end(server)

    def test_terminate_drains(self):
        """SIGTERM lets a running load end, refuses new ones and exits with 0."""
        cache = self.cache(**SHAPE)
        server = self.server()
        self.put(server, cache, "--lossless", *CHUNK)
        link = self.link(server, rate=800_000)
        fetch = harness.Running(*self.fetch_command(link, cache, *CHUNK, "--level", "lossless"))
        link.wait_for("down", 100_000)
        self.end(server)
        result = fetch.result()
        self.assertEqual(result.code, OK, str(result))
        self.assert_same_cache(self.folder / "out.safetensors", cache)
        self.fetch(server, cache, *CHUNK, code=UNREACHABLE)

    def test_one_server_per_folder(self):
        server = self.server()
        with self.assertRaises(AssertionError):
            self.server(name="sluiced-second")
        self.sluice("ping", "--server", server.address)
        self.end(server)


if __name__ == "__main__":
    unittest.main()
