#include "codec/amx_kernel.h"

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>

#include "codec/status_macros.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace sluice::codec {
namespace {

constexpr size_t kTileRows = 16;
constexpr size_t kTileColumns = 16;
constexpr size_t kStepInputs = 32;  // that a tile holds
constexpr size_t kTileElements = kTileRows * kStepInputs;
constexpr size_t kHalfColumns = kBlockColumns / 2;
constexpr size_t kTokensAtOnce = 2 * kTileRows;
constexpr size_t kHalfStep = 2 * kTileElements;  // weights of a step and half a block
// Steps whose weights, 20 KiB, stay in the first cache while all tokens pass.
constexpr size_t kPanelSteps = 10;
// Weights of the next half that each step fetches: all, if there are 256 tokens.
constexpr size_t kFetchElements = kHalfStep * kTokensAtOnce / ProductKernel::kMaxTokens;
constexpr size_t kLineElements = 64 / sizeof(uint16_t);

size_t NumSteps(size_t num_inputs) { return (num_inputs + kStepInputs - 1) / kStepInputs; }

// Packs a block's columns from `column` on, [num_inputs][kBlockColumns], as one tile for each step.
void PackTiles(const uint16_t* block, size_t num_inputs, size_t column, uint16_t* out) {
  for (size_t input = 0; input < num_inputs; input += 2) {
    const uint16_t* const even = block + input * kBlockColumns + column;
    const bool paired = input + 1 < num_inputs;
    uint16_t* const row = out + input / kStepInputs * kHalfStep + input % kStepInputs * kTileRows;
    for (size_t c = 0; c < kTileColumns; ++c) {
      row[2 * c] = even[c];
      row[2 * c + 1] = paired ? even[kBlockColumns + c] : uint16_t{0};
    }
  }
}

// Up to kTokensAtOnce tokens, half a block's columns, and the inputs of some steps.
struct Step {
  const uint16_t* x = nullptr;
  size_t x_pitch = 0;
  const uint16_t* weights = nullptr;
  size_t num_steps = 0;
  const uint16_t* fetch = nullptr;  // weights that will be needed next
  float* sums = nullptr;
  bool add = false;
};

#if defined(__x86_64__)

#define SLUICE_AMX __attribute__((target("amx-tile,amx-bf16"), noinline))

bool RequestTiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // the feature's number in XCR0
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// As the instruction LDTILECFG reads it.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Tiles 0 and 1 are the sums of the first 16 tokens, 2 and 3 of the others, 4 and 5 their inputs,
// 6 and 7 the weights.
SLUICE_AMX void Configure(size_t num_tokens) {
  const auto upper = static_cast<uint8_t>(std::min(num_tokens, kTileRows));
  const auto lower = static_cast<uint8_t>(num_tokens - upper);
  TileConfig config;
  const uint8_t rows[] = {upper, upper, lower, lower, upper, lower, kTileRows, kTileRows};
  for (size_t tile = 0; tile < 8; ++tile) {
    if (rows[tile] == 0) continue;
    config.rows[tile] = rows[tile];
    config.row_bytes[tile] = kStepInputs * sizeof(uint16_t);
  }
  // GCC's intrinsics do not say what memory they read and write.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

SLUICE_AMX void Release() { _tile_release(); }

inline void Fetch(const Step& step, size_t s) {
  for (size_t i = 0; i < kFetchElements; i += kLineElements) {
    __builtin_prefetch(step.fetch + s * kFetchElements + i, 0, 2);
  }
}

// Up to 16 tokens.
SLUICE_AMX void MultiplyUpper(const Step& step) {
  constexpr size_t kPitch = kBlockColumns * sizeof(float);
  __asm__ volatile("" : : : "memory");
  if (step.add) {
    _tile_loadd(0, step.sums, kPitch);
    _tile_loadd(1, step.sums + kTileColumns, kPitch);
  } else {
    _tile_zero(0);
    _tile_zero(1);
  }
  for (size_t s = 0; s < step.num_steps; ++s) {
    _tile_loadd(4, step.x + s * kStepInputs, step.x_pitch);
    _tile_loadd(6, step.weights + s * kHalfStep, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, step.weights + s * kHalfStep + kTileElements, 64);
    _tile_dpbf16ps(1, 4, 7);
    Fetch(step, s);
  }
  _tile_stored(0, step.sums, kPitch);
  _tile_stored(1, step.sums + kTileColumns, kPitch);
  __asm__ volatile("" : : : "memory");
}

// 17 to 32 tokens.
SLUICE_AMX void MultiplyBoth(const Step& step) {
  constexpr size_t kPitch = kBlockColumns * sizeof(float);
  const uint16_t* const lower_x = step.x + kTileRows * step.x_pitch / sizeof(uint16_t);
  float* const lower_sums = step.sums + kTileRows * kBlockColumns;
  __asm__ volatile("" : : : "memory");
  if (step.add) {
    _tile_loadd(0, step.sums, kPitch);
    _tile_loadd(1, step.sums + kTileColumns, kPitch);
    _tile_loadd(2, lower_sums, kPitch);
    _tile_loadd(3, lower_sums + kTileColumns, kPitch);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (size_t s = 0; s < step.num_steps; ++s) {
    _tile_loadd(4, step.x + s * kStepInputs, step.x_pitch);
    _tile_loadd(6, step.weights + s * kHalfStep, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, step.weights + s * kHalfStep + kTileElements, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, lower_x + s * kStepInputs, step.x_pitch);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    Fetch(step, s);
  }
  _tile_stored(0, step.sums, kPitch);
  _tile_stored(1, step.sums + kTileColumns, kPitch);
  _tile_stored(2, lower_sums, kPitch);
  _tile_stored(3, lower_sums + kTileColumns, kPitch);
  __asm__ volatile("" : : : "memory");
}

#else  // No such processor: Runs() is false.

bool RequestTiles() { return false; }
void Configure(size_t) {}
void Release() {}
void MultiplyUpper(const Step&) {}
void MultiplyBoth(const Step&) {}

#endif

}  // namespace

bool AmxKernel::Runs() {
  static const bool runs = [] {
    const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
    return (isa & needed) == needed && RequestTiles();
  }();
  return runs;
}

absl::StatusOr<std::unique_ptr<const ProductKernel>> AmxKernel::Pack(
    std::span<const uint16_t> matrix, MatrixLayout layout, size_t num_inputs, size_t num_outputs) {
  std::unique_ptr<AmxKernel> kernel(new AmxKernel(num_inputs, num_outputs));
  const size_t half_elements = kernel->num_steps() * kHalfStep;
  const size_t size = 2 * kernel->num_blocks() * half_elements;
  AlignedBuffer block_buffer;
  RETURN_IF_ERROR(kernel->weights_.Reserve(size * sizeof(uint16_t)));
  RETURN_IF_ERROR(block_buffer.Reserve(num_inputs * kBlockColumns * sizeof(uint16_t)));
  uint16_t* const block = block_buffer.As<uint16_t>(num_inputs * kBlockColumns).data();
  const std::span<uint16_t> weights = kernel->weights_.As<uint16_t>(size);
  if (num_inputs % kStepInputs != 0) std::fill(weights.begin(), weights.end(), uint16_t{0});
  for (size_t b = 0; b < kernel->num_blocks(); ++b) {
    kernel->CopyBlock(matrix, layout, b, block);
    for (size_t tile = 0; tile < kBlockColumns / kTileColumns; ++tile) {
      PackTiles(block, num_inputs, tile * kTileColumns,
                weights.data() + (2 * b + tile / 2) * half_elements + tile % 2 * kTileElements);
    }
  }
  return kernel;
}

size_t AmxKernel::num_steps() const { return NumSteps(num_inputs()); }

size_t AmxKernel::packed_bytes() const {
  return 2 * num_blocks() * num_steps() * kHalfStep * sizeof(uint16_t);
}

size_t AmxKernel::RoundUpInputs(size_t first_input, size_t num_inputs) const {
  return NumSteps(num_inputs) * kStepInputs;
}

// The products of one call, on tiles that are configured for as many tokens as were last asked for.
class AmxKernel::Call {
 public:
  Call(const AmxKernel& kernel, const Shape& shape, size_t first_input, const uint16_t* x)
      : shape_(shape),
        x_(x),
        num_halves_(2 * kernel.num_blocks()),
        half_elements_(kernel.num_steps() * kHalfStep),
        weights_(kernel.weights_.As<uint16_t>(num_halves_ * half_elements_).data()),
        first_step_(first_input / kStepInputs) {}
  ~Call() {
    if (configured_ > 0) Release();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Puts the sums of half a block's columns at `sums`.
  void MultiplyHalf(size_t half, float* sums) {
    const size_t next_half = std::min(half + 1, num_halves_ - 1);
    const size_t steps = shape_.num_inputs / kStepInputs;
    for (size_t panel = 0; panel < steps; panel += kPanelSteps) {
      const size_t offset = (first_step_ + panel) * kHalfStep;
      MultiplyPanel({.x = x_ + panel * kStepInputs,
                     .x_pitch = shape_.num_inputs * sizeof(uint16_t),
                     .weights = weights_ + half * half_elements_ + offset,
                     .num_steps = std::min(kPanelSteps, steps - panel),
                     .fetch = weights_ + next_half * half_elements_ + offset,
                     .sums = sums,
                     .add = shape_.add || panel > 0});
    }
  }

 private:
  void MultiplyPanel(Step step) {
    for (size_t token = 0; token < shape_.num_tokens; token += kTokensAtOnce) {
      const size_t tokens = std::min(kTokensAtOnce, shape_.num_tokens - token);
      if (tokens != configured_) Configure(tokens);
      configured_ = tokens;
      if (tokens > kTileRows) {
        MultiplyBoth(step);
      } else {
        MultiplyUpper(step);
      }
      step.x += kTokensAtOnce * shape_.num_inputs;
      step.sums += kTokensAtOnce * kBlockColumns;
      step.fetch += step.num_steps * kFetchElements;
    }
  }

  const Shape& shape_;
  const uint16_t* const x_;
  const size_t num_halves_;
  const size_t half_elements_;
  const uint16_t* const weights_;
  const size_t first_step_;
  size_t configured_ = 0;
};

absl::Status AmxKernel::Multiply(const Shape& shape, size_t first_input, const std::byte* x,
                                 AlignedBuffer& library_scratch,
                                 absl::FunctionRef<float*(size_t block)> target,
                                 absl::FunctionRef<void(size_t block)> done) const {
  Call call(*this, shape, first_input, reinterpret_cast<const uint16_t*>(x));
  for (size_t block = 0; block < num_blocks(); ++block) {
    float* const sums = target(block);
    call.MultiplyHalf(2 * block, sums);
    call.MultiplyHalf(2 * block + 1, sums + kHalfColumns);
    done(block);
  }
  return absl::OkStatus();
}

}  // namespace sluice::codec
