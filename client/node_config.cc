#include "client/node_config.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <sstream>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "codec/chunk_key.h"
#include "toml.hpp"

namespace sluice::client {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr int kMaxNesting = 32;  // of brackets; the TOML library recurses
constexpr size_t kMaxPathBytes = 4096;
constexpr uint64_t kMaxSocketBytes = 107;  // of sockaddr_un
constexpr uint64_t kMiB = uint64_t{1} << 20;

// One key: where its value goes and which values (for text: which lengths) it may have.
struct Field {
  std::string key;  // "table.name"
  std::variant<uint32_t*, uint64_t*, std::string*> target;
  uint64_t min = 0;
  uint64_t max = 0;
};

// The one list of keys, for reading and for checking.
std::vector<Field> Fields(NodeConfig& c) {
  NodeConfig::Limits& l = c.limits;
  using Names = codec::NamespaceDescriptor;
  return {
      {"node.server", &c.server, 1, 1024},
      {"node.socket", &c.socket, 1, kMaxSocketBytes},
      {"node.chunk_tokens", &c.chunk_tokens, Names::kMinChunkTokens, Names::kMaxChunkTokens},
      {"node.profile_cache_dir", &c.profile_cache_dir, 0, kMaxPathBytes},
      {"node.profile_cache_bytes", &c.profile_cache_bytes, kMiB, kMiB << 20},
      {"node.prefill_file", &c.prefill_file, 0, kMaxPathBytes},
      {"node.record_dir", &c.record_dir, 0, kMaxPathBytes},
      {"node.max_records", &c.max_records, 1, 65536},
      {"node.drain_ms", &c.drain_ms, 0, 600'000},
      {"load.reserve_ms", &c.reserve_ms, 0, 10'000},
      {"load.decode_threads", &c.decode_threads, 0, 256},
      {"save.put_timeout_ms", &c.put_timeout_ms, 1, 600'000},
      {"save.threads", &c.save_threads, 1, 256},
      {"limits.pools", &l.pools, 1, 4096},
      {"limits.loads", &l.loads, 1, 1024},
      {"limits.saves", &l.saves, 1, 1024},
      {"limits.tokens_per_request", &l.tokens_per_request, 4096, 4 << 20},
      {"limits.load_memory_bytes", &l.load_memory_bytes, kMiB, 65536 * kMiB},
      {"limits.profile_memory_bytes", &l.profile_memory_bytes, 0, 65536 * kMiB},
      {"limits.chunk_bytes", &l.chunk_bytes, kMiB, 4096 * kMiB},
      {"log.level", &c.log_level, 1, 16},
  };
}

// Empty, or what is wrong with the value.
std::string ReadField(const toml::value& value, const Field& field) {
  if (auto* const* text = std::get_if<std::string*>(&field.target)) {
    if (!value.is_string()) return "must be a string";
    **text = value.as_string(std::nothrow).str;
    return "";
  }
  if (!value.is_integer() || value.as_integer(std::nothrow) < 0) return "must be a whole number";
  const auto number = static_cast<uint64_t>(value.as_integer(std::nothrow));
  if (auto* const* wide = std::get_if<uint64_t*>(&field.target)) {
    **wide = number;
    return "";
  }
  if (number > std::numeric_limits<uint32_t>::max()) return "is too large";
  *std::get<uint32_t*>(field.target) = static_cast<uint32_t>(number);
  return "";
}

uint64_t RangedValue(const Field& field) {
  if (auto* const* text = std::get_if<std::string*>(&field.target)) return (*text)->size();
  if (auto* const* wide = std::get_if<uint64_t*>(&field.target)) return **wide;
  return *std::get<uint32_t*>(field.target);
}

// "host:port" or "unix:/path".
bool IsAddress(const std::string& text) {
  if (text.starts_with("unix:")) return text.size() > 5;
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  return colon != std::string::npos && colon > 0 &&
         absl::SimpleAtoi(text.substr(colon + 1), &port) && port >= 1 && port <= 65535;
}

void ReadTables(const toml::value& root, NodeConfigFile& file) {
  const std::vector<Field> fields = Fields(file.config);
  const auto fault = [&](const toml::value& at, const std::string& key, const std::string& what) {
    const uint32_t line = at.location().line();
    file.faults.emplace(line, absl::StrCat(file.name, ":", line, ": ", key, " ", what));
  };
  for (const auto& [table_name, table] : root.as_table(std::nothrow)) {
    const std::string prefix = table_name + ".";
    const bool known = std::ranges::any_of(
        fields, [&](const Field& field) { return field.key.starts_with(prefix); });
    if (!known || !table.is_table()) {
      fault(table, table_name, known ? "must be a table" : "is not a known table");
      continue;
    }
    for (const auto& [key, value] : table.as_table(std::nothrow)) {
      const auto field = std::ranges::find(fields, prefix + key, &Field::key);
      file.lines[prefix + key] = value.location().line();
      const std::string what =
          field == fields.end() ? "is not a known key" : ReadField(value, *field);
      if (!what.empty()) fault(value, prefix + key, what);
    }
  }
}

bool NestsTooDeeply(std::string_view text) {
  int depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') {
      if (++depth > kMaxNesting) return true;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace

NodeConfigFile ParseNodeConfig(std::string_view text, const std::string& name) {
  NodeConfigFile file;
  file.name = name;
  if (text.size() > kMaxConfigBytes || NestsTooDeeply(text)) {
    file.faults.emplace(0, absl::StrCat(name, ": longer than ", kMaxConfigBytes,
                                        " bytes or nested deeper than ", kMaxNesting));
    return file;
  }
  try {
    std::istringstream in{std::string(text)};
    ReadTables(toml::parse(in, name), file);
  } catch (const toml::exception& error) {
    const std::string what = error.what();
    const uint32_t line = error.location().line();
    file.faults.emplace(line, absl::StrCat(name, ":", line, ": ", what.substr(0, what.find('\n'))));
  } catch (const std::exception& error) {
    file.faults.emplace(0, absl::StrCat(name, ": ", error.what()));
  }
  return file;
}

std::map<std::string, std::string> NodeConfig::Faults() const {
  std::map<std::string, std::string> faults;
  NodeConfig copy = *this;
  for (const Field& field : Fields(copy)) {
    const bool is_text = std::holds_alternative<std::string*>(field.target);
    const uint64_t value = RangedValue(field);
    if (value >= field.min && value <= field.max) continue;
    faults[field.key] = absl::StrCat(is_text ? "has length " : "is ", value, "; ", field.min, "..",
                                     field.max, " are allowed");
  }
  if (!IsAddress(server)) {
    faults.emplace("node.server",
                   absl::StrCat("is \"", server, "\"; write HOST:PORT or unix:/PATH"));
  }
  if (log_level != "debug" && log_level != "info" && log_level != "warn" && log_level != "error") {
    faults.emplace("log.level",
                   absl::StrCat("is \"", log_level, "\"; debug, info, warn, error are allowed"));
  }
  return faults;
}

std::vector<std::string> AllFaults(const NodeConfigFile& file) {
  std::multimap<uint32_t, std::string> all = file.faults;
  for (const auto& [key, what] : file.config.Faults()) {
    const auto at = file.lines.find(key);
    const std::string place =
        at == file.lines.end() ? "" : absl::StrCat(file.name, ":", at->second, ": ");
    all.emplace(place.empty() ? 0 : at->second, absl::StrCat(place, key, " ", what));
  }
  std::vector<std::string> faults;
  for (auto& [line, fault] : all) faults.push_back(std::move(fault));
  return faults;
}

}  // namespace sluice::client
