#include "client/node_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace sluice::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(NodeConfigTest, DefaultsAreGood) { EXPECT_THAT(NodeConfig().Faults(), IsEmpty()); }

TEST(NodeConfigTest, ReadsEveryKey) {
  const NodeConfigFile file = ParseNodeConfig(
      "[node]\nserver = 'h:1'\nsocket = '/s'\nchunk_tokens = 64\ndrain_ms = 1\n"
      "profile_cache_dir = '/p'\nprofile_cache_bytes = 4_000_000\nrecord_dir = '/r'\n"
      "max_records = 9\n"
      "[load]\nreserve_ms = 2\ndecode_threads = 8\n[save]\nput_timeout_ms = 3\nthreads = 4\n"
      "[limits]\npools = 5\nloads = 6\nsaves = 7\ntokens_per_request = 5000\n"
      "load_memory_bytes = 2_000_000\nchunk_bytes = 3_000_000\nprofile_memory_bytes = "
      "5\n[log]\nlevel = 'warn'\n",
      "f");
  EXPECT_THAT(file.faults, IsEmpty());
  const NodeConfig& c = file.config;
  EXPECT_THAT(AllFaults(file), IsEmpty());
  EXPECT_EQ(c.server, "h:1");
  EXPECT_EQ(c.socket, "/s");
  EXPECT_EQ(c.log_level, "warn");
  EXPECT_EQ(c.profile_cache_dir, "/p");
  EXPECT_EQ(c.record_dir, "/r");
  EXPECT_THAT((std::vector<uint64_t>{
                  c.chunk_tokens, c.drain_ms, c.reserve_ms, c.decode_threads, c.put_timeout_ms,
                  c.save_threads, c.limits.pools, c.limits.loads, c.limits.saves,
                  c.limits.tokens_per_request, c.limits.load_memory_bytes, c.limits.chunk_bytes,
                  c.profile_cache_bytes, c.limits.profile_memory_bytes, c.max_records}),
              ElementsAre(64, 1, 2, 8, 3, 4, 5, 6, 7, 5000, 2'000'000, 3'000'000, 4'000'000, 5, 9));
}

TEST(NodeConfigTest, ReportsAllFaultsWithLines) {
  const NodeConfigFile file = ParseNodeConfig(
      "[node]\nserver = 3\nsoket = '/s'\n[limits]\nloads = -1\npools = 1.5\nsaves = 5000000000\n"
      "[colour]\nred = 1\n",
      "f");
  EXPECT_THAT(
      AllFaults(file),
      ElementsAre(HasSubstr("f:2: node.server"), HasSubstr("f:3: node.soket is not a known"),
                  HasSubstr("f:5: limits.loads"), HasSubstr("f:6: limits.pools"),
                  HasSubstr("f:7: limits.saves is too large"), HasSubstr("f:8: colour")));
}

TEST(NodeConfigTest, ReportsAllRanges) {
  NodeConfig config;
  config.chunk_tokens = 8;
  config.limits.loads = 0;
  config.socket = std::string(108, 's');
  config.log_level = "loud";
  NodeConfigFile file = {.name = "f", .config = config, .lines = {{"log.level", 4}}};
  EXPECT_THAT(AllFaults(file), ElementsAre(HasSubstr("limits.loads is 0"),
                                           HasSubstr("node.chunk_tokens is 8; 16..4096"),
                                           HasSubstr("node.socket has length 108; 1..107"),
                                           HasSubstr("f:4: log.level is \"loud\"")));
}

TEST(NodeConfigTest, FaultsOfTextAndRangesAreInTheOrderOfLines) {
  const NodeConfigFile file = ParseNodeConfig(
      "[node]\nchunk_tokens = 1\n\n\n\n\n\n\ncolour = 1\nserver = '10.0.0.5'\n", "f");
  EXPECT_THAT(AllFaults(file),
              ElementsAre("f:2: node.chunk_tokens is 1; 16..4096 are allowed",
                          "f:9: node.colour is not a known key",
                          "f:10: node.server is \"10.0.0.5\"; write HOST:PORT or unix:/PATH"));
}

TEST(NodeConfigTest, ServerIsAnAddress) {
  NodeConfig config;
  for (const char* good : {"h:1", "10.0.0.5:65535", "[::1]:7420", "unix:/s"}) {
    config.server = good;
    EXPECT_THAT(config.Faults(), IsEmpty()) << good;
  }
  for (const char* bad : {"10.0.0.5", "10.0.0.5:", ":7420", "h:0", "10.0.0.5:99999", "h:x", "h:-1",
                          "unix:", "::1:", ""}) {
    config.server = bad;
    EXPECT_THAT(config.Faults(), SizeIs(1)) << bad;
  }
}

TEST(NodeConfigTest, RefusesWhatIsNoToml) {
  EXPECT_THAT(ParseNodeConfig("[node\n", "f").faults, SizeIs(1));
  EXPECT_THAT(ParseNodeConfig("a = " + std::string(100000, '['), "f").faults, SizeIs(1));
}

TEST(NodeConfigTest, SampleIsTheDefault) {
  std::ifstream in(SLUICE_SOURCE_DIR "/deploy/sluice-node.toml", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  ASSERT_FALSE(text.empty());
  const NodeConfigFile file = ParseNodeConfig(text, "sample");
  EXPECT_THAT(file.faults, IsEmpty());
  EXPECT_THAT(file.config.Faults(), IsEmpty());
  const NodeConfig defaults;
  EXPECT_EQ(file.config.server, defaults.server);
  EXPECT_EQ(file.config.socket, defaults.socket);
  EXPECT_EQ(file.config.limits.chunk_bytes, defaults.limits.chunk_bytes);
}

}  // namespace
}  // namespace sluice::client
