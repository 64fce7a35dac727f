#!/usr/bin/env python3
"""Configuration: all faults are reported at once, and nothing starts with one."""
import os
import subprocess
import unittest

import harness

SERVER_FAULTS = """
[server]
listen = "not a list"
drain_ms = -1
[store]
quota = "many"
colour = "blue"
[unknown]
x = 1
"""
SERVER_NAMES = ("server.listen", "server.drain_ms", "store.quota", "store.colour", "unknown")
NODE_FAULTS = """
[node]
socket = 5
chunk_tokens = 1
colour = "blue"
[save]
threads = "many"
[unknown]
x = 1
"""
NODE_NAMES = ("node.socket", "node.chunk_tokens", "node.colour", "save.threads", "unknown")


class ConfigTest(harness.EndToEnd):
    def check(self, program, text):
        path = self.folder / "config.toml"
        path.write_text(text)
        return subprocess.run([os.environ[program], "--config", path, "--check-config"],
                              capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)

    def test_all_faults_are_reported(self):
        for program, text, names in (("SLUICE_SLUICED", SERVER_FAULTS, SERVER_NAMES),
                                     ("SLUICE_NODE", NODE_FAULTS, NODE_NAMES)):
            done = self.check(program, text)
            self.assertNotEqual(done.returncode, 0)
            for name in names:
                self.assertIn(name, done.stderr)

    def test_folder_as_configuration(self):
        for program in ("SLUICE_SLUICED", "SLUICE_NODE"):
            done = subprocess.run([os.environ[program], "--config", self.folder], check=False,
                                  capture_output=True, text=True, timeout=harness.LIMIT_S)
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stderr, f"read {self.folder}: Is a directory\n")

    def test_node_server_is_an_address(self):
        for server in ("10.0.0.5", "10.0.0.5:99999"):
            done = self.check("SLUICE_NODE", f'[node]\nserver = "{server}"\n')
            self.assertEqual(done.returncode, 2)
            self.assertIn("config.toml:2: node.server", done.stderr)
            self.assertIn("write HOST:PORT", done.stderr)
            done = subprocess.run(
                [os.environ["SLUICE_NODE"], "--server", server, "--check-config"], check=False,
                capture_output=True, text=True, timeout=harness.LIMIT_S)
            self.assertEqual(done.returncode, 2)
            self.assertIn("write HOST:PORT", done.stderr)

    def test_not_toml(self):
        for program in ("SLUICE_SLUICED", "SLUICE_NODE"):
            done = self.check(program, "[[[")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("config.toml", done.stderr)

    def test_address_in_use(self):
        first = self.server()
        done = subprocess.run(
            [os.environ["SLUICE_SLUICED"], "--data-dir", self.folder / "other", "--listen",
             first.address], capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(first.address, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.end(first)


if __name__ == "__main__":
    unittest.main()
