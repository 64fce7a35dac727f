#include "codec/calibrate/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "codec/bytes.h"
#include "codec/calibrate/linear_algebra.h"
#include "tests/codec/level_checks.h"
#include "tests/codec/test_chunks.h"

namespace sluice::codec {
namespace {

using ::testing::HasSubstr;

// Contexts of a model whose planes are mixtures of few causes, as those of real models are.
class Model {
 public:
  Model(Geometry geometry, uint32_t num_contexts, uint32_t num_tokens)
      : geometry_(std::move(geometry)), num_tokens_(num_tokens) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    size_t channels = 0;
    for (const PlaneSpec& plane : geometry_.planes) channels += plane.channels();
    mixture_.resize(channels * kCauses);
    for (float& weight : mixture_) weight = normal(random);
    for (uint32_t c = 0; c < num_contexts; ++c) planes_.push_back(MakePlanes(random));
  }

  Contexts contexts() const {
    Contexts contexts{.geometry = geometry_, .plane_names = {}, .contexts = {}};
    for (size_t i = 0; i < geometry_.planes.size(); ++i) {
      contexts.plane_names.push_back("plane " + std::to_string(i));
    }
    for (size_t c = 0; c < planes_.size(); ++c) {
      TrainingContext& context = contexts.contexts.emplace_back();
      context.name = "context " + std::to_string(c);
      context.num_tokens = num_tokens_;
      for (const std::string& plane : planes_[c]) context.planes.push_back(AsBytes(plane));
    }
    return contexts;
  }

  std::vector<std::vector<std::string>>& planes() { return planes_; }
  const Geometry& geometry() const { return geometry_; }

  // The first `num_tokens` tokens of a new context.
  TestChunk MakeTestChunk(const Profile& profile) const {
    std::mt19937 random(99);
    return {profile, 0, num_tokens_, MakePlanes(random)};
  }

 private:
  static constexpr size_t kCauses = 6;

  std::vector<std::string> MakePlanes(std::mt19937& random) const {
    std::normal_distribution<float> normal;
    std::vector<float> causes(kCauses * num_tokens_);
    for (float& cause : causes) cause = normal(random);
    std::vector<std::string> planes;
    size_t first = 0;
    for (const PlaneSpec& spec : geometry_.planes) {
      std::string& plane = planes.emplace_back(num_tokens_ * spec.bytes_per_token(), '\0');
      for (size_t channel = 0; channel < spec.channels(); ++channel) {
        const float* weights = mixture_.data() + (first + channel) * kCauses;
        const size_t head = channel / spec.head_dim;
        for (size_t t = 0; t < num_tokens_; ++t) {
          float value = 3 + 0.05f * normal(random);
          for (size_t k = 0; k < kCauses; ++k) value += weights[k] * causes[t * kCauses + k];
          SetElement(spec, plane,
                     (head * num_tokens_ + t) * spec.head_dim + channel % spec.head_dim, value);
        }
      }
      first += spec.channels();
    }
    return planes;
  }

