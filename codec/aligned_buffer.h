// Memory aligned for vector instructions, without exceptions.
//
// One thread at a time.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "absl/status/status.h"

namespace sluice::codec {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;  // a cache line, a vector register
  // A buffer of a quarter of it or more takes whole huge pages, if the system has them: a product
  // of matrices walks through so much memory that it would wait for the translation of addresses.
  static constexpr size_t kHugePage = size_t{1} << 21;

  // Room for at least `bytes`; what was in it is lost if it has to grow.
  absl::Status Reserve(size_t bytes) {
    if (bytes <= capacity_) return absl::OkStatus();
    memory_.reset();
    capacity_ = 0;
    const size_t alignment = bytes >= kHugePage / 4 ? kHugePage : kAlignment;
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    if (rounded < bytes) return absl::ResourceExhaustedError("buffer size overflows");
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
    if (memory_ == nullptr) return absl::ResourceExhaustedError("out of memory for a buffer");
    if (alignment == kHugePage) madvise(memory_.get(), rounded, MADV_HUGEPAGE);  // a hint
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
