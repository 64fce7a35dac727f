// Is a profile made for these planes?
#pragma once

#include "absl/status/status.h"
#include "codec/geometry.h"

namespace sluice::client {

// InvalidArgument names the first field in which they differ, with both values. Pure.
absl::Status CheckSameGeometry(const codec::Geometry& of_profile, const codec::Geometry& wanted);

}  // namespace sluice::client
