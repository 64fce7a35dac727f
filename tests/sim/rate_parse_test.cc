#include "sim/rate_parse.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::sim {
namespace {

constexpr double kMbit = 1e6 / 8;

TEST(SimRateParse, OneValueALine) {
  const auto traces = ParseRates("8\n\n  0.5 # slow\r\n0\n", TraceFormat::kValues);
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_EQ(traces->size(), 1u);
  const RateTrace& trace = traces->front();
  EXPECT_EQ(trace.step_us(), kDefaultStepUs);
  EXPECT_EQ(trace.period_us(), 3 * kDefaultStepUs);
  EXPECT_EQ(trace.RateAt(0), 8 * kMbit);
  EXPECT_EQ(trace.RateAt(kDefaultStepUs), 0.5 * kMbit);
  EXPECT_EQ(trace.RateAt(2 * kDefaultStepUs), 0);
}

TEST(SimRateParse, AHeaderGivesTheStep) {
  for (const char* header : {"# step_ms: 100\n", "# Mbit/s; step_ms: 100, recorded\n"}) {
    const auto traces = ParseRates(std::string(header) + "1\n2\n", TraceFormat::kValues);
    ASSERT_TRUE(traces.ok()) << traces.status();
    EXPECT_EQ(traces->front().step_us(), 100000);
  }
}

TEST(SimRateParse, RowsInGbitAreATraceEach) {
  const auto traces = ParseRates("# Gbit/s\n1 2\t3\n4,5\n", TraceFormat::kValues);
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_EQ(traces->size(), 2u);
  EXPECT_EQ(traces->at(0).period_us(), 3 * kDefaultStepUs);
  EXPECT_EQ(traces->at(1).RateAt(kDefaultStepUs), 5000 * kMbit);
}

TEST(SimRateParse, MahimahiLinesAreTimesOf1500Bytes) {
  const auto traces = ParseRates("1\n2\n9\n25\n", TraceFormat::kMahimahi);
  ASSERT_TRUE(traces.ok()) << traces.status();
  const RateTrace& trace = traces->front();
  EXPECT_DOUBLE_EQ(trace.Amount(0, 10000), 4500);
  EXPECT_DOUBLE_EQ(trace.Amount(10000, 20000), 0);
  EXPECT_DOUBLE_EQ(trace.Amount(20000, 30000), 1500);
}

TEST(SimRateParse, WhatIsNoTraceIsRefusedWithItsLine) {
  const struct {
    const char* text;
    TraceFormat format;
    const char* complaint;
  } kCases[] = {
      {"", TraceFormat::kValues, "no values"},
      {"# only a comment\n", TraceFormat::kValues, "no values"},
      {"1\nfast\n", TraceFormat::kValues, "line 2"},
      {"1\n2\n-3\n", TraceFormat::kValues, "line 3"},
      {"nan\n", TraceFormat::kValues, "line 1"},
      {"inf\n", TraceFormat::kValues, "line 1"},
      {"1e300\n", TraceFormat::kValues, "line 1"},
      {"1 2\n", TraceFormat::kValues, "more than one value"},
      {"# step_ms: soon\n1\n", TraceFormat::kValues, "step_ms"},
      {"# step_ms: 0\n1\n", TraceFormat::kValues, "step_ms"},
      {"# step_ms: 1e12\n1\n", TraceFormat::kValues, "step_ms"},
      {"", TraceFormat::kMahimahi, "no values"},
      {"5\n-1\n", TraceFormat::kMahimahi, "line 2"},
      {"1e9\n", TraceFormat::kMahimahi, "line 1"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.text);
    const auto traces = ParseRates(c.text, c.format);
    ASSERT_FALSE(traces.ok());
    EXPECT_EQ(traces.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(traces.status().message().find(c.complaint), std::string::npos) << traces.status();
  }
  EXPECT_FALSE(ParseRates(std::string(kMaxTraceBytes + 1, '1'), TraceFormat::kValues).ok());
}

}  // namespace
}  // namespace sluice::sim
