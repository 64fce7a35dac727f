#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/row_kernels.cc"
#include "hwy/foreach_target.h"
// Before the rest: the lines above include this file once for every set of instructions.
#include "codec/row_kernels.h"
#include "hwy/highway.h"

// These have no shuffles worth the name.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define SLUICE_VECTOR_ROWS 1
#include "codec/row_decode-inl.h"
#include "codec/row_encode-inl.h"
#else
#define SLUICE_VECTOR_ROWS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::codec {
namespace HWY_NAMESPACE {

const RowKernels* Kernels() {
#if SLUICE_VECTOR_ROWS
  static const RowKernels kKernels = {.name = hwy::TargetName(HWY_TARGET),
                                      .decode_base = DecodeBase,
                                      .decode_refinement = DecodeRefinement,
                                      .encode_base = EncodeBase,
                                      .encode_refinement = EncodeRefinement,
                                      .count_base = CountBase,
                                      .count_refinement = CountRefinement,
                                      .find_escape = NextEscape,
                                      .parents = Parents,
                                      .cheapest_class = CheapestClass};
  return &kKernels;
#else
  return &PlainRowKernels();
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::codec
HWY_AFTER_NAMESPACE();
#undef SLUICE_VECTOR_ROWS

#if HWY_ONCE
namespace sluice::codec {

HWY_EXPORT(Kernels);

const RowKernels& BestRowKernels() { return *HWY_DYNAMIC_DISPATCH(Kernels)(); }

}  // namespace sluice::codec
#endif
