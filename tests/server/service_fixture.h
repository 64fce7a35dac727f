// A server in this process, on a free port, and a plain client for it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/chunk_cache.h"
#include "server/file_store.h"
#include "server/service.h"
#include "server/service_server.h"
#include "sluice/v1/store.grpc.pb.h"
#include "tests/server/testing.h"

namespace sluice::server {

// What came back for one ask.
struct Answer {
  std::string bytes;
  std::vector<uint64_t> offsets;
  v1::FetchResult result = v1::FETCH_OK;
  std::string message;
};

class ServiceTest : public testing::Test {
 protected:
  void Start(Config config = {}) {
    config.listen = {"127.0.0.1:0"};
    config_ = config;
    FileStoreOptions options;
    options.data_dir = folder_.path() + "/data";
    options.quota_bytes = config.quota_bytes;
    options.profile_quota_bytes = config.profile_quota_bytes;
    options.clock = clock_.clock();
    auto store = FileStore::Open(std::move(options));
    ASSERT_THAT(store.status(), IsOk());
    store_ = *std::move(store);
    cache_ = std::make_unique<ChunkCache>(store_.get(), config.cache_bytes,
                                          config.cache_max_chunk_bytes());
    service_ =
        std::make_unique<StoreService>(store_.get(), cache_.get(), config.limits, clock_.clock());
    auto server = RpcServer::Start(config, service_.get());
    ASSERT_THAT(server.status(), IsOk());
    server_ = *std::move(server);
    // A fixed receive window, so that what a slow reader takes does not depend on the machine's
    // speed.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    channel_ = grpc::CreateCustomChannel(server_->addresses()[0],
                                         grpc::InsecureChannelCredentials(), arguments);
    stub_ = v1::Store::NewStub(channel_);
  }

  // A context whose calls end after half a minute at the latest.
  static std::unique_ptr<grpc::ClientContext> Context() {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    return context;
  }

  static std::string Raw(const Digest& digest) { return std::string(codec::DigestBytes(digest)); }

  static v1::BeginPutRequest Announce(const TestChunk& chunk) {
    v1::BeginPutRequest request;
    request.mutable_namespace_()->set_model(chunk.descriptor.model);
    request.mutable_namespace_()->set_chunk_tokens(chunk.descriptor.chunk_tokens);
    request.mutable_namespace_()->set_profile_id(Raw(chunk.descriptor.profile_id));
    request.set_chunk_key(Raw(chunk.id.key));
    if (chunk.parent) request.set_parent_key(Raw(*chunk.parent));
    request.set_total_bytes(chunk.container.size());
    return request;
  }

  grpc::Status Begin(const v1::BeginPutRequest& request, v1::BeginPutResponse* response) {
    return stub_->BeginPut(Context().get(), request, response);
  }
  // Puts the profile first, if it is needed.
  grpc::Status Begin(const TestChunk& chunk, v1::BeginPutResponse* response) {
    grpc::Status status = Begin(Announce(chunk), response);
    if (!status.ok() || !response->profile_needed()) return status;
    status = SendProfile(ProfileFrames(ProfileId(chunk.profile), chunk.profile));
    return status.ok() ? Begin(Announce(chunk), response) : status;
  }

  static std::vector<v1::PutProfileRequest> ProfileFrames(const Digest& id,
                                                          const std::string& profile,
                                                          size_t frame_bytes = 1 << 20) {
    std::vector<v1::PutProfileRequest> requests;
    for (size_t at = 0; at < profile.size(); at += frame_bytes) {
      v1::PutProfileRequest& request = requests.emplace_back();
      if (at == 0) request.set_profile_id(Raw(id));
      v1::ProfileFrame& frame = *request.mutable_frame();
      frame.set_offset(at);
      frame.set_payload(profile.substr(at, frame_bytes));
      frame.set_checksum(codec::Checksum(std::as_bytes(std::span(frame.payload()))));
      frame.set_total_bytes(profile.size());
    }
    return requests;
  }

