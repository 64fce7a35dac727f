"""A node daemon in this process that keeps chunks, losslessly, in a dictionary: for tests of what
talks to it. It reads and writes pools by their layouts, as the real one does."""
import mmap
import os
import threading
from concurrent import futures

import grpc
import torch

from sluice_kv import wire

LOSSLESS = 255
NOT_STORED = wire.enum_value("RecomputeReason", "not_stored")
LIMIT_S = 20  # of waiting for an event of the test


class Pool:
    """An engine's memory; of a plane and a block the bytes [heads, block_tokens, row]."""

    def __init__(self, request):
        fd = os.open(f"/dev/shm{request.shm_name}", os.O_RDWR)
        try:
            self.map = mmap.mmap(fd, request.pool_bytes)
        finally:
            os.close(fd)
        # Without the last page, which is empty and lost at a cut; the real one survives that.
        self.memory = torch.frombuffer(self.map, dtype=torch.uint8)[:-mmap.PAGESIZE]
        self.request = request
        self.known = threading.Event()
        self.forgotten = threading.Event()

    def planes(self, block):
        for plane, layout in zip(self.request.geometry.planes, self.request.layouts, strict=True):
            row = plane.head_dim * (4 if plane.element_type == 3 else 2)
            yield self.memory.as_strided(
                (plane.num_heads, self.request.block_tokens, row),
                (layout.head_stride_bytes, layout.token_stride_bytes, 1),
                layout.offset_bytes + block * layout.block_stride_bytes)


class FakeNode:
    """Listens on a socket. `lost` names chunks that loads find not stored; with `silent` a load
    writes its chunks, says so, and does not end before the test does."""

    def __init__(self, socket):
        self.chunks, self.pools, self.lost, self.silent = {}, {}, set(), False
        self.closing = threading.Event()
        self.server = grpc.server(futures.ThreadPoolExecutor(8))
        handlers = {}
        for method in wire._POOL.FindServiceByName(wire.SERVICE).methods:
            if not hasattr(self, method.name):
                continue
            handler = (grpc.unary_stream_rpc_method_handler if method.server_streaming
                       else grpc.unary_unary_rpc_method_handler)
            handlers[method.name] = handler(
                getattr(self, method.name),
                request_deserializer=wire.message(method.input_type.name).FromString,
                response_serializer=wire.message(method.output_type.name).SerializeToString)
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(wire.SERVICE, handlers),))
        self.server.add_insecure_port(f"unix:{socket}")
        self.server.start()

    def stop(self):
        self.closing.set()
        self.server.stop(0).wait()

    def key(self, request, chunk):
        """Of the chunk's context, by all that the real one's namespace and chunk key cover."""
        tokens = tuple(request.token_ids[:(chunk + 1) * request.identity.chunk_tokens])
        return (request.identity.SerializeToString(), tokens,
                self.pools[request.pool_id].request.geometry.SerializeToString())

    def RegisterPool(self, request, _):
        pool_id = len(self.pools) + 1
        self.pools[pool_id] = Pool(request)
        return wire.message("RegisterPoolResponse")(pool_id=pool_id)

    def HoldPool(self, request, context):
        pool = self.pools[request.pool_id]
        context.add_callback(pool.forgotten.set)
        yield wire.message("HoldPoolResponse")()
        pool.forgotten.wait(LIMIT_S)

    def Save(self, request, _):
        event, pool = wire.message("SaveEvent"), self.pools[request.pool_id]
        for chunk, block in enumerate(request.block_ids):
            self.chunks[self.key(request, chunk)] = [plane.clone() for plane in pool.planes(block)]
        yield event(state=wire.enum_value("SaveState", "copied"))
        yield event(state=wire.enum_value("SaveState", "stored"),
                    stored_chunks=len(request.block_ids))

    def Load(self, request, _):
        event, pool = wire.message("LoadEvent")(), self.pools[request.pool_id]
        for chunk, block in enumerate(request.block_ids):
            planes = None if chunk in self.lost else self.chunks.get(self.key(request, chunk))
            if planes is None:
                event.chunks.outcomes.add(chunk_index=chunk, reason=NOT_STORED)
                continue
            for to, plane in zip(pool.planes(block), planes, strict=True):
                to.copy_(plane)
            event.chunks.outcomes.add(chunk_index=chunk, level=LOSSLESS)
        yield event
        if self.silent:
            self.closing.wait(LIMIT_S)
        last = wire.message("LoadEvent")()
        last.summary.num_levels = 3
        yield last
