"""The connector's two halves with an engine and a daemon that are played."""
import threading
import time
import types
import unittest
from concurrent.futures import Future
from dataclasses import replace

import torch
from vllm.v1.core.block_pool import BlockPool

from sluice_kv.geometry import Geometry
from sluice_kv.node import LOSSLESS, Identity, LoadResult, SaveResult
from sluice_kv.vllm.blocks import DirectBlocks, StagedBlocks
from sluice_kv.vllm.config import Config, ConfigError, RequestSettings
from sluice_kv.vllm.engine import EngineFacts
from sluice_kv.vllm.messages import LoadReport, SaveTask, StepPlan, WorkerReport
from sluice_kv.vllm.scheduler import SchedulerSide
from sluice_kv.vllm.worker import WorkerSide

CHUNK, BLOCK = 32, 16
LIMIT_S = 20


class PlayedNode:
    """A daemon that has `stored` tokens of everything; answers of queries come when told."""

    def __init__(self, stored=0, at_once=True):
        self.stored, self.at_once = stored, at_once
        self.queries, self.saves, self.prefills, self.identities = [], [], [], []
        self.socket = "played"
        self.load_result = lambda task: LoadResult()
        self.save_result = SaveResult(stored=True)
        self.may_copy, self.may_end = threading.Event(), threading.Event()
        self.may_copy.set()
        self.may_end.set()

    def query(self, identity, geometry, profile_id, tokens, slo_ms, timeout_s):
        future = Future()
        self.queries.append((identity, list(tokens), slo_ms, future))
        if self.at_once:
            self.answer(future)
        return future

    def answer(self, future):
        future.set_result(types.SimpleNamespace(planned_tokens=self.stored))

    def load(self, identity, pool_id, tokens, blocks, slo_ms, **options):
        self.identities.append(identity)
        return self.load_result(tokens)

    def save(self, identity, pool_id, tokens, blocks, *, on_copied, **options):
        self.saves.append((list(tokens), list(blocks)))
        self.identities.append(identity)
        if not self.may_copy.wait(LIMIT_S):
            raise AssertionError("nobody let the save go on")
        on_copied()
        self.may_end.wait(LIMIT_S)
        return self.save_result

    def report_prefill(self, identity, timings):
        self.prefills += timings

    def close(self):
        pass


