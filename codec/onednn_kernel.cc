#include "codec/onednn_kernel.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/elements.h"
#include "codec/status_macros.h"

// Of GNU OpenMP, which oneDNN is linked with whichever compiler builds us. The number of threads
// belongs to the calling thread.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int num_threads);
}

namespace sluice::codec {
namespace {

using dnnl::memory;

constexpr memory::data_type kFloat = memory::data_type::f32;

bool MachineTakesBf16() {
  const unsigned isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const unsigned needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & needed) == needed;
}

class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_;
};

// Runs `work` on this thread alone; what oneDNN throws becomes a status.
absl::Status Guard(absl::FunctionRef<absl::Status()> work) {
  const OneThread one_thread;
  try {
    return work();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) {
      return absl::ResourceExhaustedError("out of memory for a matrix product");
    }
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory for a matrix product");
  }
}

memory::dim Dim(size_t size) { return static_cast<memory::dim>(size); }

// Whether the packing of some inputs of a block is a part of that of all.
bool IsPart(const memory::desc& part, const memory::desc& whole) {
  const auto& a = part.data.format_desc.blocking;
  const auto& b = whole.data.format_desc.blocking;
  return part.data.format_kind == dnnl_blocked && whole.data.format_kind == dnnl_blocked &&
         part.data.offset0 == 0 && part.data.extra.flags == 0 && whole.data.extra.flags == 0 &&
         a.strides[0] == b.strides[0] && a.inner_nblks == b.inner_nblks &&
         std::equal(a.inner_blks, a.inner_blks + a.inner_nblks, b.inner_blks) &&
         std::equal(a.inner_idxs, a.inner_idxs + a.inner_nblks, b.inner_idxs) &&
         part.get_size() <= whole.get_size();
}

// Bytes from the first of a block's inputs to the one `inputs` later.
size_t BytesOf(const memory::desc& packed, size_t inputs) {
  const auto& blocking = packed.data.format_desc.blocking;
  size_t inputs_per_stride = 1;
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    if (blocking.inner_idxs[i] == 0)
      inputs_per_stride *= static_cast<size_t>(blocking.inner_blks[i]);
  }
  return inputs / inputs_per_stride * static_cast<size_t>(blocking.strides[0]) *
         memory::data_type_size(packed.data_type());
}

}  // namespace

struct OneDnnKernel::Product {
  Shape shape;
  memory::desc x;
  memory::desc weights;
  memory::desc out;
  memory::desc scratch;
  dnnl::matmul primitive;
};

OneDnnKernel::OneDnnKernel(size_t num_inputs, size_t num_outputs)
    : ProductKernel(num_inputs, num_outputs),
      takes_bf16_(MachineTakesBf16()),
      engine_(dnnl::engine::kind::cpu, 0) {}

absl::StatusOr<std::unique_ptr<const ProductKernel>> OneDnnKernel::Pack(
    std::span<const uint16_t> matrix, MatrixLayout layout, size_t num_inputs, size_t num_outputs) {
  std::unique_ptr<OneDnnKernel> kernel;
  RETURN_IF_ERROR(Guard([&] {
    kernel.reset(new OneDnnKernel(num_inputs, num_outputs));
    return kernel->PackBlocks(matrix, layout);
  }));
  return kernel;
}

size_t OneDnnKernel::RoundUpInputs(size_t first_input, size_t num_inputs) const {
  return std::min((num_inputs + kInputGrain - 1) / kInputGrain * kInputGrain,
                  this->num_inputs() - first_input);
}

memory::desc OneDnnKernel::PackedFormat(size_t num_inputs) const {
  const auto type = takes_bf16_ ? memory::data_type::bf16 : kFloat;
  const memory::desc x({Dim(kMaxTokens), Dim(num_inputs)}, type, memory::format_tag::ab);
  const memory::desc weights({Dim(num_inputs), Dim(kBlockColumns)}, type, memory::format_tag::any);
  const memory::desc out({Dim(kMaxTokens), Dim(kBlockColumns)}, kFloat, memory::format_tag::ab);
  return dnnl::matmul::primitive_desc({x, weights, out}, engine_).weights_desc();
}

