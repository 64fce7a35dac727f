#!/usr/bin/env python3
"""Shared memory that is cut off, with little room, and beside other engines that start."""
import errno
import fcntl
import mmap
import os
import unittest
from pathlib import Path
from unittest import mock

from sluice_kv import memory
from sluice_kv.memory import FOLDER, PREFIX, SharedMemory

PART = 1 << 20


def file_of(shared):
    return FOLDER / shared.name[1:]


def used_bytes():
    """Of all engines' memory that this process has open, deleted files too."""
    files = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            if PREFIX in os.readlink(f"/proc/self/fd/{fd}"):
                status = os.stat(f"/proc/self/fd/{fd}")
                files[status.st_ino] = status.st_blocks * 512
        except OSError:
            continue
    return sum(files.values())


class Memory(unittest.TestCase):
    def setUp(self):
        self.enterContext(mock.patch.object(memory, "_FENCE_BYTES", PART))

    def make(self, num_bytes=5 * PART // 2):
        shared = SharedMemory(num_bytes)
        self.addCleanup(shared.close)
        return shared

    def test_fence_keeps_the_contents_and_changes_the_file(self):
        shared = self.make()
        shared.tensor[:] = 7
        with open(file_of(shared), "r+b") as old:
            daemon = mmap.mmap(old.fileno(), shared.num_bytes)
            address, name = shared.address, shared.name
            shared.fence()
            self.assertNotEqual(shared.name, name)
            self.assertFalse((FOLDER / name[1:]).exists())
            daemon[:] = b"\1" * shared.num_bytes
        self.assertEqual(shared.address, address)
        self.assertTrue((shared.tensor == 7).all())
        shared.tensor[5] = 8
        self.assertEqual(file_of(shared).read_bytes()[4:7], b"\7\x08\7")

    def test_daemon_that_is_cut_off_can_tell(self):
        # Its save may go on later: what it reads then, it must not take for the engine's.
        shared = self.make()
        with open(file_of(shared), "rb") as old:
            self.assertEqual(os.fstat(old.fileno()).st_size, shared.pool_bytes)
            seen = []
            punch = memory._libc.fallocate

            def watch(*arguments):
                seen.append(os.fstat(old.fileno()).st_size)
                return punch(*arguments)
            with mock.patch.object(memory._libc, "fallocate", watch):
                shared.fence()
            self.assertTrue(seen)
            self.assertLess(max(seen), shared.pool_bytes)
        self.assertEqual(file_of(shared).stat().st_size, shared.pool_bytes)

    def test_fences_need_room_for_one_part_and_leave_none_behind(self):
        shared = self.make()
        one = used_bytes()
        most = []
        allocate = os.posix_fallocate

        def watch(*arguments):
            allocate(*arguments)
            most.append(used_bytes())
        with mock.patch("os.posix_fallocate", watch):
            for _ in range(3):
                shared.tensor[:] = 9
                shared.fence()
                self.assertEqual(used_bytes(), one)
        self.assertLessEqual(max(most), one + PART)

    def test_file_that_another_engine_took_for_a_leftover_is_made_anew(self):
        lock, taken = fcntl.flock, []

        def take_away(fd, how):
            if how == fcntl.LOCK_SH and not taken:
                taken.append(os.readlink(f"/proc/self/fd/{fd}"))
                Path(taken[0]).unlink()
            lock(fd, how)
        with mock.patch("fcntl.flock", take_away):
            shared = self.make()
        self.assertTrue(file_of(shared).exists())
        self.assertNotIn(str(file_of(shared)), taken)

    def test_leftovers_are_taken_away_and_living_engines_not(self):
        shared = self.make()
        left = FOLDER / f"{PREFIX}0-left"
        left.write_bytes(b"")
        memory.remove_leftovers()
        self.assertEqual((left.exists(), file_of(shared).exists()), (False, True))

    def test_no_room_is_told_with_advice(self):
        full = OSError(errno.ENOSPC, "no space")
        before = set(FOLDER.glob(PREFIX + "*"))
        with mock.patch("os.posix_fallocate", side_effect=full), \
                self.assertRaisesRegex(OSError, "--shm-size"):
            SharedMemory(PART)
        self.assertEqual(set(FOLDER.glob(PREFIX + "*")) - before, set())


if __name__ == "__main__":
    unittest.main()