  grpc::Status SendProfile(const std::vector<v1::PutProfileRequest>& requests,
                           bool* already_stored = nullptr) {
    auto context = Context();
    v1::PutProfileResponse response;
    auto writer = stub_->PutProfile(context.get(), &response);
    for (const v1::PutProfileRequest& request : requests) {
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (already_stored != nullptr) *already_stored = response.already_stored();
    return status;
  }

  grpc::Status GetProfile(const Digest& id, std::string* profile, size_t* frames = nullptr) {
    auto context = Context();
    v1::GetProfileRequest request;
    request.set_profile_id(Raw(id));
    auto reader = stub_->GetProfile(context.get(), request);
    v1::ProfileFrame frame;
    profile->clear();
    while (reader->Read(&frame)) {
      EXPECT_EQ(frame.offset(), profile->size());
      EXPECT_EQ(codec::Checksum(std::as_bytes(std::span(frame.payload()))), frame.checksum());
      profile->append(frame.payload());
      if (frames != nullptr) ++*frames;
    }
    return reader->Finish();
  }

  static v1::PutFrameRequest MakeFrame(uint64_t upload, uint64_t offset, std::string payload) {
    v1::PutFrameRequest frame;
    frame.set_upload_id(upload);
    frame.set_offset(offset);
    frame.set_checksum(codec::Checksum(std::as_bytes(std::span(payload))));
    frame.set_payload(std::move(payload));
    return frame;
  }

  grpc::Status Send(const std::vector<v1::PutFrameRequest>& frames, uint64_t* received = nullptr) {
    auto context = Context();
    v1::PutFrameResponse response;
    auto writer = stub_->PutFrame(context.get(), &response);
    for (const v1::PutFrameRequest& frame : frames) {
      if (!writer->Write(frame)) break;
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (received != nullptr) *received = response.received_bytes();
    return status;
  }

  grpc::Status Commit(uint64_t upload, bool* already_stored = nullptr) {
    v1::CommitPutRequest request;
    request.set_upload_id(upload);
    v1::CommitPutResponse response;
    const grpc::Status status = stub_->CommitPut(Context().get(), request, &response);
    if (already_stored != nullptr) *already_stored = response.already_stored();
    return status;
  }

  grpc::Status Put(const TestChunk& chunk, size_t frame_bytes = 1 << 20) {
    v1::BeginPutResponse begun;
    grpc::Status status = Begin(chunk, &begun);
    if (!status.ok() || begun.already_stored()) return status;
    std::vector<v1::PutFrameRequest> frames;
    for (size_t at = 0; at < chunk.container.size(); at += frame_bytes) {
      frames.push_back(MakeFrame(begun.upload_id(), at, chunk.container.substr(at, frame_bytes)));
    }
    status = Send(frames);
    return status.ok() ? Commit(begun.upload_id()) : status;
  }

  struct Load {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::FetchRequest, v1::FetchFrame>> stream;
  };

  Load Open(const Digest& namespace_digest) {
    Load load{Context(), nullptr};
    load.stream = stub_->Fetch(load.context.get());
    v1::FetchRequest request;
    request.mutable_open()->set_namespace_digest(Raw(namespace_digest));
    request.mutable_open()->set_load_id("test load");
    load.stream->Write(request);  // fails if the server has refused the stream by now
    return load;
  }

  static v1::FetchRequest MakeAsk(uint32_t id, const Digest& key, uint32_t first, uint32_t count,
                                  v1::FetchClass fetch_class = v1::FETCH_CLASS_BASE,
                                  bool with_header = false, uint32_t deadline_ms = 0) {
    v1::FetchRequest request;
    v1::FetchAsk* ask = request.mutable_ask();
    ask->set_ask_id(id);
    ask->set_chunk_key(Raw(key));
    ask->set_first_layer(first);
    ask->set_num_layers(count);
    ask->set_fetch_class(fetch_class);
    ask->set_with_header(with_header);
    ask->set_deadline_ms(deadline_ms);
    return request;
  }

  // Closes the client's side and collects all answers by ask id; `order` gets the ids of the
  // frames.
  static std::map<uint32_t, Answer> Collect(Load& load, grpc::Status* status = nullptr,
                                            std::vector<uint32_t>* order = nullptr) {
    load.stream->WritesDone();
    std::map<uint32_t, Answer> answers;
    v1::FetchFrame frame;
    while (load.stream->Read(&frame)) {
      EXPECT_EQ(codec::Checksum(std::as_bytes(std::span(frame.payload()))), frame.checksum());
      Answer& answer = answers[frame.ask_id()];
      answer.bytes += frame.payload();
      answer.offsets.push_back(frame.offset());
      answer.result = frame.result();
      answer.message = frame.message();
      if (order != nullptr) order->push_back(frame.ask_id());
    }
    const grpc::Status end = load.stream->Finish();
    if (status != nullptr) *status = end;
    return answers;
  }

  v1::StatsResponse Stats() {
    v1::StatsResponse response;
    EXPECT_TRUE(stub_->Stats(Context().get(), {}, &response).ok());
    return response;
  }

  TestFolder folder_;
  FakeClock clock_;
  Config config_;
  std::unique_ptr<FileStore> store_;
  std::unique_ptr<ChunkCache> cache_;
  std::unique_ptr<StoreService> service_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Store::Stub> stub_;
};

MATCHER_P2(GrpcStatusIs, code, matcher, "") {
  *result_listener << arg.error_code() << " " << arg.error_message();
  return arg.error_code() == code && testing::Value(arg.error_message(), matcher);
}

}  // namespace sluice::server
