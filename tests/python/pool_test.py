#!/usr/bin/env python3
"""An engine's memory that is kept registered with a daemon that freezes, restarts, forgets."""
import threading
import types
import unittest
from concurrent.futures import Future

import grpc

from sluice_kv.node import PoolSpec
from sluice_kv.pool import RegisteredPool

LIMIT_S = 20


class PlayedHold:
    def __init__(self, answers):
        self.answers = answers
        self.ended = threading.Event()

    def __iter__(self):
        return self

    def __next__(self):
        if self.answers:
            self.answers = False
            return "held"
        if not self.ended.wait(LIMIT_S):
            raise AssertionError("nobody ended the call")
        raise grpc.RpcError("ended")

    def cancel(self):
        self.ended.set()


class PlayedClient:
    """A daemon that answers RegisterPool with `answers`, futures; it knows the pools in `known`."""
    socket = "played"

    def __init__(self, answers, known):
        self.answers, self.known, self.asked, self.holds = answers, known, [], []

    def register_pool(self, spec):
        self.asked.append(spec.shm_name)
        return self.answers[len(self.asked) - 1]

    def hold_pool(self, pool_id):
        hold = PlayedHold(pool_id in self.known)
        if pool_id not in self.known:
            hold.cancel()
        self.holds.append(hold)
        return hold


def answer(pool_id):
    future = Future()
    future.set_result(types.SimpleNamespace(pool_id=pool_id))
    return future


class Pool(unittest.TestCase):
    def start(self, client):
        pool = RegisteredPool(client, types.SimpleNamespace(name="/memory", fence=lambda: None),
                              PoolSpec("", 0, 0, 0, None, ()))
        self.addCleanup(pool.close)
        return pool

    def test_daemon_that_restarts_between_the_calls_is_told_again(self):
        pool = self.start(PlayedClient([answer(1), answer(2)], known={2}))
        with self.assertLogs("sluice_kv"):
            self.assertTrue(pool.wait(LIMIT_S))
        self.assertEqual(pool.current, (2, 0))

    def test_frozen_daemon_is_asked_once_and_left_at_the_end(self):
        # A call that is given up reaches the daemon all the same: it would keep a pool of nobody.
        unanswered = Future()
        client = PlayedClient([unanswered], known=set())
        pool = self.start(client)
        pool.close()
        self.assertTrue(unanswered.cancelled())
        self.assertLessEqual(len(client.asked), 1)

    def test_registration_of_memory_that_was_cut_off_is_given_back(self):
        first = Future()
        client = PlayedClient([first, answer(2)], known={1, 2})
        pool = self.start(client)
        pool.fence()
        first.set_result(types.SimpleNamespace(pool_id=1))
        self.assertTrue(pool.wait(LIMIT_S))
        self.assertIn(pool.current, [(2, 1), (1, 1)])
        self.assertTrue(pool.current[0] == 1 or client.holds[0].ended.is_set())


if __name__ == "__main__":
    unittest.main()
