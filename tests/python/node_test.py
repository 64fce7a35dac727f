#!/usr/bin/env python3
"""Calls of the node daemon as their streams end: well, not at all, in a fault of this package."""
import threading
import unittest

import grpc

from sluice_kv import node

LIMIT_S = 20


class PlayedCall:
    """A stream of `events`; with `endless` it stays open until it is cancelled."""

    def __init__(self, events, endless=False):
        self.events, self.endless = events, endless
        self.cancelled = threading.Event()

    def __iter__(self):
        yield from self.events
        if self.endless and self.cancelled.wait(LIMIT_S):
            raise grpc.RpcError("cancelled")

    def cancel(self):
        self.cancelled.set()


class Streams(unittest.TestCase):
    def test_fault_in_taking_a_message_is_raised_when_the_call_is_over(self):
        taken = []

        def take(event):
            taken.append(event)
            if event == 1:
                raise KeyError("bug")
        with self.assertRaisesRegex(KeyError, "bug"):
            node._follow(PlayedCall([1, 2, 3]), take, LIMIT_S)
        self.assertEqual(taken, [1, 2, 3])

    def test_fault_in_a_call_that_does_not_end_leaves_it_unconfirmed(self):
        def take(event):
            raise KeyError("bug")
        with self.assertLogs("sluice_kv", "ERROR"):
            error = node._follow(PlayedCall([1], endless=True), take, 0.01)
        self.assertIs(error, node._STILL_RUNNING)


if __name__ == "__main__":
    unittest.main()
