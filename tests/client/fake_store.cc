#include "tests/client/fake_store.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "codec/container.h"

namespace sluice::client {
namespace {

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

v1::ChunkManifest Manifest(const std::string& container) {
  v1::ChunkManifest manifest;
  const auto header = codec::ParseChunkHeader(AsBytes(container));
  if (!header.ok()) return manifest;
  manifest.set_found(true);
  manifest.set_start_token(header->start_token);
  manifest.set_num_tokens(header->num_tokens);
  manifest.set_header_bytes(header->header_bytes);
  manifest.set_total_bytes(header->total_bytes());
  for (const codec::LayerEntry& layer : header->layers) {
    v1::LayerManifest* message = manifest.add_layers();
    message->set_level(layer.level);
    message->set_mean_error(layer.mean_error);
    for (const codec::SegmentEntry& segment : layer.segments) {
      message->add_group_bytes(segment.bytes);
    }
  }
  return manifest;
}

}  // namespace

FakeStore::FakeStore() : FakeStore(Faults()) {}

FakeStore::FakeStore(Faults faults) : faults_(std::move(faults)) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(this);
  builder.SetMaxReceiveMessageSize(64 << 20);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // as sluiced
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20);
  server_ = builder.BuildAndStart();
  address_ = absl::StrCat("127.0.0.1:", port);
}

FakeStore::~FakeStore() { Kill(); }

void FakeStore::Kill() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_.reset();
}

void FakeStore::AddChunk(const std::string& key, std::string container) {
  absl::MutexLock lock(&mutex_);
  containers_[key] = std::move(container);
}

std::string FakeStore::Container(const std::string& key) const {
  absl::MutexLock lock(&mutex_);
  const auto found = containers_.find(key);
  return found == containers_.end() ? "" : found->second;
}

size_t FakeStore::num_chunks() const {
  absl::MutexLock lock(&mutex_);
  return containers_.size();
}

v1::BeginPutRequest FakeStore::last_put() const {
  absl::MutexLock lock(&mutex_);
  return last_put_;
}

int FakeStore::num_lookups() const {
  absl::MutexLock lock(&mutex_);
  return num_lookups_;
}

int FakeStore::num_puts() const {
  absl::MutexLock lock(&mutex_);
  return num_puts_;
}

bool FakeStore::Hold(grpc::ServerContext* context) {
  while (faults_.hold) {
    if (released_.WaitForNotificationWithTimeout(absl::Milliseconds(5))) break;
    if (context->IsCancelled()) return false;
  }
  return true;
}

grpc::Status FakeStore::GetCapabilities(grpc::ServerContext* /*context*/,
                                        const v1::GetCapabilitiesRequest* /*request*/,
                                        v1::GetCapabilitiesResponse* response) {
  response->set_server("fake 1");
  response->set_container_version(codec::kContainerVersion);
  response->set_max_frame_bytes(1 << 20);
  response->set_max_keys_per_request(16);
  response->set_max_chunk_bytes(1 << 30);
  response->set_max_asks_in_flight(64);
  response->set_max_profile_bytes(1 << 20);
  if (faults_.tamper_capabilities) faults_.tamper_capabilities(*response);
  return grpc::Status::OK;
}

grpc::Status FakeStore::Lookup(grpc::ServerContext* context, const v1::LookupRequest* request,
                               v1::LookupResponse* response) {
  if (!Hold(context)) return grpc::Status::CANCELLED;
  absl::MutexLock lock(&mutex_);
  ++num_lookups_;
  for (const std::string& key : request->chunk_keys()) {
    const auto found = containers_.find(key);
    *response->add_chunks() =
        found == containers_.end() ? v1::ChunkManifest() : Manifest(found->second);
  }
  if (faults_.tamper_lookup) faults_.tamper_lookup(*response);
  return grpc::Status::OK;
}

