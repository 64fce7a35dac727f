"""POSIX shared memory that an engine's tensors live in and the node daemon maps.

`SharedMemory` is used by one thread at a time. Its file stays in /dev/shm for as long as the engine
runs, so that a daemon which restarts can map it again; what engines that were killed have left is
taken away by the next one of the same user."""
from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import secrets
from pathlib import Path

import torch

FOLDER = Path("/dev/shm")
PREFIX = "sluice-engine-py-"
_MODE = 0o660  # the daemon opens it by the group of its socket
_PAGE = mmap.PAGESIZE
_FENCE_BYTES = 64 << 20  # that are moved at a time; a multiple of the page
_MAP_SHARED, _MAP_FIXED, _PROT = 0x01, 0x10, mmap.PROT_READ | mmap.PROT_WRITE
_PUNCH_HOLE = 0x03  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_long]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


def _checked(result: int, expected: int) -> None:
    if result != expected:
        raise OSError(ctypes.get_errno(), "cannot move the KV cache to another file")


class SharedMemory:
    """`num_bytes` of zeros in a file of /dev/shm, mapped."""

    def __init__(self, num_bytes: int, group: int | None = None) -> None:
        """`group`: id of the group that the daemon is in. OSError with advice without room."""
        remove_leftovers()
        self.num_bytes = num_bytes
        self._group = group
        self._fd, self.name = self._make_file()
        self._allocate(self._fd, self.name, 0, self.pool_bytes)
        self._map = mmap.mmap(self._fd, num_bytes)
        self.tensor = torch.frombuffer(self._map, dtype=torch.int8)

    @property
    def pool_bytes(self) -> int:
        """Of the pool as the daemon knows it: it gives up one that is shorter than that. The last
        page holds nothing, and goes first when the daemon is cut off."""
        return (self.num_bytes + _PAGE - 1) // _PAGE * _PAGE + _PAGE

    @property
    def address(self) -> int:
        return self.tensor.data_ptr()

    def contains(self, tensor: torch.Tensor) -> bool:
        """Does the tensor's storage begin in this memory?"""
        begin = tensor.untyped_storage().data_ptr()
        return self.address <= begin < self.address + self.num_bytes

    def fence(self) -> None:
        """Moves the contents to a new file, under the same addresses: tensors do not notice, and a
        daemon that still has the old file mapped can neither harm nor see them any more. Nobody may
        write to the memory meanwhile, but for that daemon. It goes by parts, each of which leaves
        the old file before it needs room in the new one."""
        fd, name = self._make_file()
        os.ftruncate(self._fd, self.pool_bytes - _PAGE)  # now the daemon takes nothing more of it
        for offset in range(0, self.num_bytes, _FENCE_BYTES):
            length = min(_FENCE_BYTES, self.num_bytes - offset)
            part = ctypes.string_at(self.address + offset, length)
            _checked(_libc.fallocate(self._fd, _PUNCH_HOLE, offset, length), 0)
            self._allocate(fd, name, offset, length)
            os.pwrite(fd, part, offset)
            address = self.address + offset
            _checked(_libc.mmap(address, length, _PROT, _MAP_SHARED | _MAP_FIXED, fd, offset),
                     address)
        self._allocate(fd, name, self.num_bytes, self.pool_bytes - self.num_bytes)
        self._remove_file()
        self._fd, self.name = fd, name

    def close(self) -> None:
        """Takes the file away. The tensors stay usable until nobody refers to them."""
        self._remove_file()

    def _make_file(self) -> tuple[int, str]:
        """An empty one of the pool's size."""
        while True:
            name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
            fd = os.open(FOLDER / name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _MODE)
            fcntl.flock(fd, fcntl.LOCK_SH)  # says that the engine lives
            if os.fstat(fd).st_nlink > 0:
                break
            os.close(fd)  # before the lock an engine that starts took it for a leftover
        try:
            os.fchmod(fd, _MODE)
            if self._group is not None and self._group != os.fstat(fd).st_gid:
                os.fchown(fd, -1, self._group)
            os.ftruncate(fd, self.pool_bytes)
        except OSError as error:
            os.close(fd)
            (FOLDER / name).unlink(missing_ok=True)
            if error.errno == errno.EPERM:
                raise OSError(errno.EPERM, f"cannot give {FOLDER / name} to the group "
                              f"{self._group} of the node daemon: run the engine as a member of it"
                              ) from error
            raise
        return fd, "/" + name

    def _allocate(self, fd: int, name: str, offset: int, length: int) -> None:
        """A write to a page that /dev/shm cannot give would end the process."""
        try:
            os.posix_fallocate(fd, offset, length)
        except OSError as error:
            os.close(fd)
            (FOLDER / name[1:]).unlink(missing_ok=True)
            if error.errno == errno.ENOSPC:
                raise OSError(errno.ENOSPC, f"no room for a KV cache of {self.num_bytes >> 20} MiB "
                              f"in {FOLDER}: make it larger (containers: --shm-size or --ipc=host)"
                              ", or the KV cache smaller") from error
            raise

    def _remove_file(self) -> None:
        (FOLDER / self.name[1:]).unlink(missing_ok=True)
        os.close(self._fd)


def remove_leftovers() -> None:
    """Takes away files of engines that are gone: nobody has them locked."""
    for path in FOLDER.glob(PREFIX + "*"):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # somebody else's, or gone
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except OSError:
            pass  # its engine lives
        finally:
            os.close(fd)


def socket_group(socket: str) -> int | None:
    """Group of the daemon's socket; None without a socket, or if the engine is in no such group."""
    try:
        group = os.stat(socket).st_gid
    except OSError:
        return None
    return group if os.geteuid() == 0 or group in (os.getegid(), *os.getgroups()) else None
