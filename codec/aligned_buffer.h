// Memory aligned for vector instructions, without exceptions.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "absl/status/status.h"

namespace sluice::codec {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;  // a cache line, a vector register

  // Room for at least `bytes`; what was in it is lost if it has to grow.
  absl::Status Reserve(size_t bytes) {
    if (bytes <= capacity_) return absl::OkStatus();
    memory_.reset();
    capacity_ = 0;
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (rounded < bytes) return absl::ResourceExhaustedError("buffer size overflows");
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
    if (memory_ == nullptr) return absl::ResourceExhaustedError("out of memory for a buffer");
    capacity_ = rounded;
    return absl::OkStatus();
  }

  std::byte* data() const { return memory_.get(); }

  // REQUIRES: Reserve(count * sizeof(Element)).
  template <typename Element>
  std::span<Element> As(size_t count) const {
    return {reinterpret_cast<Element*>(memory_.get()), count};
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  std::unique_ptr<std::byte, Free> memory_;
  size_t capacity_ = 0;
};

}  // namespace sluice::codec
