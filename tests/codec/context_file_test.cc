#include "codec/context_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/bytes.h"
#include "tests/golden/golden_cases.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

TEST(ContextFileTest, ReadsBackWhatItWrote) {
  const ContextFile file = ExampleContextFile();
  ASSERT_TRUE(file.Validate().ok()) << file.Validate();
  const auto parsed = ParseContextFile(AsBytes(SerializeContextFile(file)));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, file);
}

TEST(ContextFileTest, TokensMayBeUnknown) {
  ContextFile file = ExampleContextFile();
  file.token_ids.clear();
  ASSERT_TRUE(file.Validate().ok());
  const auto parsed = ParseContextFile(AsBytes(SerializeContextFile(file)));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->token_ids.empty());
}

TEST(ContextFileTest, EveryTruncationIsRefused) {
  const std::string bytes = SerializeContextFile(ExampleContextFile());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ParseContextFile(AsBytes(bytes).first(size)).ok()) << size;
  }
}

TEST(ContextFileTest, ValidateNamesWhatDoesNotFit) {
  const auto message = [](auto change) {
    ContextFile file = ExampleContextFile();
    change(file);
    return std::string(file.Validate().message());
  };
  EXPECT_THAT(message([](ContextFile& f) { f.descriptor.model.clear(); }), HasSubstr("model"));
  EXPECT_THAT(message([](ContextFile& f) { f.token_ids.resize(16); }), HasSubstr("num_tokens"));
  EXPECT_THAT(message([](ContextFile& f) { f.token_ids.resize(ContextFile::kMaxTokens + 1); }),
              HasSubstr("number of tokens"));
  EXPECT_THAT(message([](ContextFile& f) { f.containers.resize(ContextFile::kMaxChunks + 1); }),
              HasSubstr("number of chunks"));
  EXPECT_THAT(message([](ContextFile& f) { f.metadata[std::string(257, 'k')] = ""; }),
              HasSubstr("metadata key"));
  EXPECT_THAT(message([](ContextFile& f) { f.metadata["k"] = std::string((1 << 20) + 1, 'v'); }),
              HasSubstr("metadata value"));
  EXPECT_THAT(message([](ContextFile& f) {
                for (int i = 0; i < 1025; ++i) f.metadata[std::to_string(i)] = "";
              }),
              HasSubstr("metadata entries"));
}

}  // namespace
}  // namespace sluice::codec
