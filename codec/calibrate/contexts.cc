#include "codec/calibrate/contexts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "codec/status_macros.h"

namespace sluice::codec {
namespace {

constexpr size_t kHeldOutEvery = 8;
constexpr size_t kHeldOutFirst = 3;  // of each eight
constexpr size_t kMinContextsToSpareOne = 4;

void AppendChunks(TokenSpan all, uint32_t chunk_tokens, std::vector<TokenSpan>& spans) {
  for (uint32_t begin = all.begin; begin < all.end; begin += chunk_tokens) {
    spans.push_back({all.context, begin, std::min(all.end, begin + chunk_tokens)});
  }
}

// The first token of a context's last quarter, at a chunk's begin if that leaves something before.
uint32_t QuarterBegin(uint32_t num_tokens, uint32_t chunk_tokens) {
  const uint32_t begin = num_tokens - num_tokens / 4;
  const uint32_t rounded = begin / chunk_tokens * chunk_tokens;
  return rounded > 0 ? rounded : begin;
}

}  // namespace

absl::Status Contexts::Validate() const {
  RETURN_IF_ERROR(geometry.Validate());
  if (contexts.empty() || contexts.size() > kMaxContexts) {
    return absl::InvalidArgumentError(
        absl::StrCat("number of contexts is ", contexts.size(), ", not in 1..", kMaxContexts));
  }
  if (plane_names.size() != geometry.planes.size()) {
    return absl::InvalidArgumentError("every plane must have a name");
  }
  for (const TrainingContext& context : contexts) {
    if (context.num_tokens < 1 || context.num_tokens > kMaxTokens) {
      return absl::InvalidArgumentError(
          absl::StrCat(context.name, ": has ", context.num_tokens, " tokens, not 1..", kMaxTokens));
    }
    if (context.planes.size() != geometry.planes.size()) {
      return absl::InvalidArgumentError(absl::StrCat(context.name, ": has ", context.planes.size(),
                                                     " planes, not ", geometry.planes.size()));
    }
    for (size_t i = 0; i < context.planes.size(); ++i) {
      const size_t wanted = geometry.planes[i].bytes_per_token() * context.num_tokens;
      if (context.planes[i].size() != wanted) {
        return absl::InvalidArgumentError(absl::StrCat(context.name, ": ", plane_names[i], " has ",
                                                       context.planes[i].size(), " bytes, not ",
                                                       wanted));
      }
    }
  }
  return absl::OkStatus();
}

TokenSplit SplitTokens(const Contexts& contexts, uint32_t sink_tokens, uint32_t chunk_tokens) {
  TokenSplit split;
  const size_t count = contexts.contexts.size();
  for (size_t i = 0; i < count; ++i) {
    const uint32_t num_tokens = contexts.contexts[i].num_tokens;
    uint32_t begin = num_tokens;  // of what is held out
    if (count < kMinContextsToSpareOne) {
      begin = QuarterBegin(num_tokens, chunk_tokens);
    } else if (i % kHeldOutEvery == kHeldOutFirst) {
      begin = 0;
    }
    AppendChunks({i, 0, begin}, chunk_tokens, split.training);
    AppendChunks({i, begin, num_tokens}, chunk_tokens, split.held_out);
    split.num_training_contexts += begin > 0;
  }
  for (const TokenSpan& span : split.training) {
    split.training_tokens += span.size() - span.num_sinks(sink_tokens);
  }
  return split;
}

}  // namespace sluice::codec
