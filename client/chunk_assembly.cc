#include "client/chunk_assembly.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/decoder.h"
#include "codec/status_macros.h"

namespace sluice::client {

ChunkAssembly::ChunkAssembly(const codec::Profile& profile, ChunkExpectation expected,
                             ChunkManifest manifest, std::vector<ChunkStep> steps)
    : profile_(profile),
      expected_(expected),
      manifest_(std::move(manifest)),
      steps_(std::move(steps)),
      segments_(manifest_.layers.size(), std::vector<Segment>(profile.groups().size())) {}

void ChunkAssembly::Begin(uint32_t ask_id, uint32_t first_step, uint32_t last_step) {
  Cursor cursor;
  cursor.first_step = first_step;
  cursor.in_header = steps_[first_step].with_header;
  cursor.layer = steps_[first_step].first_layer;
  cursor.end_layer = steps_[last_step].end_layer();
  cursor.offset = cursor.in_header ? 0 : LayerOffset(cursor.layer);
  cursors_[ask_id] = cursor;
}

absl::StatusOr<std::vector<size_t>> ChunkAssembly::Add(uint32_t ask_id, uint64_t offset,
                                                       const std::string& payload) {
  const auto found = cursors_.find(ask_id);
  if (found == cursors_.end()) return absl::DataLossError("frame of an ask that was not made");
  Cursor& cursor = found->second;
  if (offset != cursor.offset) {
    return absl::DataLossError(
        absl::StrCat("frame at offset ", offset, " instead of ", cursor.offset));
  }
  std::vector<size_t> completed;
  size_t taken = 0;
  if (cursor.in_header) {
    RETURN_IF_ERROR(TakeHeader(cursor, payload, taken));
    if (!cursor.in_header) {
      for (size_t group = 0; group < profile_.groups().size(); ++group) completed.push_back(group);
    }
    const bool gap = !cursor.in_header && cursor.layer > 0;
    if (gap && taken < payload.size()) return absl::DataLossError("frame crosses a gap in its ask");
    if (gap) cursor.offset = LayerOffset(cursor.layer);
  }
  if (!cursor.in_header) TakeSegments(cursor, payload, taken, completed);
  if (taken < payload.size()) {
    return absl::DataLossError(
        absl::StrCat("frame is ", payload.size() - taken, " bytes longer than what was asked for"));
  }
  std::sort(completed.begin(), completed.end());
  completed.erase(std::unique(completed.begin(), completed.end()), completed.end());
  return completed;
}

absl::Status ChunkAssembly::End(uint32_t ask_id) {
  const auto found = cursors_.find(ask_id);
  if (found == cursors_.end()) return absl::OkStatus();
  const bool done = found->second.done();
  const uint64_t offset = found->second.offset;
  cursors_.erase(found);
  if (done) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("answer ends at offset ", offset, ", too early"));
}

void ChunkAssembly::Drop(uint32_t first_step) {
  absl::erase_if(cursors_, [&](const auto& entry) {
    return entry.second.end_layer > steps_[first_step].first_layer;
  });
  for (size_t layer = steps_[first_step].first_layer; layer < segments_.size(); ++layer) {
    for (Segment& segment : segments_[layer]) segment = {};
  }
  if (first_step > 0) return;
  header_bytes_.clear();
  header_ = nullptr;
}

int ChunkAssembly::ReadyStep(size_t group) const {
  if (header_ == nullptr) return -1;
  for (int step = static_cast<int>(steps_.size()) - 1; step >= 0; --step) {
    bool ready = true;
    for (uint32_t layer = steps_[step].first_needed_layer(); layer < steps_[step].end_layer();
         ++layer) {
      ready = ready && segments_[layer][group].complete;
    }
    if (ready) return step;
  }
  return -1;
}

GroupInput ChunkAssembly::Input(size_t group, int step) const {
  GroupInput input;
  input.level = steps_[step].level;
  input.header = header_;
  for (uint32_t layer = steps_[step].first_needed_layer(); layer < steps_[step].end_layer();
       ++layer) {
    input.segments.push_back(segments_[layer][group].bytes);
  }
  return input;
}

uint64_t ChunkAssembly::LayerOffset(uint32_t layer) const {
  uint64_t offset = manifest_.header_bytes;
  for (uint32_t i = 0; i < layer; ++i) offset += manifest_.layers[i].bytes;
  return offset;
}

absl::Status ChunkAssembly::TakeHeader(Cursor& cursor, const std::string& payload, size_t& taken) {
  taken = std::min<uint64_t>(payload.size(), manifest_.header_bytes - header_bytes_.size());
  header_bytes_.append(payload, 0, taken);
  cursor.offset += taken;
  if (header_bytes_.size() < manifest_.header_bytes) return absl::OkStatus();
  ASSIGN_OR_RETURN(codec::ChunkHeader header,
                   codec::ParseChunkHeader(std::as_bytes(std::span(header_bytes_))));
  RETURN_IF_ERROR(CheckHeader(header));
  header_ = std::make_shared<const codec::ChunkHeader>(std::move(header));
  cursor.in_header = false;
  return absl::OkStatus();
}

void ChunkAssembly::TakeSegments(Cursor& cursor, const std::string& payload, size_t& taken,
                                 std::vector<size_t>& completed) {
  while (cursor.layer < cursor.end_layer) {
    const size_t length = manifest_.layers[cursor.layer].group_bytes[cursor.group];
    Segment& segment = segments_[cursor.layer][cursor.group];
    if (segment.bytes == nullptr) segment.bytes = std::make_shared<std::string>();
    const size_t part = std::min(payload.size() - taken, length - segment.bytes->size());
    if (part > 0 && part == length) segment.bytes->reserve(length);
    segment.bytes->append(payload, taken, part);
    taken += part;
    cursor.offset += part;
    if (segment.bytes->size() < length) return;
    segment.complete = true;
    completed.push_back(cursor.group);
    if (++cursor.group < segments_[cursor.layer].size()) continue;
    cursor.group = 0;
    ++cursor.layer;
  }
}

absl::Status ChunkAssembly::CheckHeader(const codec::ChunkHeader& header) const {
  if (header.chunk_key != expected_.chunk_key) {
    return absl::DataLossError("header: chunk_key is another chunk's");
  }
  if (header.namespace_digest != expected_.namespace_digest) {
    return absl::DataLossError("header: namespace_digest is another namespace's");
  }
  if (header.start_token != expected_.start_token || header.num_tokens != expected_.num_tokens) {
    return absl::DataLossError("header: start_token or num_tokens is not the chunk's");
  }
  if (header.profile_id != profile_.id()) {
    return absl::FailedPreconditionError("header: profile_id is not the namespace's");
  }
  RETURN_IF_ERROR(codec::CheckCompatible(profile_, header));
  bool same = header.header_bytes == manifest_.header_bytes &&
              header.layers.size() == manifest_.layers.size();
  for (size_t i = 0; same && i < header.layers.size(); ++i) {
    const std::vector<codec::SegmentEntry>& segments = header.layers[i].segments;
    const ChunkManifest::Layer& layer = manifest_.layers[i];
    same = header.layers[i].level == layer.level && segments.size() == layer.group_bytes.size();
    for (size_t group = 0; same && group < segments.size(); ++group) {
      same = segments[group].bytes == layer.group_bytes[group];
    }
  }
  if (!same) return absl::DataLossError("header: layers are not those of the manifest");
  return absl::OkStatus();
}

}  // namespace sluice::client
