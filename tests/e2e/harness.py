"""Real processes for the end-to-end tests: server, node daemon, slow link, CLI, all on free ports.

The programs are named by the environment: SLUICE_SLUICED, SLUICE_NODE, SLUICE_CLI. SLUICE_SLOWDOWN
multiplies the time limits (sanitizer builds). Nothing waits for time to pass: `wait_until` polls
for an event that can be observed and fails after its limit.
"""
import collections
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import cache_file

ROOT = Path(__file__).resolve().parents[2]
THROTTLE = ROOT / "tests" / "tools" / "throttle.py"
REAL_CACHE = ROOT / "tests" / "data" / "smollm2_512.safetensors"
SLOWDOWN = float(os.environ.get("SLUICE_SLOWDOWN", "1"))
LIMIT_S = 20 * SLOWDOWN
LOG_TAIL_BYTES = 6000

OK, FAILURE, USAGE, UNREACHABLE, PARTIAL, DAMAGED = range(6)


def wait_until(condition, what, limit_s=LIMIT_S):
    """Returns the first true value of `condition()`."""
    deadline = time.monotonic() + limit_s
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {limit_s:g} s: {what}")
        pause.wait(0.005)


Chunk = collections.namedtuple("Chunk", "chunk outcome level reason bytes ms")