  const Geometry geometry_;
  const uint32_t num_tokens_;
  std::vector<float> mixture_;
  std::vector<std::vector<std::string>> planes_;
};

Geometry SmallGeometry() { return KeysAndValues(3, 2, 8); }

TEST(CalibrateTest, MakesAProfileThatBeatsTheBuiltInOne) {
  const Model model(SmallGeometry(), 5, 256);
  const auto result = Calibrate(model.contexts(), {}, nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.group_layers, 3u);
  EXPECT_EQ(result->profile.groups().size(), 1u);
  EXPECT_EQ(result->profile.calibration()->num_contexts, 4u);
  const TestChunk chunk = model.MakeTestChunk(result->profile);
  const EncodedChunk encoded = chunk.Encode();
  CheckLossyLevels(chunk, encoded);
  TestChunk plain = chunk;
  plain.profile = *Profile::Builtin(model.geometry());
  const LevelReport good = encoded.levels[2];
  const LevelReport poor = plain.Encode().levels[2];
  // At equal error a bit is a factor of two.
  EXPECT_LT(good.bits_per_element + std::log2(good.mean_error),
            poor.bits_per_element + std::log2(poor.mean_error) - 0.5);
}

TEST(CalibrateTest, IsDeterministic) {
  const Model model(SmallGeometry(), 4, 128);
  const auto once = Calibrate(model.contexts(), {}, nullptr);
  const auto again = Calibrate(model.contexts(), {}, nullptr);
  ASSERT_TRUE(once.ok() && again.ok()) << once.status() << again.status();
  EXPECT_EQ(once->profile.id(), again->profile.id());
}

TEST(CalibrateTest, StepsAreHalfwayBetweenMeasurementAndGuess) {
  const Model model(SmallGeometry(), 4, 128);
  CalibrateOptions options;
  options.group_layers = 1;
  const auto guess = Calibrate(model.contexts(), options, nullptr);
  ASSERT_TRUE(guess.ok()) << guess.status();
  const double guessed_ratio = guess->profile.step(0) / guess->profile.step(1);
  for (size_t i = 0; i < 6; ++i) options.sensitivities.push_back(i % 2 == 0 ? 0.01 : 1);
  const auto result = Calibrate(model.contexts(), options, nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->profile.groups().size(), 3u);
  EXPECT_NEAR(result->profile.step(0) / result->profile.step(1), std::sqrt(10 * guessed_ratio),
              0.01);
  EXPECT_GT(result->profile.calibration()->levels[0].predicted_kl,
            result->profile.calibration()->levels[2].predicted_kl);
}

TEST(CalibrateTest, FinestLevelMeetsTheTargetOnHeldOutTokens) {
  // In fp32: rounding to a coarser element type adds to the error.
  const Model model(KeysAndValues(3, 2, 8, ElementType::kFp32), 8, 256);
  for (double target : {1e-4, 1e-3, 1e-2}) {
    CalibrateOptions options;
    options.target_kl = target;
    const auto result = Calibrate(model.contexts(), options, nullptr);
    ASSERT_TRUE(result.ok()) << result.status();
    const double predicted = result->profile.calibration()->levels[2].predicted_kl;
    EXPECT_NEAR(predicted / target, 1, 0.15) << "target " << target;
    EXPECT_EQ(result->report.held_out_tokens, 256u);
  }
}

TEST(CalibrateTest, SinksAreTheFirstTokensUnlikeTheRest) {
  Model model(SmallGeometry(), 4, 128);
  const auto sinks = [&] {
    const auto result = Calibrate(model.contexts(), {}, nullptr);
    return result.ok() ? result->profile.sink_tokens() : 0;
  };
  EXPECT_EQ(sinks(), 1u);
  for (auto& planes : model.planes()) {
    for (size_t i = 0; i < planes.size(); i += 2) {
      SetElement(model.geometry().planes[i], planes[i], 2 * 8 + 3, 100);  // token 2
    }
  }
  EXPECT_EQ(sinks(), 3u);
}

TEST(CalibrateTest, FewTokensMakeSmallerGroupsWorthATry) {
  const Model model(KeysAndValues(4, 2, 16), 4, 128);
  const auto result = Calibrate(model.contexts(), {}, nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_GE(result->report.tried_group_layers.size(), 2u);
  double best = result->report.tried_group_layers[0].second;
  for (const auto& [layers, rate] : result->report.tried_group_layers) {
    best = std::min(best, rate);
    if (layers == result->report.group_layers) {
      EXPECT_EQ(rate, best);
    }
  }
}

TEST(CalibrateTest, ConstantPlanesStayExact) {
  Model model(SmallGeometry(), 4, 128);
  for (auto& planes : model.planes()) planes[1].assign(planes[1].size(), '\0');
  const auto result = Calibrate(model.contexts(), {}, nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->profile.is_coded(1));
  ASSERT_EQ(result->report.warnings.size(), 1u);
  EXPECT_THAT(result->report.warnings[0], HasSubstr("plane 1 is constant"));
}

TEST(CalibrateTest, DependentPlanesAreNoTrouble) {
  Model model(KeysAndValues(1, 2, 8), 4, 128);
  for (auto& planes : model.planes()) planes[1] = planes[0];
  const auto result = Calibrate(model.contexts(), {}, nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
}

// Covariances of values next to zero, or huge moments of queries, end so.
TEST(CalibrateTest, WhatIsNoNumberHasNoEigenvectors) {
  Dense<double> covariances(2, 2);
  covariances.values[0] = std::numeric_limits<double>::quiet_NaN();
  const auto eigenvalues = Diagonalise(covariances);
  EXPECT_EQ(eigenvalues.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(eigenvalues.status().message(), HasSubstr("too small or too large"));
}

TEST(CalibrateTest, ErrorsSayWhatIsWrong) {
  Model model(SmallGeometry(), 4, 128);
  const auto error = [](const Contexts& contexts, const CalibrateOptions& options) {
    return std::string(Calibrate(contexts, options, nullptr).status().message());
  };
  CalibrateOptions options;
  options.group_layers = 3;
  EXPECT_THAT(error(Model(SmallGeometry(), 1, 64).contexts(), options), HasSubstr("more contexts"));
  options.max_profile_bytes = 100;
  EXPECT_THAT(error(model.contexts(), options), HasSubstr("--max-profile-bytes"));
  options.max_macs_per_element = 50;
  EXPECT_THAT(error(model.contexts(), options), HasSubstr("--group-layers"));
  Contexts shorter = model.contexts();
  shorter.contexts[2].num_tokens = 100;
  EXPECT_THAT(error(shorter, {}), HasSubstr("context 2"));
  SetElement(model.geometry().planes[3], model.planes()[1][3], 5,
             std::numeric_limits<float>::infinity());
  EXPECT_THAT(error(model.contexts(), {}), HasSubstr("context 1: plane 3, token 0"));
}

}  // namespace
}  // namespace sluice::codec
