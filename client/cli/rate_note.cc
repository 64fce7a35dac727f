#include "client/cli/rate_note.h"

#include "absl/strings/str_cat.h"
#include "client/cli/units.h"
#include "codec/bytes.h"

namespace sluice::cli {
namespace {

constexpr char kWhatToDo[] =
    "it may be of another model or kind of text; make one of such contexts: sluice calibrate";

}  // namespace

void RateSummary::Add(const codec::Profile& profile, const codec::ChunkHeader& header) {
  const std::optional<codec::ChunkRate> rate = codec::RateOf(profile, header);
  if (!rate) return;
  ++chunks_;
  unusual_ += rate->unusual ? 1 : 0;
  tokens_ += header.num_tokens;
  bits_ += rate->bits * header.num_tokens;
  usual_ = rate->usual;
}

void RateSummary::Add(const codec::Profile& profile, const std::vector<std::string>& containers) {
  for (const std::string& container : containers) {
    const auto header = codec::ParseChunkHeader(codec::AsBytes(container));
    if (header.ok()) Add(profile, *header);
  }
}

std::string RateSummary::Text() const {
  return absl::StrCat(FormatNumber(bits_ / tokens_),
                      " bits/element at the finest lossy level, usually ", FormatNumber(usual_));
}

std::optional<std::string> RateSummary::Note() const {
  if (unusual_ == 0) return std::nullopt;
  return absl::StrCat("unusual rate: ", FormatCount(unusual_), " of ",
                      FormatCount(chunks_, "chunk"), unusual_ == 1 ? " needs" : " need", " over ",
                      FormatNumber(codec::kUnusualRate), " times the ", FormatNumber(usual_),
                      " bits/element that the profile was measured at (all: ",
                      FormatNumber(bits_ / tokens_), "); ", kWhatToDo);
}

Json RateSummary::ToJson() const {
  if (empty()) return nullptr;
  return {{"bits_per_element", bits_ / tokens_},
          {"usual_bits_per_element", usual_},
          {"chunks", chunks_},
          {"unusual_chunks", unusual_}};
}

std::optional<std::string> UnusualRateNote(size_t unusual_chunks) {
  if (unusual_chunks == 0) return std::nullopt;
  return absl::StrCat("unusual rate: ", FormatCount(unusual_chunks, "chunk"),
                      unusual_chunks == 1 ? " needs" : " need", " over ",
                      FormatNumber(codec::kUnusualRate),
                      " times the bits that the profile was measured at; ", kWhatToDo);
}

}  // namespace sluice::cli
