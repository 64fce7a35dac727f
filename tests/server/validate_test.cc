// Every field of every request that has a rule, and the message that names it.
#include "server/validate.h"

#include "tests/server/testing.h"

namespace sluice::server {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

const std::string kDigest(32, 'd');

Limits SmallLimits() {
  Limits limits;
  limits.max_keys_per_request = 2;
  limits.max_frame_bytes = 4096;
  limits.max_chunk_bytes = 10000;
  limits.max_profile_bytes = 1024;
  return limits;
}

TEST(ValidateTest, LookupAndSelector) {
  v1::LookupRequest lookup;
  EXPECT_THAT(ReadLookup(lookup, SmallLimits()).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("namespace_digest")));
  lookup.set_namespace_digest(kDigest);
  EXPECT_THAT(ReadLookup(lookup, SmallLimits()).status(), IsOk());
  lookup.add_chunk_keys("short");
  EXPECT_THAT(ReadLookup(lookup, SmallLimits()).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("chunk_keys")));
  v1::Selector selector;
  selector.set_namespace_digest(kDigest);
  selector.set_idle_at_least_ms(~uint64_t{0});
  for (int i = 0; i < 3; ++i) selector.add_chunk_keys(kDigest);
  EXPECT_THAT(ReadSelector(selector, SmallLimits()).status(),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("max_keys_per_request = 2")));
  selector.mutable_chunk_keys()->RemoveLast();
  EXPECT_GT(ReadSelector(selector, SmallLimits())->idle_at_least, absl::Hours(24));
}

TEST(ValidateTest, FetchOpen) {
  v1::FetchOpen open;
  open.set_namespace_digest(kDigest);
  open.set_load_id("a b\"c\n");
  EXPECT_EQ(ReadFetchOpen(open)->load_id, "a_b_c_");
  open.set_load_id(std::string(65, 'x'));
  EXPECT_THAT(ReadFetchOpen(open).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("load_id")));
}

TEST(ValidateTest, FetchAsk) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  v1::FetchAsk good;
  good.set_ask_id(1);
  good.set_chunk_key(kDigest);
  good.set_num_layers(1);
  good.set_fetch_class(v1::FETCH_CLASS_BASE);
  good.set_deadline_ms(7);
  EXPECT_EQ(ReadFetchAsk(good, now)->deadline, now + absl::Milliseconds(7));
  auto refuse = [&](auto change, const std::string& field) {
    v1::FetchAsk bad = good;
    change(bad);
    EXPECT_THAT(ReadFetchAsk(bad, now).status(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(field)));
  };
  refuse([](v1::FetchAsk& ask) { ask.set_ask_id(0); }, "ask_id");
  refuse([](v1::FetchAsk& ask) { ask.set_chunk_key("x"); }, "chunk_key");
  refuse([](v1::FetchAsk& ask) { ask.set_num_layers(0); }, "num_layers");
  refuse([](v1::FetchAsk& ask) { ask.set_first_layer(~0u); }, "first_layer");
  refuse([](v1::FetchAsk& ask) { ask.set_fetch_class(v1::FETCH_CLASS_UNSPECIFIED); },
         "fetch_class");
  refuse([](v1::FetchAsk& ask) { ask.set_fetch_class(static_cast<v1::FetchClass>(9)); },
         "fetch_class");
}

TEST(ValidateTest, BeginPut) {
  v1::BeginPutRequest good;
  good.mutable_namespace_()->set_model("m");
  good.mutable_namespace_()->set_chunk_tokens(256);
  good.mutable_namespace_()->set_profile_id(kDigest);
  good.set_chunk_key(kDigest);
  good.set_total_bytes(1000);
  ASSERT_THAT(ReadBeginPut(good, SmallLimits()).status(), IsOk());
  auto refuse = [&](auto change, StatusCode code, const std::string& field) {
    v1::BeginPutRequest bad = good;
    change(bad);
    EXPECT_THAT(ReadBeginPut(bad, SmallLimits()).status(), StatusIs(code, HasSubstr(field)));
  };
  const StatusCode invalid = StatusCode::kInvalidArgument;
  const StatusCode exhausted = StatusCode::kResourceExhausted;
  using Request = v1::BeginPutRequest;
  refuse([](Request& r) { r.clear_namespace_(); }, invalid, "namespace");
  refuse([](Request& r) { r.mutable_namespace_()->clear_model(); }, invalid, "model");
  refuse([](Request& r) { r.mutable_namespace_()->set_salt(std::string(257, 's')); }, invalid,
         "salt");
  refuse([](Request& r) { r.mutable_namespace_()->set_chunk_tokens(1); }, invalid, "chunk_tokens");
  refuse([](Request& r) { r.mutable_namespace_()->set_profile_id("x"); }, invalid, "profile_id");
  refuse([](Request& r) { r.set_chunk_key(""); }, invalid, "chunk_key");
  refuse([](Request& r) { r.set_parent_key("x"); }, invalid, "parent_key");
  refuse([](Request& r) { r.set_total_bytes(1); }, invalid, "total_bytes");
  refuse([](Request& r) { r.set_total_bytes(10001); }, exhausted, "max_chunk_bytes");
}

TEST(ValidateTest, PutFrame) {
  v1::PutFrameRequest frame;
  frame.set_upload_id(1);
  EXPECT_THAT(CheckPutFrame(frame, SmallLimits()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("payload")));
  frame.set_payload(std::string(4097, 'x'));
  EXPECT_THAT(CheckPutFrame(frame, SmallLimits()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_frame_bytes")));
  frame.set_payload("x");
  EXPECT_THAT(CheckPutFrame(frame, SmallLimits()),
              StatusIs(StatusCode::kDataLoss, HasSubstr("checksum")));
  frame.set_upload_id(0);
  EXPECT_THAT(CheckPutFrame(frame, SmallLimits()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("upload_id")));
}

TEST(ValidateTest, ListChunks) {
  v1::ListChunksRequest list;
  list.set_namespace_digest(kDigest);
  EXPECT_EQ(ReadListChunks(list, SmallLimits())->limit, 2u);
  list.set_page_size(3);
  EXPECT_THAT(ReadListChunks(list, SmallLimits()).status(),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("page_size")));
  list.set_page_size(1);
  list.set_after_key("x");
  EXPECT_THAT(ReadListChunks(list, SmallLimits()).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("after_key")));
}

}  // namespace
}  // namespace sluice::server