class Manager:
    """Blocks of requests, from a block pool of vLLM's own."""

    def __init__(self, num_blocks=64):
        self.block_pool = BlockPool(num_blocks, True, BLOCK)
        self.blocks = {}
        self.evicted = set()

    def allocate(self, request, tokens):
        have = self.blocks.setdefault(request.request_id, [])
        have += self.block_pool.get_new_blocks(-(-tokens // BLOCK) - len(have))
        return self.get_blocks(request.request_id)

    def free(self, request):
        self.block_pool.free_blocks(reversed(self.blocks.pop(request.request_id)))

    def get_blocks(self, request_id):
        blocks = self.blocks.get(request_id, [])
        return types.SimpleNamespace(
            blocks=[blocks], get_block_ids=lambda: [[block.block_id for block in blocks]])

    def evict_blocks(self, ids):
        self.evicted |= ids


class Request(types.SimpleNamespace):
    def __init__(self, name, num_tokens, **fields):
        super().__init__(
            request_id=name, all_token_ids=list(range(num_tokens)), num_prompt_tokens=num_tokens,
            num_computed_tokens=0, num_in_flight_tokens=0, arrival_time=time.time(),
            kv_transfer_params=None, mm_features=[], prompt_embeds=None, lora_request=None,
            cache_salt=None, block_hashes=[b"%d" % i for i in range(num_tokens // BLOCK)],
            done=False, **fields)

    @property
    def num_tokens(self):
        return len(self.all_token_ids)

    @property
    def num_output_tokens(self):
        return self.num_tokens - self.num_prompt_tokens

    def is_finished(self):
        return self.done


def step_of(**new_tokens):
    return types.SimpleNamespace(num_scheduled_tokens=new_tokens)


def report_of(tokens, level=2, *, blocks=(), coarse=False, complete=True):
    return LoadReport(loaded_tokens=tokens, worst_level=level, blocks=list(blocks), coarse=coarse,
                      complete=complete, ms=1)


class SchedulerCase(unittest.TestCase):
    def start(self, node, **settings):
        self.node = node
        self.manager = Manager()
        facts = EngineFacts(Identity("m", "r", chunk_tokens=CHUNK), Geometry((), ()), BLOCK, 1,
                            True, True)
        self.side = SchedulerSide(facts, Config(chunk_tokens=CHUNK, **settings), node)
        self.side.bind(self.manager)
        self.addCleanup(self.side.close)

    def load(self, request, count, have=0):
        """Has the offer taken; the task for the workers."""
        self.side.after_allocation(request, self.manager.allocate(request, have + count), count)
        request.num_computed_tokens = have + count
        (task,) = self.side.plan_step(step_of()).loads
        return task

    def compute(self, request, tokens=None):
        """A step that computes tokens of the prompt, all that are left by default."""
        tokens = request.num_tokens - request.num_computed_tokens if tokens is None else tokens
        self.manager.allocate(request, request.num_computed_tokens + tokens)
        plan = self.side.plan_step(step_of(**{request.request_id: tokens}))
        request.num_computed_tokens += tokens
        return plan


class Loads(SchedulerCase):
    def test_offers_full_chunks_and_leaves_a_token(self):
        self.start(PlayedNode(stored=1 << 20))
        self.assertEqual(self.side.matched_tokens(Request("a", 3 * CHUNK + 5), 0),
                         (3 * CHUNK, True))
        self.assertEqual(self.side.matched_tokens(Request("b", 3 * CHUNK), 0), (2 * CHUNK, True))
        self.assertEqual(self.side.matched_tokens(Request("c", CHUNK), 0), (0, False))

    def test_pending_look_up_is_none_and_asked_once(self):
        self.start(PlayedNode(stored=2 * CHUNK, at_once=False), lookup_ms=10_000)
        request = Request("a", 3 * CHUNK)
        self.assertEqual(self.side.matched_tokens(request, 0), (None, False))
        self.assertEqual(self.side.matched_tokens(request, 0), (None, False))
        self.node.answer(self.node.queries[0][3])
        self.assertEqual(self.side.matched_tokens(request, 0), (2 * CHUNK, True))
        self.assertEqual(len(self.node.queries), 1)

    def test_look_up_ends_with_its_budget(self):
        self.start(PlayedNode(stored=2 * CHUNK, at_once=False), lookup_ms=1)
        request = Request("a", 3 * CHUNK)
        answer, deadline = self.side.matched_tokens(request, 0), time.monotonic() + LIMIT_S
        while answer == (None, False) and time.monotonic() < deadline:
            answer = self.side.matched_tokens(request, 0)
        self.assertEqual(answer, (0, False))
        self.assertTrue(self.node.queries[0][3].cancelled())
        self.assertEqual(self.side.matched_tokens(request, 0), (0, False))

    def test_failed_look_up_is_nothing(self):
        self.start(PlayedNode(at_once=False))
        request = Request("a", 3 * CHUNK)
        self.side.matched_tokens(request, 0)
        self.node.queries[0][3].set_exception(OSError("no daemon"))
        self.assertEqual(self.side.matched_tokens(request, 0), (0, False))
        self.assertIn("no daemon", self.side.finished(request)["sluice"]["reason"])

    def test_the_answer_says_why_nothing_is_loaded(self):
        self.start(PlayedNode(at_once=False), lookup_ms=1)
        late, bad = Request("a", 3 * CHUNK), Request("b", 3 * CHUNK)
        bad.kv_transfer_params = {"level": "Lossless"}
        self.side.matched_tokens(bad, 0)
        deadline = time.monotonic() + LIMIT_S
        while self.side.matched_tokens(late, 0)[0] is None and time.monotonic() < deadline:
            pass
        self.assertIn("lookup_ms", self.side.finished(late)["sluice"]["reason"])
        self.assertIn('"lossless"', self.side.finished(bad)["sluice"]["reason"])

    def test_what_the_engine_has_is_not_loaded(self):
        self.start(PlayedNode(stored=3 * CHUNK))
        request = Request("a", 3 * CHUNK + 9)
        self.assertEqual(self.side.matched_tokens(request, CHUNK + BLOCK),
                         (2 * CHUNK - BLOCK, True))
        task = self.load(request, 2 * CHUNK - BLOCK, have=CHUNK + BLOCK)
        self.assertEqual(task.skip_tokens, CHUNK + BLOCK)
        self.assertEqual((len(task.tokens), len(task.blocks), task.tail_tokens),
                         (3 * CHUNK, 3 * CHUNK // BLOCK, 9))
        self.assertEqual(self.side.matched_tokens(Request("b", 3 * CHUNK + 9), 3 * CHUNK),
                         (0, False))

    def test_synchronous(self):
        self.start(PlayedNode(stored=CHUNK), load_async=False)
        self.assertEqual(self.side.matched_tokens(Request("a", 2 * CHUNK), 0), (CHUNK, False))

    def test_slo_runs_from_arrival(self):
        self.start(PlayedNode(stored=CHUNK))
        request = Request("a", 2 * CHUNK)
        request.kv_transfer_params = {"slo_ms": 5000}
        request.arrival_time -= 3
        self.side.matched_tokens(request, 0)
        self.assertTrue(1000 < self.node.queries[0][2] <= 2000, self.node.queries[0][2])
        late = Request("b", 2 * CHUNK)
        late.arrival_time -= 3600
        self.assertEqual(self.side.matched_tokens(late, 0), (0, False))
        self.assertEqual(len(self.node.queries), 1)

    def test_nothing_is_offered_behind_the_slo(self):
        self.start(PlayedNode(stored=CHUNK))
        request = Request("a", 2 * CHUNK)
        self.assertEqual(self.side.matched_tokens(request, 0), (CHUNK, True))
        request.arrival_time -= 3600  # as if it came back from a preemption
        self.assertEqual(self.side.matched_tokens(request, 0), (0, False))

    def test_failed_load_is_not_offered_again(self):
        self.start(PlayedNode(stored=2 * CHUNK))
        request = Request("a", 2 * CHUNK + 1)
        self.side.matched_tokens(request, 0)
        self.load(request, 2 * CHUNK)
        self.side.on_report(WorkerReport(loads={"a": report_of(0, None, complete=False)}))
        request.num_computed_tokens = 0
        self.assertEqual(self.side.matched_tokens(request, 0), (0, False))

    def test_bad_chunk_is_not_offered_to_others(self):
        self.start(PlayedNode(stored=3 * CHUNK))
        first, second, other = (Request(name, 3 * CHUNK + 1) for name in "abc")
        other.block_hashes = [b"other%d" % i for i in range(len(other.block_hashes))]
        self.side.matched_tokens(first, 0)
        self.load(first, 3 * CHUNK)
        report = report_of(CHUNK, complete=False)
        report.reasons = {"damaged": 1, "after_cut": 1}
        self.side.on_report(WorkerReport(loads={"a": report}))
        self.assertEqual(self.side.matched_tokens(second, 0), (CHUNK, True))
        self.assertEqual(self.side.matched_tokens(other, 0), (3 * CHUNK, True))

    def test_late_chunk_is_offered_to_others(self):
        self.start(PlayedNode(stored=3 * CHUNK))
        first, second = (Request(name, 3 * CHUNK + 1) for name in "ab")
        self.side.matched_tokens(first, 0)
        self.load(first, 3 * CHUNK)
        report = report_of(CHUNK, complete=False)
        report.reasons = {"late": 2}
        self.side.on_report(WorkerReport(loads={"a": report}))
        self.assertEqual(self.side.matched_tokens(second, 0), (3 * CHUNK, True))

    def test_failed_synchronous_load_leaves_no_block_in_the_prefix_cache(self):
        self.start(PlayedNode(stored=2 * CHUNK), load_async=False)
        request = Request("a", 2 * CHUNK + 1)
        self.side.matched_tokens(request, 0)
        task = self.load(request, 2 * CHUNK)
        self.side.on_report(WorkerReport(loads={"a": report_of(CHUNK, complete=False)}))
        self.assertEqual(self.manager.evicted, set(task.blocks[CHUNK // BLOCK:]))

    def test_preempted_request_is_offered_again_but_not_for_ever(self):
        self.start(PlayedNode(stored=2 * CHUNK))
        request = Request("a", 2 * CHUNK + 1)
        offers = 0
        while self.side.matched_tokens(request, 0) == (2 * CHUNK, True):
            offers += 1
            self.load(request, 2 * CHUNK)
            self.side.on_report(WorkerReport(loads={"a": report_of(2 * CHUNK)}))
            self.manager.free(request)
            request.num_computed_tokens = 0
        self.assertEqual(offers, 3)

    def test_identity_has_the_salt(self):
        self.start(PlayedNode(stored=CHUNK))
        salted = Request("a", 2 * CHUNK)
        salted.cache_salt = "s"
        self.side.matched_tokens(salted, 0)
        self.side.matched_tokens(Request("b", 2 * CHUNK), 0)
        self.assertEqual([query[0].salt for query in self.node.queries], ["s", ""])

    def test_prompts_that_tokens_do_not_name_are_computed(self):
        self.start(PlayedNode(stored=CHUNK))
        image = Request("a", 2 * CHUNK)
        image.mm_features = ["image"]
        bad = Request("b", 2 * CHUNK)
        bad.kv_transfer_params = {"slo_ms": -1}
        odd = Request("d", 2 * CHUNK)
        odd.kv_transfer_params = "slo_ms"
        unsure = Request("e", 2 * CHUNK)
        unsure.kv_transfer_params = {"load": "false"}
        replaced = Request("c", 2 * CHUNK)
        replaced.lora_request = types.SimpleNamespace(lora_name="l", lora_int_id=1, lora_path="/l",
                                                      load_inplace=True)
        for request in (image, bad, replaced, odd, unsure):
            self.assertEqual(self.side.matched_tokens(request, 0), (0, False))
        self.assertEqual(self.node.queries, [])


class SavesOfRequests(SchedulerCase):
    def saved(self, plan):
        return [(task.tokens, task.blocks) for task in plan.saves]

    def test_full_chunks_of_the_prompt_once_it_is_computed(self):
        self.start(PlayedNode())
        request = Request("a", 3 * CHUNK - 1)
        self.side.matched_tokens(request, 0)
        self.assertEqual(self.compute(request, CHUNK).saves, [])
        ((tokens, blocks),) = self.saved(self.compute(request))
        self.assertEqual(tokens, list(range(2 * CHUNK)))
        self.assertEqual(blocks, self.manager.get_blocks("a").get_block_ids()[0][:4])
        self.assertEqual(self.compute(request, 0).saves, [])

    def test_generated_chunks_at_the_end(self):
        self.start(PlayedNode())
        request = Request("a", CHUNK)
        self.side.matched_tokens(request, 0)
        self.compute(request)
        request.all_token_ids += range(CHUNK + 1)
        request.num_computed_tokens = 2 * CHUNK
        self.manager.allocate(request, 2 * CHUNK)
        self.side.finished(request)
        ((tokens, _),) = self.saved(self.side.plan_step(step_of()))
        self.assertEqual(len(tokens), 2 * CHUNK)

    def test_the_last_token_has_no_kv_yet(self):
        self.start(PlayedNode())
        request = Request("a", CHUNK - 1)
        self.side.matched_tokens(request, 0)
        self.compute(request)
        request.all_token_ids.append(7)
        request.num_computed_tokens = CHUNK  # as if a step were on its way
        self.side.finished(request)
        self.assertEqual(self.side.plan_step(step_of()).saves, [])

    def test_blocks_stay_until_all_workers_have_read_them(self):
        self.start(PlayedNode())
        pool = self.manager.block_pool
        free = pool.get_num_free_blocks()
        request = Request("a", CHUNK)
        self.side.matched_tokens(request, 0)
        (task,) = self.compute(request).saves
        self.manager.free(request)  # ended, aborted or preempted
        self.assertEqual(pool.get_num_free_blocks(), free - CHUNK // BLOCK)
        self.side.on_report(WorkerReport(released={task.job: 1}))
        self.assertEqual(pool.get_num_free_blocks(), free)

    def test_saves_hold_a_share_of_the_blocks_at_most(self):
        self.start(PlayedNode(), save_blocks_share=0.1)  # 6 of 64
        for name, saved in (("a", 1), ("b", 1), ("c", 1), ("d", 0)):
            request = Request(name, CHUNK)
            request.block_hashes = []
            self.side.matched_tokens(request, 0)
            self.assertEqual(len(self.compute(request).saves), saved, name)

    def test_what_is_stored_is_not_stored_again(self):
        self.start(PlayedNode())
        jobs = []
        for name in "abc":
            request = Request(name, CHUNK)
            self.side.matched_tokens(request, 0)
            jobs += [task.job for task in self.compute(request).saves]
            if name == "b":  # the save of "a" turns out to have failed
                self.side.on_report(WorkerReport(stored={jobs[0]: False}))
        self.assertEqual(len(jobs), 2)

    def test_what_was_loaded_is_not_stored(self):
        self.start(PlayedNode(stored=2 * CHUNK))
        request = Request("a", 2 * CHUNK + 5)
        self.side.matched_tokens(request, 0)
        self.load(request, 2 * CHUNK)
        self.side.on_report(WorkerReport(loads={"a": report_of(2 * CHUNK)}))
        self.assertEqual(self.compute(request).saves, [])

    def test_aborted_while_loading_stores_nothing(self):
        self.start(PlayedNode(stored=2 * CHUNK))
        request = Request("a", 4 * CHUNK)
        self.side.matched_tokens(request, 0)
        self.load(request, 2 * CHUNK)  # the engine counts these tokens as computed already
        self.side.finished(request)
        self.assertEqual(self.side.plan_step(step_of()).saves, [])

    def test_nothing_is_stored_that_was_computed_from_coarse_blocks(self):
        self.start(PlayedNode(stored=CHUNK))
        first = Request("a", 3 * CHUNK)
        self.side.matched_tokens(first, 0)
        blocks = self.load(first, CHUNK).blocks
        self.side.on_report(WorkerReport(
            loads={"a": report_of(CHUNK, 0, blocks=blocks, coarse=True)}))
        self.assertEqual(self.compute(first).saves, [])
        # Another request finds the same blocks in the engine's own cache.
        second = Request("b", 3 * CHUNK)
        self.manager.blocks["b"] = list(self.manager.blocks["a"])
        self.manager.block_pool.touch(self.manager.blocks["b"])
        second.num_computed_tokens = CHUNK
        self.side.matched_tokens(second, CHUNK)
        self.assertEqual(self.compute(second).saves, [])
        # Once the blocks are filled anew, all is well again.
        second_blocks = self.manager.blocks["b"]
        self.manager.free(first)
        self.manager.free(second)
        third = Request("c", 3 * CHUNK)
        self.node.stored = 0
        self.side.matched_tokens(third, 0)
        coarse = {block.block_id for block in second_blocks}
        everything = self.manager.block_pool.get_new_blocks(63)
        self.manager.blocks["c"] = sorted(everything, key=lambda b: b.block_id not in coarse)
        (task,) = self.compute(third).saves
        self.assertTrue(coarse & set(task.blocks))

    def test_timed_are_steps_of_one_prompt(self):
        self.start(PlayedNode())
        request, other = Request("a", 4 * CHUNK), Request("b", 4 * CHUNK)
        for each in (request, other):
            self.side.matched_tokens(each, 0)
        self.assertEqual(self.compute(request, 2 * CHUNK).prefill.new_tokens, 2 * CHUNK)
        work = self.compute(request, CHUNK).prefill
        self.assertEqual((work.new_tokens, work.context_tokens), (CHUNK, 2 * CHUNK))
        self.assertIsNone(self.compute(request, 1).prefill)
        self.assertIsNone(self.side.plan_step(step_of(a=4, b=64)).prefill)


class PlayedPool:
    def __init__(self):
        self.current = (7, 0)
        self.fences = 0

    def fence(self):
        self.fences += 1
        self.current = (None, self.current[1] + 1)

    def close(self):
        pass


class Worker(SchedulerCase):
    def begin(self, result, load_async=True):
        node = PlayedNode(stored=3 * CHUNK)
        node.load_result = lambda tokens: result
        self.start(node, load_async=load_async)
        self.pool = PlayedPool()
        self.worker = WorkerSide(node, self.pool, DirectBlocks(),
                                 Config(chunk_tokens=CHUNK, load_async=load_async), BLOCK,
                                 revision="r/tp1of2")
        self.addCleanup(self.worker.close)

    def run_load(self, have=0):
        request = Request("a", 3 * CHUNK + 1)
        self.side.matched_tokens(request, have)
        task = self.load(request, 3 * CHUNK - have, have)
        self.worker.start_loads(StepPlan(loads=[task]))
        deadline = time.monotonic() + LIMIT_S
        while not (ended := self.worker.ended_loads()) and time.monotonic() < deadline:
            pass
        self.assertEqual(ended, {"a"})
        return task, self.worker.bad_blocks(), self.worker.report().loads["a"]

    def test_all_loaded(self):
        self.begin(LoadResult(levels=[2, LOSSLESS, 2], num_levels=3))
        _, bad, report = self.run_load()
        self.assertEqual(bad, set())
        self.assertEqual((report.loaded_tokens, report.worst_level, report.coarse, report.complete),
                         (3 * CHUNK, 2, False, True))

    def test_a_worker_loads_and_stores_its_own_part(self):
        self.begin(LoadResult(levels=[2, 2, 2], num_levels=3))
        task, _, _ = self.run_load()
        self.worker.end_step(StepPlan(saves=[SaveTask(1, "a", task.identity, task.tokens,
                                                      task.blocks)]))
        self.wait_for_report()
        self.assertEqual(task.identity.revision, "r")
        self.assertEqual(self.node.identities, [replace(task.identity, revision="r/tp1of2")] * 2)

    def test_a_gap_spoils_all_behind_it(self):
        self.begin(LoadResult(levels=[1, None, 2], num_levels=3, reasons={"late": 1}))
        task, bad, report = self.run_load()
        self.assertEqual(bad, set(task.blocks[CHUNK // BLOCK:]))
        self.assertEqual((report.loaded_tokens, report.coarse, report.complete),
                         (CHUNK, True, False))

    def test_loads_behind_what_the_engine_has(self):
        self.begin(LoadResult(levels=[2, None], num_levels=3))
        task, bad, report = self.run_load(have=CHUNK + BLOCK)
        self.assertEqual(report.loaded_tokens, 2 * CHUNK)
        self.assertEqual(bad, set(task.blocks[2 * CHUNK // BLOCK:]))
        self.begin(LoadResult(levels=[None, None], num_levels=3))
        task, bad, report = self.run_load(have=CHUNK + BLOCK)
        self.assertEqual(report.loaded_tokens, CHUNK + BLOCK)
        self.assertEqual(bad, set(task.blocks[(CHUNK + BLOCK) // BLOCK:]))

    def test_a_daemon_that_is_away_fills_nothing(self):
        self.begin(LoadResult(levels=[2, 2, 2]))
        self.pool.current = (None, 0)
        task, bad, report = self.run_load()
        self.assertEqual((bad, report.reasons), (set(task.blocks), {"node_unavailable": 1}))

    def test_a_silent_daemon_is_cut_off_before_the_engine_goes_on(self):
        self.begin(LoadResult(levels=[2, 2, None], confirmed=False))
        task, bad, report = self.run_load()
        self.assertEqual(self.pool.fences, 1)
        self.assertEqual((bad, report.loaded_tokens), (set(task.blocks), 0))

    def test_what_came_after_a_cut_does_not_count(self):
        self.begin(LoadResult(levels=[2, 2, 2], num_levels=3))
        whole = self.node.load_result

        def cut_meanwhile(tokens):
            self.pool.fence()
            return whole(tokens)
        self.node.load_result = cut_meanwhile
        task, bad, _ = self.run_load()
        self.assertEqual(bad, set(task.blocks))
        self.assertEqual(self.pool.fences, 1)

    def test_a_bug_ends_the_load(self):
        self.begin(LoadResult())

        def broken(tokens):
            raise KeyError("bug")
        self.node.load_result = broken
        with self.assertLogs("sluice_kv", "ERROR"):
            task, bad, report = self.run_load()
        self.assertEqual((bad, report.reasons), (set(task.blocks), {"connector_error": 1}))
        self.assertEqual(self.pool.fences, 0)

    def test_no_save_of_a_step_whose_load_failed(self):
        self.begin(LoadResult(levels=[2, None, None]), load_async=False)
        request = Request("a", 3 * CHUNK + 1)
        self.side.matched_tokens(request, 0)
        task = self.load(request, 3 * CHUNK)
        plan = self.compute(request)
        request.all_token_ids += range(CHUNK)
        request.num_computed_tokens += CHUNK
        self.manager.allocate(request, 4 * CHUNK)
        self.side.on_report(WorkerReport(loads={"a": report_of(3 * CHUNK)}))
        self.side.finished(request)
        plan = self.side.plan_step(step_of())
        plan.loads = [task]
        self.assertEqual(len(plan.saves), 1)
        self.worker.begin_step()
        self.worker.start_loads(plan)
        self.worker.end_step(plan)
        report = self.worker.report()
        self.assertEqual(self.node.saves, [])
        self.assertEqual(report.released, {plan.saves[0].job: 1})
        self.assertEqual(report.stored, {plan.saves[0].job: False})

    def test_no_save_of_a_step_that_loaded_coarsely(self):
        self.begin(LoadResult(levels=[0, 0, 0], num_levels=3), load_async=False)
        request = Request("a", 4 * CHUNK)
        self.side.matched_tokens(request, 0)
        self.side.after_allocation(request, self.manager.allocate(request, 3 * CHUNK), 3 * CHUNK)
        request.num_computed_tokens = 3 * CHUNK
        other = Request("b", 3 * CHUNK)
        self.side.matched_tokens(other, 0)
        self.manager.allocate(request, 4 * CHUNK)
        self.manager.allocate(other, 3 * CHUNK)
        plan = self.side.plan_step(step_of(a=CHUNK, b=3 * CHUNK))
        self.assertEqual([task.request_id for task in plan.saves], ["a", "b"])
        self.worker.begin_step()
        self.worker.start_loads(plan)
        self.worker.end_step(plan)
        self.wait_for(lambda: len(self.node.saves) == 1, "the other's save has begun")
        self.assertEqual(self.node.saves[0][1], plan.saves[1].blocks)
        # Its blocks are known to be coarse though it has ended within the step.
        self.side.finished(request)
        self.worker.ended_loads()
        self.side.on_report(self.worker.report())
        third = Request("c", 4 * CHUNK)
        self.manager.blocks["c"] = list(self.manager.blocks["a"])
        third.num_computed_tokens = 3 * CHUNK
        self.side.matched_tokens(third, 3 * CHUNK)
        self.assertEqual(self.compute(third).saves, [])

    def test_no_save_of_a_step_that_was_scheduled_before_a_load_was_known_to_fail(self):
        self.begin(LoadResult(levels=[2, None, None]), load_async=False)
        request = Request("a", 3 * CHUNK + 1)
        self.side.matched_tokens(request, 0)
        load = self.load(request, 3 * CHUNK)
        save = SaveTask(1, "b", load.identity, load.tokens, load.blocks)
        for plan, saved in ((StepPlan(loads=[load]), 0), (StepPlan(saves=[save]), 0),
                            (StepPlan(saves=[replace(save, job=2)]), 1)):
            self.worker.begin_step()
            self.worker.start_loads(plan)
            self.worker.end_step(plan)
            self.worker.ended_loads()
            self.worker.bad_blocks()
            self.wait_for(lambda: not plan.saves or self.worker.report(), "a report")
            self.assertEqual(len(self.node.saves), saved)

    def test_save_releases_its_blocks_when_they_are_copied(self):
        self.begin(LoadResult())
        self.node.may_copy.clear()
        self.node.may_end.clear()
        request = Request("a", CHUNK)
        self.side.matched_tokens(request, 0)
        plan = self.compute(request)
        self.worker.begin_step()
        self.worker.end_step(plan)
        self.assertIsNone(self.worker.report())
        self.node.may_copy.set()
        report = self.wait_for_report()
        self.assertEqual((report.released, report.stored), ({plan.saves[0].job: 1}, {}))
        self.node.may_end.set()
        self.assertEqual(self.wait_for_report().stored, {plan.saves[0].job: True})
        self.assertEqual(len(self.node.prefills), 1)

    def wait_for_report(self):
        return self.wait_for(self.worker.report, "a report")

    def wait_for(self, condition, what):
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            if value := condition():
                return value
        raise AssertionError(f"did not happen: {what}")


class Slots(unittest.TestCase):
    """Blocks of tensors that the daemon cannot reach; the tensors are of the CPU here, with the
    strides of FlashAttention's NHD and HND."""

    LAYERS, BLOCKS, HEADS, DIM, NUM_SLOTS = 3, 8, 2, 4, 5

    def start(self, order):
        shape = {"B": self.BLOCKS, "H": self.HEADS, "N": BLOCK, "C": 2 * self.DIM}
        self.layers = [torch.randn([shape[axis] for axis in order]).permute(
            [order.index(axis) for axis in "BHNC"]) for _ in range(self.LAYERS)]
        self.slots = [torch.zeros(self.NUM_SLOTS, self.HEADS, BLOCK, 2 * self.DIM)
                      for _ in range(self.LAYERS)]
        self.staged = StagedBlocks(self.layers, self.slots)

    def test_blocks_are_read_through_slots(self):
        for order in ("BNHC", "BHNC"):
            self.start(order)
            lent = self.staged.lend_to_read([6, 1, 3], self.staged.mark())
            for layer, slots in zip(self.layers, self.slots):
                self.assertTrue(torch.equal(slots[lent.ids], layer[[6, 1, 3]]))

    def test_only_what_is_delivered_is_written(self):
        for order in ("BNHC", "BHNC"):
            self.start(order)
            before = [layer.clone() for layer in self.layers]
            lent = self.staged.lend_to_fill([2, 7, 4])
            for slots in self.slots:
                slots[lent.ids] = torch.randn(3, self.HEADS, BLOCK, 2 * self.DIM)
            lent.deliver(2)
            for layer, slots, old in zip(self.layers, self.slots, before):
                self.assertTrue(torch.equal(layer[[2, 7]], slots[lent.ids[:2]]))
                kept = [0, 1, 3, 4, 5, 6]
                self.assertTrue(torch.equal(layer[kept], old[kept]))

    def test_slots_are_lent_once_and_come_back(self):
        self.start("BNHC")
        first = self.staged.lend_to_fill([1, 2, 3])
        self.assertIsNone(self.staged.lend_to_fill([4, 5, 6]))
        second = self.staged.lend_to_read([4, 5], None)
        self.assertEqual(len(set(first.ids + second.ids)), 5)
        first.give_back()
        first.give_back()
        self.assertEqual(len(self.staged.lend_to_fill([1, 2, 3]).ids), 3)
        self.assertIsNone(self.staged.lend_to_fill([1]))


class Reports(unittest.TestCase):
    def test_the_worst_worker_counts(self):
        one = WorkerReport(loads={"a": report_of(2 * CHUNK, coarse=True)}, released={1: 1},
                           stored={1: True})
        two = WorkerReport(loads={"a": report_of(CHUNK, complete=False)}, released={1: 1, 2: 1},
                           stored={1: False})
        for merged in (one.aggregate(two), two.aggregate(one)):
            self.assertEqual(merged.loads["a"].loaded_tokens, CHUNK)
            self.assertTrue(merged.loads["a"].coarse)
            self.assertEqual((merged.released, merged.stored), ({1: 2, 2: 1}, {1: False}))


class Settings(unittest.TestCase):
    def test_unknown_and_impossible_ones_are_named(self):
        for extra, named in (({"slo": 3}, "slo"), ({"slo_ms": 0}, "slo_ms"),
                             ({"slo_ms": "1"}, "slo_ms"),
                             ({"level": "best"}, "level"),
                             ({"level": 8}, "level"), ({"level": True}, "level"),
                             ({"chunk_tokens": 8}, "chunk_tokens"), ({"save": 1}, "save"),
                             ({"profile": "no/such"}, "profile"),
                             ({"profile": __file__}, "profile"), ({"socket": 3}, "socket")):
            with self.subTest(extra=extra), self.assertRaisesRegex(ConfigError, named):
                Config.parse(extra)

    def test_values(self):
        self.assertEqual(Config.parse({"level": "lossless"}).level, LOSSLESS)
        self.assertEqual(Config.parse({"profile": "ab" * 32}).profile_id, b"\xab" * 32)
        settings = RequestSettings.of({"slo_ms": 7, "level": 1, "other": 1}, Config())
        self.assertEqual((settings.slo_ms, settings.level, settings.load), (7, 1, True))
        self.assertFalse(RequestSettings.of({"load": False}, Config()).load)


if __name__ == "__main__":
    unittest.main()
