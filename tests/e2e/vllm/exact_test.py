#!/usr/bin/env python3
"""What is loaded without loss gives the tokens that a full prefill gives."""
import os
import signal
import unittest

from engine_case import CHUNK, EngineCase

LOSSLESS = {"level": "lossless", "save_lossless": True, "save_blocks_share": 1}
AT_A_TIME = 4
PROMPTS = int(os.environ.get("SLUICE_ENGINE_PROMPTS", "4"))
LENGTHS = (1000, 3000) if PROMPTS > 4 else (500, 1200)


class Exact:
    """In float32, for there the engine itself gives the same with a shorter prefill."""

    def test_loaded_contexts_give_the_tokens_of_a_full_prefill(self):
        requests = self.requests(self.prompts(PROMPTS, *LENGTHS))
        computed = self.store(requests)
        loaded = self.generate(requests)
        self.assert_same_tokens(loaded, computed)
        for request, result in zip(requests, loaded):
            self.assertEqual(self.loaded_tokens(result),
                             (len(request["tokens"]) - 1) // CHUNK * CHUNK, result)
            self.assertEqual(result["told"]["sluice"]["level"], 255)

    def test_salted_requests_share_with_nobody(self):
        (tokens,) = self.prompts(1, 3 * CHUNK, 3 * CHUNK + 50)
        self.store(self.requests([tokens], salt="one"))
        other, same = self.generate(self.requests([tokens], salt="two"), 1) + self.generate(
            self.requests([tokens], salt="one"), 1)
        self.assertEqual(self.loaded_tokens(other), 0)
        self.assertGreater(self.loaded_tokens(same), 0)
        self.assert_same_tokens([same], [other])

    def test_what_the_engine_has_is_not_loaded_again(self):
        (tokens,) = self.prompts(1, 6 * CHUNK + 20, 6 * CHUNK + 90)
        (computed,) = self.store(self.requests([tokens]))
        self.generate(self.requests([tokens[:2 * CHUNK + 1]]))
        (result,) = self.generate(self.requests([tokens]))
        self.assertEqual(self.loaded_tokens(result), 4 * CHUNK)
        self.assert_same_tokens([result], [computed])

    def test_a_longer_prompt_goes_on_from_what_is_stored(self):
        (tokens,) = self.prompts(1, 6 * CHUNK + 20, 6 * CHUNK + 90)
        self.store(self.requests([tokens[:3 * CHUNK + 5]]))
        (result,) = self.generate(self.requests([tokens]))
        self.assertEqual(self.loaded_tokens(result), 3 * CHUNK)
        self.wait_for_saves()
        self.forget()
        (again,) = self.generate(self.requests([tokens]))
        self.assertEqual(self.loaded_tokens(again), 6 * CHUNK)
        self.assert_same_tokens([again], [result])

    def test_generated_tokens_are_stored_too(self):
        (tokens,) = self.prompts(1, CHUNK + 20, CHUNK + 60)
        (computed,) = self.store(self.requests([tokens], max_tokens=CHUNK + 8))
        longer = tokens + computed["tokens"]
        (result,) = self.generate(self.requests([longer]))
        self.assertEqual(self.loaded_tokens(result), 2 * CHUNK)

    def test_damaged_chunk_is_computed(self):
        (tokens,) = self.prompts(1, 5 * CHUNK + 20, 5 * CHUNK + 90)
        (computed,) = self.store_and_damage(tokens)
        (result,) = self.generate(self.requests([tokens]))
        self.assertLess(self.loaded_tokens(result), 5 * CHUNK)
        self.assert_same_tokens([result], [computed])

    def test_requests_that_share_a_damaged_context_are_all_right(self):
        (tokens,) = self.prompts(1, 8 * CHUNK + 20, 8 * CHUNK + 90)
        self.store_and_damage(tokens)
        requests = [{"tokens": tokens[:8 * CHUNK] + own, "max_tokens": 4}
                    for own in self.prompts(3, 20, 90)]
        shared = self.generate(requests)
        self.forget()
        self.assert_same_tokens(shared, self.generate([{**request, "params": {"load": False}}
                                                       for request in requests]))

    def store_and_damage(self, tokens):
        """What was computed of a stored prompt, one of whose chunks is damaged then."""
        before = set(self.containers())
        computed = self.store(self.requests([tokens]))
        path = self.random.choice(sorted(set(self.containers()) - before))
        data = bytearray(path.read_bytes())
        data[-100] ^= 1 << self.random.randrange(8)  # in the lossless layer, the last one
        path.write_bytes(data)
        return computed

    def test_killed_daemon_costs_a_computation_and_comes_back(self):
        requests = self.requests(self.prompts(2, 4 * CHUNK + 20, 4 * CHUNK + 90))
        computed = self.store(requests)
        self.daemon.kill()
        self.assert_same_tokens(self.generate(requests), computed)
        self.forget()
        self.start_daemon()
        self.wait_for_pool()
        loaded = self.generate(requests)
        self.assert_same_tokens(loaded, computed)
        for result in loaded:
            self.assertEqual(self.loaded_tokens(result), 4 * CHUNK)

    def test_frozen_daemon_is_cut_off(self):
        (tokens,) = self.prompts(1, 4 * CHUNK + 20, 4 * CHUNK + 90)
        requests = self.requests([tokens])
        computed = self.store(requests)
        self.link_to.command("rate 20000")
        self.engine.send(generate=self.requests([tokens], params={"slo_ms": 3000}))
        self.link_to.wait_for("down", 1)
        self.daemon.child.send_signal(signal.SIGSTOP)
        frozen = self.engine.take()["results"]
        self.assert_same_tokens(frozen, computed)
        self.daemon.child.send_signal(signal.SIGCONT)
        self.link_to.command("rate 0")
        self.forget()
        self.wait_for_pool()
        self.assert_same_tokens(self.generate(requests), computed)


class Asynchronous(Exact, EngineCase):
    SETTINGS = LOSSLESS
    ENGINE = {"dtype": "float32", "num_gpu_blocks_override": 72}


class Synchronous(Exact, EngineCase):
    BRIEF = ("test_loaded_contexts_give_the_tokens_of_a_full_prefill",)
    SETTINGS = {**LOSSLESS, "load_async": False}
    ENGINE = {"dtype": "float32", "num_gpu_blocks_override": 72, "max_num_batched_tokens": 512}


class AsHit:
    """In bfloat16, where a shorter prefill alone changes close choices: as the engine's own hit.
    One at a time, for what else is in a step's batch changes them too."""

    def test_loaded_contexts_give_the_tokens_of_a_hit_in_the_engine(self):
        for begin in range(0, PROMPTS, AT_A_TIME):
            requests = self.requests(self.prompts(min(AT_A_TIME, PROMPTS - begin), *LENGTHS))
            self.generate(requests)
            self.wait_for_saves()
            hits = self.generate(requests, 1)
            self.forget()
            loaded = self.generate(requests, 1)
            for request, hit, result in zip(requests, hits, loaded):
                full = (len(request["tokens"]) - 1) // CHUNK * CHUNK
                self.assertEqual((self.loaded_tokens(hit), hit["cached"]), (0, full), hit)
                self.assertEqual(self.loaded_tokens(result), full, result)
            self.assert_same_tokens(loaded, hits)


class AsynchronousBfloat16(AsHit, EngineCase):
    SETTINGS = LOSSLESS
    ENGINE = {"dtype": "bfloat16", "num_gpu_blocks_override": 112}


class SynchronousBfloat16(AsHit, EngineCase):
    BRIEF = ()
    SETTINGS = {**LOSSLESS, "load_async": False}
    ENGINE = {"dtype": "bfloat16", "num_gpu_blocks_override": 112, "max_num_batched_tokens": 512}


if __name__ == "__main__":
    unittest.main()
