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
_MAP_SHARED, _MAP_FIXED, _PROT = 0x01, 0x10, mmap.PROT_READ | mmap.PROT_WRITE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_long]


class SharedMemory:
    """`num_bytes` of zeros in a file of /dev/shm, mapped."""

    def __init__(self, num_bytes: int, group: int | None = None) -> None:
        """`group`: id of the group that the daemon is in. OSError with advice without room."""
        remove_leftovers()
        self.num_bytes = num_bytes
        self._group = group
        self._fd, self.name = self._make_file()
        self._map = mmap.mmap(self._fd, num_bytes)
        self.tensor = torch.frombuffer(self._map, dtype=torch.int8)

    @property
    def address(self) -> int:
        return self.tensor.data_ptr()

    def contains(self, tensor: torch.Tensor) -> bool:
        """Does the tensor's storage begin in this memory?"""
        begin = tensor.untyped_storage().data_ptr()
        return self.address <= begin < self.address + self.num_bytes

    def fence(self) -> None:
        """Moves the contents to a new file, under the same addresses: tensors do not notice, and a
        daemon that still has the old file mapped can neither harm nor see them any more. Nobody
        but that daemon may write to the memory meanwhile. OSError without room for another one."""
        fd, name = self._make_file()
        try:
            for offset in range(0, self.num_bytes, 1 << 26):
                part = memoryview(self._map)[offset:offset + (1 << 26)]
                if os.pwrite(fd, part, offset) != len(part):
                    raise OSError(errno.ENOSPC, f"cannot copy the KV cache within {FOLDER}")
            mapped = _libc.mmap(self.address, self.num_bytes, _PROT, _MAP_SHARED | _MAP_FIXED, fd,
                                0)
            if mapped != self.address:
                raise OSError(ctypes.get_errno(), "cannot map the KV cache anew")
        except BaseException:
            os.close(fd)
            (FOLDER / name[1:]).unlink(missing_ok=True)
            raise
        self._remove_file()
        self._fd, self.name = fd, name

    def close(self) -> None:
        """Takes the file away. The tensors stay usable until nobody refers to them."""
        self._remove_file()

    def _make_file(self) -> tuple[int, str]:
        name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        fd = os.open(FOLDER / name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)  # says that the engine lives
            os.fchmod(fd, _MODE)
            if self._group is not None and self._group != os.fstat(fd).st_gid:
                os.fchown(fd, -1, self._group)
            # All of it now: a write to a page that /dev/shm cannot give would end the process.
            os.posix_fallocate(fd, 0, self.num_bytes)
        except OSError as error:
            os.close(fd)
            (FOLDER / name).unlink(missing_ok=True)
            if error.errno == errno.ENOSPC:
                raise OSError(errno.ENOSPC, f"no room for a KV cache of {self.num_bytes >> 20} MiB "
                              f"in {FOLDER}: make it larger (containers: --shm-size or --ipc=host)"
                              ", or the KV cache smaller") from error
            if error.errno == errno.EPERM:
                raise OSError(errno.EPERM, f"cannot give {FOLDER / name} to the group "
                              f"{self._group} of the node daemon: run the engine as a member of it"
                              ) from error
            raise
        return fd, "/" + name

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
