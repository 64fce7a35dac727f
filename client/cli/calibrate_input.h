// What `calibrate` reads: contexts, a sensitivity table, the queries' second moments.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/stored_context.h"
#include "client/context_input.h"
#include "client/context_planes.h"
#include "codec/calibrate/contexts.h"

namespace sluice::cli {

// Contexts and what they are mapped from.
struct CalibrateInput {
  std::vector<client::ContextInput> files;
  std::vector<client::ContextPlanes> stored;
  codec::Contexts contexts;
};

struct CalibrateSource {
  std::vector<std::string> contexts;  // cache files, and token ids of contexts on the server
  StoreOptions store;
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
