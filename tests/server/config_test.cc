#include "server/config.h"

#include "absl/strings/str_join.h"
#include "tests/server/testing.h"

namespace sluice::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ConfigTest, DefaultsNeedADataDirOnly) {
  ConfigFile file = ParseConfig("", "c.toml");
  EXPECT_THAT(AllFaults(file), ElementsAre(HasSubstr("store.data_dir")));
  file.config.data_dir = "/d";
  EXPECT_THAT(AllFaults(file), IsEmpty());
}

TEST(ConfigTest, ReadsEveryKind) {
  const ConfigFile file = ParseConfig(R"(
[server]
listen = ["0.0.0.0:0", "unix:/run/x.sock"]
drain_ms = 100
[store]
data_dir = "/data"
quota = "1.5 TiB"
[cache]
limit = 4096
[limits]
max_frame_bytes = "64 KiB"
[log]
level = "debug"
)",
                                      "c.toml");
  EXPECT_THAT(AllFaults(file), IsEmpty());
  EXPECT_THAT(file.config.listen, ElementsAre("0.0.0.0:0", "unix:/run/x.sock"));
  EXPECT_EQ(file.config.drain_ms, 100u);
  EXPECT_EQ(file.config.quota_bytes, uint64_t{3} << 39);
  EXPECT_EQ(file.config.cache_bytes, 4096u);
  EXPECT_EQ(file.config.limits.max_frame_bytes, 65536u);
  EXPECT_EQ(file.config.log_level, "debug");
}

TEST(ConfigTest, AllFaultsAtOnceWithLines) {
  const ConfigFile file = ParseConfig(R"([server]
listen = ["nowhere"]
drain_ms = 600001
[store]
quota = -1
datadir = "/x"
[limits]
max_uploads = "many"
max_frame_bytes = 1
max_streams = 99999999999
[log]
level = "loud"
[extra]
x = 1
)",
                                      "c.toml");
  const std::string all = absl::StrJoin(AllFaults(file), "\n");
  for (const char* fault :
       {"c.toml:2: server.listen: \"nowhere\"", "c.toml:3: server.drain_ms: 600001",
        "c.toml:5: store.quota: must not be negative",
        "c.toml:6: store.datadir: is not a known key",
        "c.toml:8: limits.max_uploads: \"many\" is not a size",
        "c.toml:9: limits.max_frame_bytes: 1 is not within 4096",
        "c.toml:10: limits.max_streams: must be at most", "c.toml:12: log.level: \"loud\"",
        "extra: is not a known table", "store.data_dir: must be set"}) {
    EXPECT_THAT(all, HasSubstr(fault));
  }
  EXPECT_EQ(AllFaults(file).size(), 10u);
}

TEST(ConfigTest, WhatMayBePutMustFit) {
  Config config;
  config.data_dir = "/d";
  config.quota_bytes = 2 << 20;
  config.limits.max_chunk_bytes = 3 << 20;
  config.profile_quota_bytes = 4 << 20;
  config.limits.max_profile_bytes = 5 << 20;
  std::vector<std::string> keys;
  for (const ConfigFault& fault : CheckConfig(config)) {
    keys.push_back(fault.key + " " + fault.other_key);
  }
  EXPECT_THAT(keys, ElementsAre("limits.max_chunk_bytes store.quota",
                                "limits.max_profile_bytes store.profile_quota"));
  config.limits.max_profile_bytes = uint64_t{5} << 30;
  EXPECT_THAT(CheckConfig(config).at(0).message, HasSubstr("is not within 1024 .. 4294967296"));
}

// The sample names every key with its default.
TEST(ConfigTest, SampleIsTheDefault) {
  const ConfigFile sample =
      ParseConfig(ReadFile(SLUICE_SOURCE_DIR "/deploy/sluiced.toml"), "sluiced.toml");
  EXPECT_THAT(AllFaults(sample), IsEmpty());
  Config config;
  config.data_dir = sample.config.data_dir;
  EXPECT_EQ(sample.config, config);
  EXPECT_EQ(sample.lines.size(), 18u);
}

TEST(ConfigTest, FaultsAreInTheOrderOfLines) {
  const ConfigFile file = ParseConfig(R"([log]
level = "loud"
[store]
data_dir = "/d"
colour = 1





[server]
drain_ms = -1
)",
                                      "c.toml");
  EXPECT_THAT(AllFaults(file),
              ElementsAre(HasSubstr("c.toml:2: log.level"), HasSubstr("c.toml:5: store.colour"),
                          HasSubstr("c.toml:12: server.drain_ms")));
}

TEST(ConfigTest, OneMistakeIsOneFault) {
  for (const char* text : {
           "[store]\ndata_dir = 5\n",
           "[store]\ndata_dir = '/d'\nquota = 'many'\n[limits]\nmax_chunk_bytes = '65 GiB'\n"
           "max_upload_bytes = '65 GiB'\n",
           "[store]\ndata_dir = '/d'\nquota = 5\n",
           "[store]\ndata_dir = '/d'\n[limits]\nmax_upload_bytes = 'many'\n"
           "max_chunk_bytes = '9 GiB'\n",
       }) {
    EXPECT_EQ(AllFaults(ParseConfig(text, "c.toml")).size(), 1u) << text;
  }
}

TEST(ConfigTest, AChunkFitsIntoTheUploads) {
  Config config;
  config.data_dir = "/d";
  config.limits.max_upload_bytes = config.limits.max_chunk_bytes;
  EXPECT_THAT(CheckConfig(config), IsEmpty());
  --config.limits.max_upload_bytes;
  const std::vector<ConfigFault> faults = CheckConfig(config);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].key, "limits.max_chunk_bytes");
}

TEST(ConfigTest, BadSyntaxHasALine) {
  const auto faults = [](const std::string& text) {
    return AllFaults(ParseConfig(text, "c.toml"));
  };
  EXPECT_THAT(faults("[server]\nlisten = \n"), ElementsAre(HasSubstr("c.toml:2")));
  EXPECT_THAT(faults(std::string(100, '[')), ElementsAre(HasSubstr("nested too deeply")));
  EXPECT_THAT(faults("[store]\ndata_dir = '/d'\nquota = 64 GiB  # of it\nx = 1\n"),
              ElementsAre(HasSubstr("c.toml:3: ")));
  EXPECT_THAT(faults("[store]\nquota = 64 GiB  # of it\nx = 1\n"),
              ElementsAre(HasSubstr("write it as a string: \"64 GiB\"")));
}

TEST(ConfigTest, Sizes) {
  EXPECT_EQ(*ParseBytes("123"), 123u);
  EXPECT_EQ(*ParseBytes(" 2 KiB "), 2048u);
  EXPECT_EQ(*ParseBytes("2MB"), 2000000u);
  EXPECT_EQ(*ParseBytes("0.5 GiB"), uint64_t{1} << 29);
  for (const char* bad : {"", "-1", "1 kib", "1e3", "x", "1.2.3", "99999999 TiB", "KiB"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace sluice::server
