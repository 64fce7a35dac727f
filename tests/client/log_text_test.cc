#include "client/log_text.h"

#include <gtest/gtest.h>

namespace sluice::client {
namespace {

TEST(NodeLogTextTest, QuotesWhatIsNotOneWord) {
  EXPECT_EQ(Quoted("/dev/shm/pool-1"), "/dev/shm/pool-1");
  EXPECT_EQ(Quoted(""), "\"\"");
  EXPECT_EQ(Quoted("not found: x"), "\"not found: x\"");
  EXPECT_EQ(Quoted("a=b"), "\"a=b\"");
  EXPECT_EQ(Quoted("say \"a\"\n"), "\"say \\\"a\\\"\\n\"");
}

}  // namespace
}  // namespace sluice::client
