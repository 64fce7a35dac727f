// Early return on failure, for functions that return absl::Status or absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_INNER(SLUICE_CONCAT(status_or_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_INNER(name, target, expression) \
  auto name = (expression);                              \
  if (!name.ok()) return name.status();                  \
  target = *std::move(name)
