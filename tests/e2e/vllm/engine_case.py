"""Tests with a real engine: vLLM on the CPU, with the connector, beside a real server and daemon.

The environment names what cannot be built here: SLUICE_ENGINE_PYTHON, an interpreter of
deploy/vllm/install-engine.sh, and SLUICE_ENGINE_MODEL, a folder of deploy/vllm/make-model.py.
Without them the tests are skipped, with a message.
"""
import json
import os
import queue
import re
import subprocess
import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness  # noqa: E402
from harness import SLOWDOWN, wait_until  # noqa: E402

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("SLUICE_ENGINE_PYTHON", "")
MODEL = os.environ.get("SLUICE_ENGINE_MODEL", "")
ALL = os.environ.get("SLUICE_ENGINE_ALL", "") == "1"  # the tests that take many minutes too
CHUNK = 128  # tokens; the block of vLLM's CPU backend
START_LIMIT_S = 240 * SLOWDOWN
ANSWER_LIMIT_S = 300 * SLOWDOWN
TEXTS = ("README.md", "codec/FORMAT.md", "client/README.md", "client/cli/README.md",
         "client/load_session.cc", "codec/README.md", "adapt/README.md", "server/README.md",
         "client/node_service.cc", "tests/README.md", "deploy/README.md", "client/saver.cc")


def why_not():
    if not PYTHON or not os.access(PYTHON, os.X_OK):
        return "no engine: SLUICE_ENGINE_PYTHON names no interpreter"
    if not (Path(MODEL) / "config.json").is_file():
        return "no model: SLUICE_ENGINE_MODEL names no folder with one"
    return None


