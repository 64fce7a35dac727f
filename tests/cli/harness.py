"""Runs the CLI, and a server for those tests that need one.

The programs are named by the environment: SLUICE_CLI, SLUICE_SLUICED, SLUICE_NODE.
"""
import json
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import cache_file

OK, FAILURE, USAGE, UNREACHABLE, PARTIAL, DAMAGED = range(6)
LIMIT_S = 60 * float(os.environ.get("SLUICE_SLOWDOWN", "1"))
CHUNK = ("--chunk-tokens", "16")


class Result:
    def __init__(self, arguments, done):
        self.arguments, self.code = arguments, done.returncode
        self.out, self.err = done.stdout, done.stderr

    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return f"sluice {' '.join(self.arguments)}\ncode {self.code}\n{self.out}{self.err}"


class CliTest(unittest.TestCase):
    def setUp(self):
        self.seed = int(os.environ.get("SLUICE_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"{self.id()}: SLUICE_SEED={self.seed}", flush=True)
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return self.folder / name

    def cache(self, name="in.safetensors", change=None, **shape):
        """Writes a cache of random numbers; `change(cache)` may spoil it first."""
        cache = cache_file.make(self.seed, **shape)
        if change:
            change(cache)
        return cache.write(self.path(name))

    def sluice(self, *arguments, code=OK):
        arguments = [str(argument) for argument in arguments]
        result = Result(arguments, subprocess.run(
            [os.environ["SLUICE_CLI"], *arguments], capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
            env={**os.environ, "XDG_CACHE_HOME": str(self.path("user-cache"))}))
        if code is not None:
            self.assertEqual(result.code, code, str(result))
        return result

    def refused(self, *arguments, code=USAGE, says=()):
        """Fails with one line of error that has these words, and perhaps a hint."""
        result = self.sluice(*arguments, code=code)
        lines = result.err.splitlines()
        errors = [line for line in lines if line.startswith("sluice: error: ")]
        self.assertEqual(len(errors), 1, str(result))
        self.assertTrue(all(line.startswith("sluice: ") for line in lines), str(result))
        for words in says:
            self.assertIn(words, result.err, str(result))
        return result

    def assert_same_tensors(self, a, b):
        self.assertEqual(cache_file.read(a).tensors, cache_file.read(b).tensors)

    def assert_aligned(self, lines, right=0):
        """Cells of a column begin (or, for column `right`, end) below its title."""
        end = lines[0].split()[right]
        position = lines[0].index(end) + len(end)
        for line in lines[1:]:
            self.assertNotEqual(line[position - 1], " ", line)
            self.assertTrue(len(line) == position or line[position] == " ", line)


class ServerTest(CliTest):
    """With a server in a folder of its own."""

    def setUp(self):
        super().setUp()
        self.children = {}
        program = os.environ.get("SLUICE_SLUICED", "")
        if not os.access(program, os.X_OK):
            self.skipTest(f"no server program: {program or 'SLUICE_SLUICED is not set'}")
        self.address = self.start("sluiced", [program, "--data-dir", self.path("data"), "--listen",
                                              "127.0.0.1:0", "--port-file", self.path("port")],
                                  lambda: self.read_port())

    def read_port(self):
        text = self.path("port").read_text() if self.path("port").exists() else ""
        return f"127.0.0.1:{text.split()[0]}" if text.endswith("\n") else None

    def start(self, name, command, ready):
        """Starts a daemon and waits until `ready()` has a value, which is returned."""
        log = self.enterContext(open(self.path(f"{name}.log"), "wb"))
        child = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
        self.children[name] = child
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        deadline, pause = time.monotonic() + LIMIT_S, threading.Event()
        while time.monotonic() < deadline and child.poll() is None:
            if value := ready():
                return value
            pause.wait(0.005)
        self.fail(f"{name} did not start: {self.path(f'{name}.log').read_text()}")

    def stop(self, name):
        self.children[name].kill()
        self.children[name].wait()

    def server(self, command, *arguments, **options):
        return self.sluice(command, "--server", self.address, *arguments, **options)

    def put(self, path, *arguments, **options):
        return self.server("put", *CHUNK, *arguments, path, **options)

    def fetch(self, *arguments, code=OK, out="out.safetensors", **options):
        return self.server("fetch", *CHUNK, "--slo", 20000, *arguments, self.path(out), code=code,
                           **options)