bool FakeStore::SendRange(grpc::ServerReaderWriter<v1::FetchFrame, v1::FetchRequest>* stream,
                          const v1::FetchAsk& ask, const std::string& container, uint64_t begin,
                          uint64_t end) {
  for (uint64_t offset = begin; offset < end; offset += faults_.frame_bytes) {
    v1::FetchFrame frame;
    frame.set_ask_id(ask.ask_id());
    frame.set_offset(offset);
    frame.set_payload(container.substr(offset, std::min(faults_.frame_bytes, end - offset)));
    frame.set_checksum(codec::Checksum(AsBytes(frame.payload())));
    frame.set_last(offset + frame.payload().size() == end);
    if (faults_.tamper_frame) faults_.tamper_frame(frame);
    if (!stream->Write(frame)) return false;
  }
  return true;
}

bool FakeStore::Answer(grpc::ServerReaderWriter<v1::FetchFrame, v1::FetchRequest>* stream,
                       const v1::FetchAsk& ask) {
  const std::string container = Container(ask.chunk_key());
  const auto header = codec::ParseChunkHeader(AsBytes(container));
  if (!header.ok() || ask.first_layer() + ask.num_layers() > header->layers.size()) {
    v1::FetchFrame frame;
    frame.set_ask_id(ask.ask_id());
    frame.set_last(true);
    frame.set_result(v1::FETCH_NOT_FOUND);
    frame.set_message("no such chunk or layer");
    return stream->Write(frame);
  }
  const uint64_t begin = header->LayerOffset(ask.first_layer());
  uint64_t end = begin;
  for (uint32_t i = 0; i < ask.num_layers(); ++i) {
    end += header->layers[ask.first_layer() + i].bytes();
  }
  if (ask.with_header() && ask.first_layer() == 0) {
    return SendRange(stream, ask, container, 0, end);
  }
  if (ask.with_header()) {
    v1::FetchFrame frame;
    frame.set_ask_id(ask.ask_id());
    frame.set_payload(container.substr(0, header->header_bytes));
    frame.set_checksum(codec::Checksum(AsBytes(frame.payload())));
    if (!stream->Write(frame)) return false;
  }
  return SendRange(stream, ask, container, begin, end);
}

grpc::Status FakeStore::Fetch(grpc::ServerContext* context,
                              grpc::ServerReaderWriter<v1::FetchFrame, v1::FetchRequest>* stream) {
  v1::FetchRequest request;
  if (!stream->Read(&request) || !request.has_open()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "open comes first"};
  }
  while (stream->Read(&request)) {
    if (!request.has_ask()) continue;
    if (!Hold(context)) return grpc::Status::CANCELLED;
    if (!Answer(stream, request.ask())) break;
  }
  return grpc::Status::OK;
}

grpc::Status FakeStore::BeginPut(grpc::ServerContext* /*context*/,
                                 const v1::BeginPutRequest* request,
                                 v1::BeginPutResponse* response) {
  absl::MutexLock lock(&mutex_);
  if (containers_.contains(request->chunk_key())) {
    response->set_already_stored(true);
    return grpc::Status::OK;
  }
  const std::string& profile_id = request->namespace_().profile_id();
  if (!profiles_.contains(profile_id)) {
    response->set_profile_needed(true);
    return grpc::Status::OK;
  }
  const uint64_t id = uploads_.size() + 1;
  uploads_[id].first = *request;
  response->set_upload_id(id);
  response->set_upload_ttl_ms(1000);
  return grpc::Status::OK;
}