absl::Status OneDnnKernel::PackBlocks(std::span<const uint16_t> matrix, MatrixLayout layout) {
  const memory::desc packed = PackedFormat(num_inputs());
  const memory::desc plain({Dim(num_inputs()), Dim(kBlockColumns)}, memory::data_type::bf16,
                           memory::format_tag::ab);
  const memory::desc wide({Dim(num_inputs()), Dim(kBlockColumns)}, kFloat, memory::format_tag::ab);
  constexpr size_t kAlignment = AlignedBuffer::kAlignment;
  block_bytes_ = (packed.get_size() + kAlignment - 1) / kAlignment * kAlignment;
  grain_bytes_ = BytesOf(packed, kInputGrain);
  const size_t block_elements = num_inputs() * kBlockColumns;
  AlignedBuffer halves;
  AlignedBuffer floats;
  RETURN_IF_ERROR(weights_.Reserve(packed_bytes()));
  RETURN_IF_ERROR(halves.Reserve(plain.get_size()));
  if (!takes_bf16_) RETURN_IF_ERROR(floats.Reserve(wide.get_size()));
  memory from(takes_bf16_ ? plain : wide, engine_, takes_bf16_ ? halves.data() : floats.data());
  memory to(packed, engine_, nullptr);
  const dnnl::reorder reorder(from, to);
  dnnl::stream stream(engine_);
  for (size_t block = 0; block < num_blocks(); ++block) {
    CopyBlock(matrix, layout, block, halves.As<uint16_t>(block_elements).data());
    if (!takes_bf16_) {
      ElementsToFloat(ElementType::kBf16, std::as_bytes(halves.As<uint16_t>(block_elements)),
                      floats.As<float>(block_elements));
    }
    to.set_data_handle(weights_.data() + block * block_bytes_);
    reorder.execute(stream, from, to);
  }
  stream.wait();
  return absl::OkStatus();
}

std::shared_ptr<const OneDnnKernel::Product> OneDnnKernel::Find(const Shape& shape) const {
  const absl::MutexLock lock(&mutex_);
  const auto found = std::find_if(products_.begin(), products_.end(),
                                  [&](const auto& product) { return product->shape == shape; });
  if (found != products_.end()) {
    products_.splice(products_.begin(), products_, found);
    return products_.front();
  }
  const auto type = takes_bf16_ ? memory::data_type::bf16 : kFloat;
  auto made = std::make_shared<Product>();
  made->shape = shape;
  made->x = {{Dim(shape.num_tokens), Dim(shape.num_inputs)}, type, memory::format_tag::ab};
  made->weights = PackedFormat(shape.num_inputs);
  made->out = {{Dim(shape.num_tokens), Dim(kBlockColumns)}, kFloat, memory::format_tag::ab};
  if (!IsPart(made->weights, PackedFormat(num_inputs()))) {
    throw dnnl::error(dnnl_unimplemented, "a packing of fewer inputs differs");
  }
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.add) {
    dnnl::post_ops add;
    add.append_sum();
    attributes.set_post_ops(add);
  }
  const dnnl::matmul::primitive_desc description({made->x, made->weights, made->out}, attributes,
                                                 engine_);
  made->scratch = description.scratchpad_desc();
  made->primitive = dnnl::matmul(description);
  if (products_.size() == kMaxProducts) products_.pop_back();
  products_.push_front(std::move(made));
  return products_.front();
}

absl::Status OneDnnKernel::Multiply(const Shape& shape, size_t first_input, const std::byte* x,
                                    AlignedBuffer& library_scratch,
                                    absl::FunctionRef<float*(size_t block)> target,
                                    absl::FunctionRef<void(size_t block)> done) const {
  return Guard([&] {
    const std::shared_ptr<const Product> product = Find(shape);
    RETURN_IF_ERROR(library_scratch.Reserve(product->scratch.get_size()));
    dnnl::stream stream(engine_);
    // oneDNN's handles are not const; inputs and weights are only read.
    memory inputs(product->x, engine_, const_cast<std::byte*>(x));
    memory weights(product->weights, engine_, nullptr);
    memory out(product->out, engine_, nullptr);
    memory scratch(product->scratch, engine_, library_scratch.data());
    const std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, inputs},
                                                       {DNNL_ARG_WEIGHTS, weights},
                                                       {DNNL_ARG_DST, out},
                                                       {DNNL_ARG_SCRATCHPAD, scratch}};
    for (size_t block = 0; block < num_blocks(); ++block) {
      weights.set_data_handle(weights_.data() + block * block_bytes_ +
                              first_input / kInputGrain * grain_bytes_);
      out.set_data_handle(target(block));
      product->primitive.execute(stream, arguments);
      stream.wait();
      done(block);
    }
    return absl::OkStatus();
  });
}

}  // namespace sluice::codec