def make_prompts(chance, count, least, most):
    """Token ids of parts of the project's own texts, each with a beginning of its own."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(Path(MODEL) / "tokenizer.json"))
    prompts = []
    for _ in range(count):
        text = (harness.ROOT / chance.choice(TEXTS)).read_text(encoding="utf-8")
        begin = chance.randrange(len(text) // 2)
        text = f"{chance.randrange(10**9)} {text[begin:]} {text}" * 3
        prompts.append(tokenizer.encode(text).ids[:chance.randint(least, most)])
    return prompts


class EngineProcess(harness.Process):
    """vLLM in a process of its own, driven by engine.py."""

    def __init__(self, folder, settings, arguments, name="engine", environment=None, transfer=None):
        """`transfer` overrides fields of kv_transfer_config."""
        self.arguments = {"model": MODEL, **arguments}
        if settings is not None:
            self.arguments["kv_transfer_config"] = {
                "kv_connector": "SluiceConnector", "kv_connector_module_path": "sluice_kv.vllm",
                "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": settings, **(transfer or {})}
        self.name = name
        self.log = folder / f"{name}.log"
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(
                [PYTHON, "-B", str(HERE / "engine.py"), json.dumps(self.arguments)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                errors="replace", env={**os.environ, **(environment or {})})
        self.answers = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.take(START_LIMIT_S)

    def read(self):
        with open(self.log, "a", encoding="utf-8") as log:
            for line in self.child.stdout:
                if line.startswith("ENGINE "):
                    self.answers.put(json.loads(line[len("ENGINE "):]))
                else:
                    log.write(line)
                    log.flush()
        self.answers.put({"error": "the engine has ended"})

    def send(self, **command):
        self.child.stdin.write(json.dumps(command) + "\n")
        self.child.stdin.flush()

    def take(self, limit_s=ANSWER_LIMIT_S):
        try:
            answer = self.answers.get(timeout=limit_s)
        except queue.Empty:
            raise AssertionError(f"no answer of the engine within {limit_s:g} s\n"
                                 f"{self.output()[-harness.LOG_TAIL_BYTES:]}") from None
        if "error" in answer:
            raise AssertionError(f"{answer['error']}\n{self.output()[-harness.LOG_TAIL_BYTES:]}")
        return answer

    def ask(self, **command):
        self.send(**command)
        return self.take()

    def close(self):
        self.child.stdin.close()
        return self.child.wait(harness.LIMIT_S)


@unittest.skipIf(why_not(), why_not())
class EngineCase(harness.EndToEnd):
    """One server, link, daemon and engine for all tests of a class; `SETTINGS` are the connector's,
    `ENGINE` the engine's. Every test has prompts of its own."""
    SETTINGS = {}
    ENGINE = {}
    BRIEF = None  # names of the tests that are run without SLUICE_ENGINE_ALL; None: all
    DAEMON_FIRST = True  # False: there is none before a test calls start_daemon
    shared = None

    def setUp(self):
        if self.BRIEF is not None and not ALL and self._testMethodName not in self.BRIEF:
            self.skipTest("takes minutes: SLUICE_ENGINE_ALL=1 runs it")
        super().setUp()
        if type(self).shared is None:
            type(self).shared = {"folder": self.folder, "processes": self.processes}
            self._cleanups.clear()  # folder and processes stay for the tests that follow
            server = self.server(config="[cache]\nlimit = 0\n")  # what is damaged on disk is read
            link = self.link(server)
            type(self).shared |= {"stored_in": server, "link_to": link}
            self.link_to = link
            if self.DAEMON_FIRST:
                self.start_daemon()
            type(self).shared |= {"engine": self.started(self.engine_of())}
        for name, value in type(self).shared.items():
            setattr(self, name, value)
        self._cleanups.clear()
        self.addCleanup(self.show_logs)

    def show_logs(self):
        outcome = self._outcome.result
        if any(test is self for test, _ in outcome.failures + outcome.errors):
            for process in self.processes:
                print(f"--- {process.name}\n{process.output()[-harness.LOG_TAIL_BYTES:]}",
                      flush=True)

    def start_daemon(self):
        type(self).shared["daemon"] = self.daemon = self.node(self.link_to.address)

    def engine_of(self, **engine):
        settings = {"socket": str(self.folder / "sluice-node.sock"), "chunk_tokens": CHUNK,
                    "slo_ms": 60_000, "lookup_ms": 5000, **self.SETTINGS}
        return EngineProcess(self.folder, settings, {**self.ENGINE, **engine})

    @classmethod
    def tearDownClass(cls):
        if cls.shared is not None:
            for process in reversed(cls.shared["processes"]):
                if process.running():
                    process.kill()
                if isinstance(process, harness.Link):
                    process.close()
            harness.shutil.rmtree(cls.shared["folder"], ignore_errors=True)
            cls.shared = None

    # Prompts.

    def prompts(self, count, least=1000, most=2000):
        return make_prompts(self.random, count, least, most)

    def requests(self, prompts, max_tokens=16, **fields):
        return [{"tokens": tokens, "max_tokens": max_tokens, **fields} for tokens in prompts]

    # What tests do.

    def generate(self, requests, at_a_time=4):
        """Results of all requests, `at_a_time` of them together."""
        results = []
        for begin in range(0, len(requests), at_a_time):
            results += self.engine.ask(generate=requests[begin:begin + at_a_time])["results"]
        for result in results:
            self.assertEqual(result["finish"], "length")
        return results

    def forget(self):
        """Empties the engine's own prefix cache."""
        wait_until(lambda: self.engine.ask(reset=True)["reset"], "the prefix cache is empty")

    def wait_for_saves(self):
        """Until the daemon has stored what it was given."""
        wait_until(lambda: self.node_status()["saves"] == 0, "all saves have ended",
                   ANSWER_LIMIT_S)

    def node_status(self):
        return self.sluice("stats", "--node", self.daemon.socket_path, "--json").json()

    def store(self, requests):
        """Results of requests that are computed and then stored."""
        results = self.generate(requests)
        self.wait_for_saves()
        self.forget()
        return results

    def containers(self):
        """Files of stored chunks."""
        return [path for path in self.stored_in.data.rglob("*.chunk")
                if "quarantine" not in path.parts]

    def wait_for_pool(self):
        """Until the daemon knows the engine's memory."""
        wait_until(lambda: self.node_status()["pools"] > 0, "the pool is registered",
                   ANSWER_LIMIT_S)

    def loaded_tokens(self, result):
        return result.get("told", {}).get("sluice", {}).get("loaded_tokens", 0)

    def assert_same_tokens(self, results, expected):
        for number, (result, right) in enumerate(zip(results, expected)):
            self.assertEqual(result["tokens"], right["tokens"], f"request {number}: {result}")

    def log_has(self, pattern):
        return re.search(pattern, self.engine.output())
