#!/usr/bin/env python3
"""Faults at random while an engine loads and stores: answers stay right and in time, nothing leaks.

Right is what the same engine computes when its connector neither loads nor stores, with an empty
prefix cache of its own: the full prefill, by the same steps as without a connector."""
import os
import signal
import time
import unittest
from pathlib import Path

from engine_case import CHUNK, EngineCase
from harness import SLOWDOWN, wait_until

REQUESTS = int(os.environ.get("SLUICE_ENGINE_REQUESTS", "40"))
FAULTS_SHARE = 0.05  # of the requests; each kind of fault at least once
AT_A_TIME, ABORTED = 4, 2
NEW_TOKENS = 8
SLO_MS = round(3000 * SLOWDOWN)
SLACK_S = 6 * SLOWDOWN  # of an answer, beside SLO and prefill: a load's grace, a cut, the machine
NONE = {"load": False, "save": False}


class Fault:
    """What is done when a load is under way, and what is put right after the batch."""

    def __init__(self, case):
        self.case = case

    def daemon_killed(self):
        self.case.daemon.kill()
        yield
        self.case.restart_daemon()

    def daemon_frozen(self):
        self.case.daemon.child.send_signal(signal.SIGSTOP)
        yield
        self.case.daemon.child.send_signal(signal.SIGCONT)

    def server_killed(self):
        self.case.stored_in.kill()
        yield
        self.case.restart_server()

    def chunk_damaged(self):
        chunks = sorted(self.case.containers())
        if chunks:
            path = self.case.random.choice(chunks)
            data = bytearray(path.read_bytes())
            data[self.case.random.randrange(len(data))] ^= 1 << self.case.random.randrange(8)
            path.write_bytes(data)
        yield

    def link_cut(self):
        self.case.link_to.command("cut")
        yield

    def link_refusing(self):
        self.case.link_to.command("refuse")
        yield
        self.case.link_to.command("accept")

    def link_stalled(self):
        self.case.link_to.command("rate 1")
        yield
        self.case.link_to.command("rate 0")

    def request_aborted(self):
        """By the engine, which is told before; see `abort`."""
        yield

    KINDS = (daemon_killed, daemon_frozen, server_killed, chunk_damaged, link_cut, link_refusing,
             link_stalled, request_aborted)


class Faults:
    """The requests are of a few contexts, so that most of what they ask for is stored."""

    def test_answers_are_right_and_nothing_leaks(self):
        prompts = self.prompts(max(AT_A_TIME, REQUESTS // 5), 2 * CHUNK, 6 * CHUNK)
        right = self.generate(self.requests(prompts, params=NONE))
        prefill_s = max(result["first_s"] for result in right)
        self.forget()
        faults = self.drawn_faults()
        loaded = 0
        for begin in range(0, REQUESTS, AT_A_TIME):
            chosen = [self.random.randrange(len(prompts)) for _ in range(AT_A_TIME)]
            with self.subTest(begin=begin, fault=getattr(faults.get(begin), "__name__", "none")):
                results = self.batch([prompts[i] for i in chosen], faults.get(begin), prefill_s)
                self.assert_right(results, [right[i] for i in chosen],
                                  faults.get(begin) is Fault.request_aborted)
                loaded += sum(self.loaded_tokens(result) for result in results)
        print(f"{REQUESTS} requests, {len(faults)} faults, {loaded} tokens loaded", flush=True)
        self.assertGreater(loaded, 0)
        self.assert_nothing_is_left()

    def drawn_faults(self):
        """Kinds of faults by the batch's beginning."""
        batches = range(0, REQUESTS, AT_A_TIME)
        count = min(len(batches), max(len(Fault.KINDS), round(FAULTS_SHARE * REQUESTS)))
        kinds = [Fault.KINDS[i % len(Fault.KINDS)] for i in range(count)]
        self.random.shuffle(kinds)
        return dict(zip(sorted(self.random.sample(batches, count)), kinds))

    def batch(self, prompts, kind, prefill_s):
        """Results of a batch; once it has begun to load, the fault."""
        requests = self.requests(prompts, max_tokens=NEW_TOKENS, params={"slo_ms": SLO_MS})
        begun = self.link_to.carried("down") + self.random.randrange(1 << 20)
        started = time.monotonic()
        if kind is Fault.request_aborted:
            for request in requests[:ABORTED]:
                request["abort"] = True
            self.engine.send(generate=requests, abort_after=self.random.uniform(0, 0.5))
        else:
            self.engine.send(generate=requests)
        running = kind(Fault(self)) if kind else iter(())
        wait_until(lambda: self.link_to.carried("down") >= begun or not self.engine.answers.empty(),
                   "the batch loads or ends", SLO_MS / 1000 + SLACK_S + 2 * AT_A_TIME * prefill_s)
        next(running, None)
        results = self.engine.take()["results"]
        took_s = time.monotonic() - started
        next(running, None)
        self.assertLess(took_s, SLO_MS / 1000 + SLACK_S + 2 * AT_A_TIME * prefill_s)
        self.forget()
        return results

    def assert_right(self, results, right, aborted):
        for number, (result, want) in enumerate(zip(results, right)):
            got = result["tokens"]
            self.assertEqual(got, want["tokens"][:len(got)], f"request {number}: {result}")
            if not aborted or number >= ABORTED:
                self.assertEqual((result.get("finish"), len(got)), ("length", NEW_TOKENS), result)

    def assert_nothing_is_left(self):
        self.wait_for_pool()
        wait_until(lambda: all(self.node_status()[name] == count for name, count in
                               (("pools", 1), ("loads", 0), ("saves", 0))),
                   "the daemon has one pool and nothing to do")
        self.forget()
        state = self.engine.ask(state=True)
        self.assertEqual((state["free"], state["requests"]), (state["blocks"], 0))
        files = [path.name
                 for path in Path("/dev/shm").glob(f"sluice-engine-py-{self.engine.pid}-*")]
        self.assertEqual(len(files), 1)
        wait_until(lambda: self.mapped_files() == {f"/dev/shm/{files[0]}"}, "only that is mapped")
        self.assertFalse(self.log_has("Traceback"))

    def mapped_files(self):
        """Engines' memory that the daemon has mapped."""
        maps = Path(f"/proc/{self.daemon.pid}/maps").read_text(encoding="utf-8")
        return {line.split(maxsplit=5)[5] for line in maps.splitlines() if "sluice-engine" in line}

    def restart_daemon(self):
        self.start_daemon()
        self.wait_for_pool()

    def restart_server(self):
        type(self).shared["stored_in"] = self.stored_in = self.server(
            data=self.stored_in.data, listen=self.stored_in.address, config="[cache]\nlimit = 0\n")


class Asynchronous(Faults, EngineCase):
    BRIEF = ()
    SETTINGS = {"level": "lossless", "save_lossless": True, "save_blocks_share": 1}
    ENGINE = {"dtype": "float32", "num_gpu_blocks_override": 48}


class Synchronous(Faults, EngineCase):
    BRIEF = ()
    SETTINGS = {**Asynchronous.SETTINGS, "load_async": False}
    ENGINE = {**Asynchronous.ENGINE, "max_num_batched_tokens": 512}


if __name__ == "__main__":
    unittest.main()