class Process:
    """A program whose output goes to a file of the test's folder."""

    def __init__(self, folder, name, command, **options):
        self.name = name
        self.log = folder / f"{name}.log"
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log,
                                          **options)

    @property
    def pid(self):
        return self.child.pid

    def running(self):
        return self.child.poll() is None

    def kill(self):
        self.child.kill()
        self.child.wait()

    def terminate(self):
        """SIGTERM; the exit status."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(LIMIT_S)

    def output(self):
        with open(self.log, "rb") as log:
            return log.read().decode(errors="replace")

    def read_file_when_written(self, path):
        def content():
            if not self.running():
                raise AssertionError(f"{self.name} ended with {self.child.returncode} at its start"
                                     f"\n{self.output()[-LOG_TAIL_BYTES:]}")
            text = path.read_text(encoding="ascii") if path.exists() else ""
            return text if text.endswith("\n") else None
        return wait_until(content, f"{self.name} is ready").split()

    def peak_memory_bytes(self):
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
        raise AssertionError(f"{self.name} has ended")


class Server(Process):
    """`config` is TOML text, `listen` an address to take again after a restart; `prefix` are words
    before the command."""

    def __init__(self, folder, data, *arguments, name="sluiced", listen="127.0.0.1:0", config="",
                 prefix=()):
        port_file = folder / f"{name}.port"
        port_file.unlink(missing_ok=True)
        config_file = folder / f"{name}.toml"
        config_file.write_text(config, encoding="utf-8")
        super().__init__(folder, name, [
            *prefix, os.environ["SLUICE_SLUICED"], "--config", config_file, "--data-dir", data,
            "--listen", listen, "--port-file", port_file, *arguments])
        self.data = data
        host = listen.rpartition(":")[0]
        self.address = f"{host}:{self.read_file_when_written(port_file)[0]}"


class Link(Process):
    """A throttled link to a server; `rate` is bytes/s towards the client, 0 without limit."""

    def __init__(self, folder, target, rate=0, name="link"):
        port_file = folder / f"{name}.port"
        port_file.unlink(missing_ok=True)
        super().__init__(folder, name, [sys.executable, "-B", THROTTLE, "--target", target,
                                        "--rate", rate, "--port-file", port_file])
        port, control = self.read_file_when_written(port_file)
        self.address = f"127.0.0.1:{port}"
        self.socket = socket.create_connection(("127.0.0.1", int(control)), LIMIT_S)
        self.control = self.socket.makefile("rw", encoding="ascii")

    def command(self, text):
        self.control.write(text + "\n")
        self.control.flush()
        answer = self.control.readline().strip()
        assert answer and not answer.startswith("error"), answer
        return answer

    def carried(self, direction):
        """Bytes carried "down" to clients or "up" to the server."""
        words = self.command("stats").split()
        return int(words[words.index(direction) + 1])

    def wait_for(self, direction, count):
        wait_until(lambda: self.carried(direction) >= count, f"{count} bytes {direction}")

    def close(self):
        self.control.close()
        self.socket.close()


class Node(Process):
    def __init__(self, folder, server, *arguments, name="sluice-node"):
        self.socket_path = folder / f"{name}.sock"
        super().__init__(folder, name, [os.environ["SLUICE_NODE"], "--server", server,
                                        "--socket", self.socket_path, *arguments])
        wait_until(self.answers, "the daemon's socket answers")

    def answers(self):
        if not self.running():
            raise AssertionError(f"{self.name} ended with {self.child.returncode} at its start:\n"
                                     f"{self.output()[-LOG_TAIL_BYTES:]}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(self.socket_path))
            except OSError:
                return False
        return True


class Result:
    """What a finished command of the CLI said."""

    def __init__(self, arguments, code, out, err):
        self.arguments, self.code, self.out, self.err = arguments, code, out, err

    def json(self):
        return json.loads(self.out)

    def chunks(self):
        """One Chunk per chunk of the table that `fetch --json` prints."""
        return [Chunk(**{name: chunk.get(name) for name in Chunk._fields})
                for chunk in self.json()["chunks"]]

    def levels(self):
        """Levels of the loaded chunks, None for those to recompute."""
        return [chunk.level for chunk in self.chunks()]

    def reasons(self):
        """Reasons why chunks must be recomputed, without those of loaded chunks."""
        return [chunk.reason for chunk in self.chunks() if chunk.outcome == "recompute"]

    def __str__(self):
        command = " ".join(map(str, self.arguments))
        return f"sluice {command}\ncode {self.code}\n{self.out}{self.err}"


class Running:
    """A command of the CLI that has been started; result() waits for its end."""

    def __init__(self, *arguments):
        self.arguments = arguments
        self.child = subprocess.Popen(
            [os.environ["SLUICE_CLI"], *map(str, arguments)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace")

    def running(self):
        return self.child.poll() is None

    def result(self, limit_s=3 * LIMIT_S):
        try:
            out, err = self.child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.child.kill()
            out, err = self.child.communicate()
            raise AssertionError(
                f"no end within {limit_s:g} s: {self.arguments}\n{out}{err}") from None
        return Result(self.arguments, self.child.returncode, out, err)


class EndToEnd(unittest.TestCase):
    """A folder, and processes that are killed at the end of each test."""

    def setUp(self):
        self.seed = int(os.environ.get("SLUICE_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"{self.id()}: SLUICE_SEED={self.seed}", flush=True)
        self.random = random.Random(self.seed)
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-e2e-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "user-cache")
        self.processes = []
        self.addCleanup(self.end_processes)

    def end_processes(self):
        for process in reversed(self.processes):
            if process.running():
                process.kill()
            if isinstance(process, Link):
                process.close()
        outcome = self._outcome.result
        if any(test is self for test, _ in outcome.failures + outcome.errors):
            for process in self.processes:
                print(f"--- {process.name}\n{process.output()[-LOG_TAIL_BYTES:]}", flush=True)

    def started(self, process):
        self.processes.append(process)
        return process

    def server(self, *arguments, data=None, **options):
        data = data or self.folder / "data"
        return self.started(Server(self.folder, data, *arguments, **options))

    def link(self, target, rate=0, name="link"):
        return self.started(Link(self.folder, target.address, rate, name))

    def node(self, target, *arguments, name="sluice-node"):
        return self.started(Node(self.folder, target, *arguments, name=name))

    def end(self, process):
        """Ends a daemon in good order; a sanitizer's finding is a wrong exit status."""
        self.assertEqual(process.terminate(), 0, process.output()[-LOG_TAIL_BYTES:])

    def sluice(self, *arguments, code=OK):
        """Runs the CLI and checks its exit code (None: any); the result."""
        result = Running(*arguments).result()
        if code is not None:
            self.assertEqual(result.code, code, str(result))
        return result

    def cache(self, name="in.safetensors", **shape):
        """A synthetic KV cache in a file of the test's folder."""
        path = self.folder / name
        cache_file.write_synthetic(path, self.random, **shape)
        return path

    def put(self, target, path, *arguments, code=OK):
        return self.sluice("put", "--server", target.address, *arguments, path, code=code)

    def fetch_command(self, target, like, *arguments, slo_ms=10000, out="out.safetensors"):
        return ("fetch", "--server", target.address, "--like", like, "--slo",
                int(slo_ms * SLOWDOWN), *arguments, "--json", self.folder / out)

    def fetch(self, target, like, *arguments, code=OK, **options):
        return self.sluice(*self.fetch_command(target, like, *arguments, **options), code=code)

    def assert_same_cache(self, path, original):
        """Bit-exact, all of it."""
        got, want = cache_file.read(path), cache_file.read(original)
        self.assertEqual(sorted(got.tensors), sorted(want.tensors))
        for name in want.tensors:
            self.assertEqual(got.shapes[name], want.shapes[name], name)
            self.assertTrue(got.tensors[name] == want.tensors[name], f"{name} differs")
