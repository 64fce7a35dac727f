#include "client/cli/encode_context.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/decode_context.h"
#include "client/cli/failure.h"
#include "client/cli/parallel.h"
#include "client/cli/progress.h"
#include "client/file_io.h"
#include "codec/bytes.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

using client::ContextInput;

// Does the metadata have one of these keys, for all model layers or one?
bool HasMetadata(const ContextInput& input, std::initializer_list<absl::string_view> keys) {
  return std::ranges::any_of(input.file.metadata(), [&](const auto& entry) {
    return std::ranges::any_of(keys, [&](auto key) { return absl::EndsWith(entry.first, key); });
  });
}

// A singular basis is damage that is not found when a profile is read.
absl::Status BadProfile(const absl::Status& status) {
  return WithHint(absl::DataLossError(status.message()),
                  "get the profile again, or make it with: sluice calibrate");
}

}  // namespace

std::vector<std::string> InputNotes(const ContextInput& input) {
  std::vector<std::string> notes;
  if (HasMetadata(input, {"rope_layout", "rope_dim", "rope_first_dim"}) &&
      !HasMetadata(input, {"rope_theta", "rope_inv_freq"})) {
    notes.push_back(
        "the metadata has no rope_theta or rope_inv_freq: keys are stored as they are, not rotated "
        "back");
  }
  for (size_t i = 0; i < input.planes.size(); ++i) {
    const codec::PlaneSpec& spec = input.geometry.planes[i];
    if (codec::IsQuantisable(spec.element_type) &&
        client::HasNonFinite(spec.element_type, input.planes[i])) {
      notes.push_back(absl::StrCat(client::PlaneTensorName(spec),
                                   " holds NaN or Inf: its chunks with them are kept bit-exact"));
    }
  }
  return notes;
}

absl::StatusOr<codec::NamespaceDescriptor> MakeDescriptor(const IdentityOptions& options,
                                                          const ContextInput& input,
                                                          const codec::Profile& profile) {
  codec::NamespaceDescriptor descriptor;
  descriptor.model = input.model;
  descriptor.revision = input.revision;
  descriptor.adapter = input.adapter;
  descriptor.chunk_tokens = options.ChunkTokens();
  descriptor.profile_id = profile.id();
  Override(options, descriptor);
  if (descriptor.model.empty()) {
    return WithHint(absl::InvalidArgumentError("the input does not name its model"),
                    "name it with --model");
  }
  RETURN_IF_ERROR(descriptor.Validate());
  return descriptor;
}

absl::StatusOr<EncodedContext> EncodeContext(const EncodeRequest& request) {
  const ContextInput& input = request.input;
  const uint32_t chunk_tokens = request.descriptor.chunk_tokens;
  const uint32_t num_full = input.num_tokens / chunk_tokens;
  const bool partial = request.last_partial_chunk && input.num_tokens % chunk_tokens != 0;
  const size_t num_chunks = num_full + (partial ? 1 : 0);

  EncodedContext result;
  result.file.descriptor = request.descriptor;
  if (request.profile.bytes().size() <= kMaxEmbeddedProfileBytes) {
    result.file.profile_bytes = request.profile.bytes();
  }
  result.file.token_ids = input.token_ids;
  result.file.metadata = input.file.metadata();
  result.file.metadata.erase("token_ids");  // kept as numbers
  result.file.containers.resize(num_chunks);
  result.reports.resize(num_chunks);
  result.notes = InputNotes(input);

  const codec::Digest digest = codec::NamespaceDigest(request.descriptor);
  const auto keys = codec::ChunkKeys(digest, input.token_ids, chunk_tokens);
  const codec::EncodeOptions options = {.lossy = true, .lossless = request.lossless};
  Progress progress("encoding chunks", num_chunks);
  RETURN_IF_ERROR(ParallelFor(
      num_chunks,
      [&](size_t i) -> absl::Status {
        const uint32_t start = static_cast<uint32_t>(i) * chunk_tokens;
        const uint32_t count = std::min(chunk_tokens, input.num_tokens - start);
        codec::ChunkIdentity identity = {.namespace_digest = digest, .start_token = start};
        if (i < keys.size()) identity.chunk_key = keys[i];
        const client::ChunkPlanes planes(input, start, count);
        auto encoded =
            codec::EncodeChunk(request.profile, identity, planes.planes(), count, options);
        if (absl::IsFailedPrecondition(encoded.status())) return BadProfile(encoded.status());
        if (!encoded.ok()) return WithPrefix(encoded.status(), absl::StrCat("chunk ", i));
        result.file.containers[i] = std::move(encoded->container);
        result.reports[i] = std::move(encoded->levels);
        return absl::OkStatus();
      },
      [&](size_t done) { progress.Update(done); }));
  result.rates.Add(request.profile, result.file.containers);
  if (const auto note = result.rates.Note()) result.notes.push_back(*note);
  return result;
}

std::vector<codec::LevelReport> Summarise(const EncodedContext& context) {
  std::vector<codec::LevelReport> sum;
  double elements_before = 0;
  for (const auto& levels : context.reports) {
    if (sum.empty()) {
      for (const auto& level : levels) sum.push_back({.level = level.level});
    }
    if (levels.empty() || levels.size() != sum.size()) continue;
    const double elements = 8.0 * levels[0].bytes / std::max(levels[0].bits_per_element, 1e-9);
    for (size_t i = 0; i < levels.size(); ++i) {
      const double all = elements_before + elements;
      sum[i].bytes += levels[i].bytes;
      sum[i].mean_error =
          (sum[i].mean_error * elements_before + levels[i].mean_error * elements) / all;
      sum[i].max_error = std::max(sum[i].max_error, levels[i].max_error);
      sum[i].error_bound = std::max(sum[i].error_bound, levels[i].error_bound);
      sum[i].bits_per_element = 8.0 * sum[i].bytes / all;
    }
    elements_before += elements;
  }
  return sum;
}

absl::Status Rename(codec::NamespaceDescriptor descriptor, codec::ContextFile& file) {
  RETURN_IF_ERROR(descriptor.Validate());
  const codec::Digest digest = codec::NamespaceDigest(descriptor);
  const auto keys = codec::ChunkKeys(digest, file.token_ids, descriptor.chunk_tokens);
  for (size_t i = 0; i < file.containers.size(); ++i) {
    std::string& container = file.containers[i];
    ASSIGN_OR_RETURN(codec::ChunkHeader header, codec::VerifyContainer(codec::AsBytes(container)));
    const size_t old_bytes = header.header_bytes;
    header.namespace_digest = digest;
    header.chunk_key = i < keys.size() ? keys[i] : codec::Digest{};
    container.replace(0, old_bytes, codec::SerializeChunkHeader(header));
  }
  file.descriptor = std::move(descriptor);
  return absl::OkStatus();
}

}  // namespace sluice::cli
