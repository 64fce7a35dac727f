#!/usr/bin/env python3
"""The node daemon: through shared memory, without a server, over restarts, ended during a load."""
import os
import re
import subprocess
import time
import unittest

import harness
from harness import OK, PARTIAL, SLOWDOWN, UNREACHABLE

CHUNK = ("--chunk-tokens", 64)
SHAPE = {"tokens": 512, "layers": 4, "heads": 2, "head_dim": 64}
LARGE = {"tokens": 512, "layers": 8, "heads": 4, "head_dim": 64}  # 90 kB at its base level
LOG_LINE = re.compile(r"^time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=\w+ event=\w+"
                      r'( \w+=([^\s"=]+|"([^"\\]|\\.)*"))*$')
NO_SERVER = {"server_unavailable", "breaker_open"}


def engine_pools():
    """Names of the shared memory of engines; other tests have shared memory of their own."""
    return {name for name in os.listdir("/dev/shm") if name.startswith("sluice-engine-")}


class NodeTest(harness.EndToEnd):
    def fetch_through(self, node, cache, *arguments, code=OK, slo_ms=10000):
        return self.sluice(*self.command(node, cache, *arguments, slo_ms=slo_ms), code=code)

    def command(self, node, cache, *arguments, slo_ms=10000):
        return ("fetch", "--node", node.socket_path, "--like", cache, *CHUNK, "--slo",
                int(slo_ms * SLOWDOWN), *arguments, "--json", self.folder / "out.safetensors")

    def test_load(self):
        """What comes through the daemon's shared memory is what was put."""
        cache = self.cache(**SHAPE)
        server = self.server()
        self.put(server, cache, *CHUNK)
        node = self.node(server.address)
        before = engine_pools()
        result = self.fetch_through(node, cache, "--check", cache)
        self.assertEqual(len(result.chunks()), 8)
        self.assertEqual(engine_pools() - before, set(), "left-over shared memory")
        self.end(node)
        self.end(server)
        self.check_log(node, "started", "pool_registered", "load", "pool_unregistered", "stopped")
        self.check_log(server, "started", "load", "draining", "stopped")
        self.assertRegex(server.output(), r"event=load .* status=OK\n")
        self.assertNotIn("CANCELLED", server.output())

    def check_log(self, process, *events):
        """Every line is key=value throughout and has its event; all of `events` happened."""
        lines = [line for line in process.output().splitlines() if " listening on " not in line]
        for line in lines:
            self.assertRegex(line, LOG_LINE)
        self.assertLessEqual(set(events), {re.search(r"event=(\w+)", line)[1] for line in lines})

    def test_save(self):
        """What the daemon saves, the server has."""
        cache = self.cache(**SHAPE)
        server = self.server()
        node = self.node(server.address)
        self.sluice("put", "--node", node.socket_path, *CHUNK, cache)
        self.fetch(server, cache, *CHUNK, "--check", cache)
        self.end(node)
        self.end(server)

    def test_absent_server(self):
        """The daemon starts without a server, and says so long before the SLO."""
        cache = self.cache(**SHAPE)
        node = self.node("127.0.0.1:1")

        def breaker_is_open():
            started = time.monotonic()
            result = self.fetch_through(node, cache, code=PARTIAL)
            self.assertLess(time.monotonic() - started, 5 * SLOWDOWN)
            self.assertLessEqual(set(result.reasons()), NO_SERVER, str(result))
            return set(result.reasons()) == {"breaker_open"}

        harness.wait_until(breaker_is_open, "the breaker opens")
        self.end(node)

    def test_server_restart(self):
        """The daemon finds the server again by itself."""
        cache = self.cache(**SHAPE)
        server = self.server()
        self.put(server, cache, *CHUNK)
        node = self.node(server.address)
        self.fetch_through(node, cache)
        server.kill()
        result = self.fetch_through(node, cache, code=PARTIAL)
        self.assertLessEqual(set(result.reasons()), NO_SERVER, str(result))
        server = self.server(name="sluiced-restarted", listen=server.address)
        harness.wait_until(
            lambda: self.fetch_through(node, cache, code=None).code == OK, "loads work again")
        self.end(node)
        self.end(server)

    def test_server_killed_during_load(self):
        cache = self.cache(**LARGE)
        server = self.server()
        self.put(server, cache, *CHUNK)
        link = self.link(server, rate=50_000)
        node = self.node(link.address)
        slo_ms = 20_000
        fetch = harness.Running(*self.command(node, cache, slo_ms=slo_ms))
        link.wait_for("down", 30_000)
        server.kill()
        result = fetch.result()
        self.assertEqual(result.code, PARTIAL, str(result))
        self.assertIn("server_unavailable", result.reasons(), str(result))
        self.assertLess(max(chunk.ms for chunk in result.chunks()), slo_ms * SLOWDOWN / 2)
        self.end(node)

    def start_slow_load(self):
        """The server, the daemon and an engine whose load is under way and will take long."""
        cache = self.cache(**SHAPE)
        server = self.server()
        self.put(server, cache, *CHUNK)
        link = self.link(server, rate=50_000)
        node = self.node(link.address)
        fetch = harness.Running(*self.command(node, cache, slo_ms=60_000))
        link.wait_for("down", 10_000)
        return server, node, fetch

    def test_ended_during_load(self):
        """SIGTERM ends running loads: the engine gets its answer and the daemon exits with 0."""
        server, node, fetch = self.start_slow_load()
        self.end(node)
        result = fetch.result()
        self.assertIn(result.code, (PARTIAL, UNREACHABLE), str(result))
        self.assertFalse(node.socket_path.exists())
        self.end(server)

    def test_engine_killed_during_load(self):
        """The daemon forgets the pool of an engine that is gone."""
        server, node, fetch = self.start_slow_load()
        fetch.child.kill()
        fetch.child.communicate()

        def is_forgotten():
            stats = self.sluice("stats", "--node", node.socket_path, "--json", code=OK)
            return stats.json()["pools"] == 0

        harness.wait_until(is_forgotten, "the pool is forgotten")
        self.end(node)
        self.check_log(node, "engine_gone")
        self.end(server)

    def test_left_over_socket(self):
        """A daemon that was killed does not keep the next one from starting."""
        node = self.node("127.0.0.1:1")
        node.kill()
        self.assertTrue(node.socket_path.exists())
        self.end(self.node("127.0.0.1:1"))

    def test_one_daemon_per_socket(self):
        node = self.node("127.0.0.1:1")
        second = subprocess.run(
            [os.environ["SLUICE_NODE"], "--server", "127.0.0.1:1", "--socket", node.socket_path],
            capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn(str(node.socket_path), second.stderr)
        self.end(node)


if __name__ == "__main__":
    unittest.main()
