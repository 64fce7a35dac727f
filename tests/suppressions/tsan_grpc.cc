// Tells the thread sanitizer how the packaged gRPC hands work from one thread to another.
//
// libgrpc is not instrumented and its queues are free of locks, so the sanitizer would see no order
// between the thread that starts an operation and the one that gets its completion. As in
// tsan_absl.cc, each function calls the real one and says which order it makes. The order goes from
// the operation to its own completion only: operations of different tags stay unordered.
#include <dlfcn.h>
#include <grpc/grpc.h>

#include <cstdio>
#include <cstdlib>

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}

namespace {

// The function that would have been called without this library.
template <typename Function>
Function* Real(const char* symbol) {
  void* found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    std::fprintf(stderr, "tsan_grpc: %s is not in the packaged gRPC\n", symbol);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

grpc_event Completed(grpc_event event) {
  if (event.type == GRPC_OP_COMPLETE && event.tag != nullptr) __tsan_acquire(event.tag);
  return event;
}

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t num_ops,
                                      void* tag, void* reserved) {
  static auto* const real = Real<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  if (tag != nullptr) __tsan_release(tag);
  return real(call, ops, num_ops, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  static auto* const real =
      Real<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  return Completed(real(queue, deadline, reserved));
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static auto* const real =
      Real<decltype(grpc_completion_queue_pluck)>("grpc_completion_queue_pluck");
  return Completed(real(queue, tag, deadline, reserved));
}

grpc_call_error grpc_server_request_call(grpc_server* server, grpc_call** call,
                                         grpc_call_details* details, grpc_metadata_array* metadata,
                                         grpc_completion_queue* bound_to_call,
                                         grpc_completion_queue* for_notification, void* tag) {
  static auto* const real = Real<decltype(grpc_server_request_call)>("grpc_server_request_call");
  if (tag != nullptr) __tsan_release(tag);
  return real(server, call, details, metadata, bound_to_call, for_notification, tag);
}

grpc_call_error grpc_server_request_registered_call(
    grpc_server* server, void* method, grpc_call** call, gpr_timespec* deadline,
    grpc_metadata_array* metadata, grpc_byte_buffer** payload, grpc_completion_queue* bound_to_call,
    grpc_completion_queue* for_notification, void* tag) {
  static auto* const real =
      Real<decltype(grpc_server_request_registered_call)>("grpc_server_request_registered_call");
  if (tag != nullptr) __tsan_release(tag);
  return real(server, method, call, deadline, metadata, payload, bound_to_call, for_notification,
              tag);
}

}  // extern "C"