grpc::Status FakeStore::PutFrame(grpc::ServerContext* /*context*/,
                                 grpc::ServerReader<v1::PutFrameRequest>* reader,
                                 v1::PutFrameResponse* response) {
  v1::PutFrameRequest frame;
  while (reader->Read(&frame)) {
    absl::MutexLock lock(&mutex_);
    std::string& bytes = uploads_[frame.upload_id()].second;
    if (frame.offset() != bytes.size() || frame.payload().size() > (1 << 20) ||
        codec::Checksum(AsBytes(frame.payload())) != frame.checksum()) {
      return {grpc::StatusCode::DATA_LOSS, "frame out of order, too long or damaged"};
    }
    bytes += frame.payload();
    response->set_received_bytes(bytes.size());
  }
  if (faults_.tamper_received) faults_.tamper_received(*response);
  return grpc::Status::OK;
}

grpc::Status FakeStore::CommitPut(grpc::ServerContext* /*context*/,
                                  const v1::CommitPutRequest* request,
                                  v1::CommitPutResponse* response) {
  absl::MutexLock lock(&mutex_);
  auto& [announcement, bytes] = uploads_[request->upload_id()];
  response->set_already_stored(containers_.contains(announcement.chunk_key()));
  if (!response->already_stored()) containers_[announcement.chunk_key()] = bytes;
  last_put_ = announcement;
  ++num_puts_;
  return grpc::Status::OK;
}

grpc::Status FakeStore::PutProfile(grpc::ServerContext* /*context*/,
                                   grpc::ServerReader<v1::PutProfileRequest>* reader,
                                   v1::PutProfileResponse* response) {
  v1::PutProfileRequest request;
  std::string id, profile;
  while (reader->Read(&request)) {
    if (profile.empty()) id = request.profile_id();
    const v1::ProfileFrame& frame = request.frame();
    if (frame.offset() != profile.size() ||
        codec::Checksum(AsBytes(frame.payload())) != frame.checksum()) {
      return {grpc::StatusCode::DATA_LOSS, "frame out of order or damaged"};
    }
    profile += frame.payload();
  }
  if (profile.size() != request.frame().total_bytes()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "total_bytes"};
  }
  absl::MutexLock lock(&mutex_);
  if (num_put_profiles_++ >= faults_.forget_profiles) profiles_[id] = profile;
  return grpc::Status::OK;
}

grpc::Status FakeStore::GetProfile(grpc::ServerContext* context,
                                   const v1::GetProfileRequest* request,
                                   grpc::ServerWriter<v1::ProfileFrame>* writer) {
  {
    absl::MutexLock lock(&mutex_);
    ++num_get_profiles_;
  }
  if (!Hold(context)) return grpc::Status::CANCELLED;
  const std::string profile = StoredProfile(request->profile_id());
  if (profile.empty()) return {grpc::StatusCode::NOT_FOUND, "no such profile"};
  for (size_t offset = 0; offset < profile.size(); offset += faults_.profile_frame_bytes) {
    v1::ProfileFrame frame;
    frame.set_offset(offset);
    frame.set_total_bytes(profile.size());
    frame.set_payload(profile.substr(offset, faults_.profile_frame_bytes));
    frame.set_checksum(codec::Checksum(AsBytes(frame.payload())));
    if (faults_.tamper_profile) faults_.tamper_profile(frame);
    if (!writer->Write(frame)) break;
  }
  return grpc::Status::OK;
}

void FakeStore::AddProfile(const std::string& profile) {
  absl::MutexLock lock(&mutex_);
  profiles_[std::string(codec::DigestBytes(codec::Sha256(AsBytes(profile))))] = profile;
}

std::string FakeStore::StoredProfile(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = profiles_.find(id);
  return found == profiles_.end() ? "" : found->second;
}

int FakeStore::num_get_profiles() const {
  absl::MutexLock lock(&mutex_);
  return num_get_profiles_;
}

grpc::Status FakeStore::ListNamespaces(grpc::ServerContext* /*context*/,
                                       const v1::ListNamespacesRequest* /*request*/,
                                       v1::ListNamespacesResponse* response) {
  v1::NamespaceInfo* info = response->add_namespaces();
  info->set_namespace_digest("short");  // 32 bytes are expected
  return grpc::Status::OK;
}

}  // namespace sluice::client
