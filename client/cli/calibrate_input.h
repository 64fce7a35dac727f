// What `calibrate` reads: contexts, a sensitivity table, the queries' second moments.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/options.h"
#include "client/context_input.h"
#include "codec/calibrate/contexts.h"

namespace sluice::cli {

// A folder that is removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() = default;
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  // Makes it when first called, beside `path`.
  absl::StatusOr<std::string> Path(const std::string& path);

 private:
  std::string path_;
};

// Contexts and the files that they are mapped from.
struct CalibrateInput {
  std::unique_ptr<TemporaryFolder> folder;
  std::vector<client::ContextInput> files;
  codec::Contexts contexts;
};

struct CalibrateSource {
  std::vector<std::string> dumps;  // cache files and .sluice files
  std::string out;
};

// InvalidArgument, naming the first difference, unless all have the same geometry.
absl::StatusOr<CalibrateInput> ReadContexts(const CalibrateSource& source);

// {"kl_per_variance": [[K, V] of each model layer]}: one number for each plane.
absl::StatusOr<std::vector<double>> ReadSensitivities(const std::string& path,
                                                      const codec::Geometry& geometry);
// Tensors layers.{i}.q_cov, F32 [num_kv_heads, head_dim, head_dim], of model layers with keys.
absl::StatusOr<std::vector<std::vector<float>>> ReadQueries(const std::string& path,
                                                            const codec::Geometry& geometry);

}  // namespace sluice::cli
