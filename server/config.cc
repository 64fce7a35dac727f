#include "server/config.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <toml.hpp>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace sluice::server {

namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr int kMaxNesting = 32;  // of brackets; the TOML library recurses
constexpr size_t kMaxListenAddresses = 16;
constexpr uint64_t kNoMax = std::numeric_limits<int64_t>::max();

// One key: where its value goes and which values it may have.
struct Field {
  std::string key;
  std::variant<uint32_t*, uint64_t*, std::string*, std::vector<std::string>*> target;
  uint64_t min = 0;
  uint64_t max = 0;
};

// The one list of keys, for reading and for checking.
std::vector<Field> Fields(Config& c) {
  Limits& l = c.limits;
  return {
      {"server.listen", &c.listen},
      {"server.drain_ms", &c.drain_ms, 0, 600000},
      {"store.data_dir", &c.data_dir},
      {"store.quota", &c.quota_bytes, 1 << 20, kNoMax},
      {"store.profile_quota", &c.profile_quota_bytes, 1 << 10, kNoMax},
      {"cache.limit", &c.cache_bytes, 0, kNoMax},
      {"cache.max_chunk_percent", &c.cache_max_chunk_percent, 1, 100},
      {"limits.max_frame_bytes", &l.max_frame_bytes, 4 << 10, 1 << 20},
      {"limits.max_keys_per_request", &l.max_keys_per_request, 1, 65536},
      {"limits.max_chunk_bytes", &l.max_chunk_bytes, 4 << 10, kNoMax},
      {"limits.max_profile_bytes", &l.max_profile_bytes, 1 << 10, uint64_t{4} << 30},
      {"limits.max_asks_in_flight", &l.max_asks_in_flight, 1, 65536},
      {"limits.max_streams", &l.max_streams, 1, 65536},
      {"limits.max_uploads", &l.max_uploads, 1, 65536},
      {"limits.max_upload_bytes", &l.max_upload_bytes, 4 << 10, kNoMax},
      {"limits.upload_ttl_ms", &l.upload_ttl_ms, 100, 3600000},
      {"limits.max_namespaces", &l.max_namespaces, 1, 10000},
      {"log.level", &c.log_level},
  };
}

// Reads an integer or, for text, a size. An empty string means success; otherwise what is wrong.
std::string ReadNumber(const toml::value& value, uint64_t max_value, uint64_t* number) {
  if (value.is_integer()) {
    if (value.as_integer(std::nothrow) < 0) return "must not be negative";
    *number = value.as_integer(std::nothrow);
  } else if (value.is_string()) {
    const auto bytes = ParseBytes(value.as_string(std::nothrow).str);
    if (!bytes.ok()) return std::string(bytes.status().message());
    *number = *bytes;
  } else {
    return "must be an integer, or a size such as \"64 GiB\"";
  }
  return *number > max_value ? absl::StrCat("must be at most ", max_value) : "";
}

std::string ReadStrings(const toml::value& value, std::vector<std::string>* out) {
  if (!value.is_array()) return "must be an array of strings";
  std::vector<std::string> strings;
  for (const toml::value& element : value.as_array(std::nothrow)) {
    if (!element.is_string()) return "must be an array of strings";
    strings.push_back(element.as_string(std::nothrow).str);
  }
  *out = std::move(strings);
  return "";
}

std::string ReadField(const toml::value& value, const Field& field) {
  if (auto* const* target = std::get_if<std::string*>(&field.target)) {
    if (!value.is_string()) return "must be a string";
    **target = value.as_string(std::nothrow).str;
    return "";
  }
  if (auto* const* target = std::get_if<std::vector<std::string>*>(&field.target)) {
    return ReadStrings(value, *target);
  }
  uint64_t number = 0;
  auto* const* wide = std::get_if<uint64_t*>(&field.target);
  const std::string fault =
      ReadNumber(value, wide ? kNoMax : std::numeric_limits<uint32_t>::max(), &number);
  if (!fault.empty()) return fault;
  if (wide) {
    **wide = number;
  } else {
    *std::get<uint32_t*>(field.target) = static_cast<uint32_t>(number);
  }
  return "";
}

void ReadTable(const toml::value& root, ConfigFile* file) {
  const std::vector<Field> fields = Fields(file->config);
  auto fault = [&](const toml::value& at, absl::string_view key, absl::string_view message) {
    const uint32_t line = at.location().line();
    file->faults.emplace(line, absl::StrCat(file->name, ":", line, ": ", key, ": ", message));
  };
  for (const auto& [table_name, table] : root.as_table(std::nothrow)) {
    const bool known = std::ranges::any_of(
        fields, [&](const Field& field) { return absl::StartsWith(field.key, table_name + "."); });
    if (!known || !table.is_table()) {
      fault(table, table_name, known ? "must be a table" : "is not a known table");
      continue;
    }
    for (const auto& [name, value] : table.as_table(std::nothrow)) {
      const std::string key = absl::StrCat(table_name, ".", name);
      const auto field =
          std::ranges::find_if(fields, [&](const Field& field) { return field.key == key; });
      if (field == fields.end()) {
        fault(value, key, "is not a known key");
        continue;
      }
      file->lines[key] = value.location().line();
      const std::string message = ReadField(value, *field);
      if (message.empty()) continue;
      fault(value, key, message);
      file->unread.insert(key);
    }
  }
}

// What to do about a line such as `quota = 64 GiB`, which is no TOML; empty for other lines.
std::string SizeHint(absl::string_view text, uint32_t line) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (line < 1 || line > lines.size()) return "";
  absl::string_view value = lines[line - 1];
  value = value.substr(0, value.find('#'));
  const size_t equals = value.find('=');
  if (equals == absl::string_view::npos) return "";
  value = absl::StripAsciiWhitespace(value.substr(equals + 1));
  if (value.empty() || !absl::ascii_isalpha(value.back()) || !ParseBytes(value).ok()) return "";
  return absl::StrCat("; write it as a string: \"", value, "\"");
}

bool NestsTooDeeply(absl::string_view text) {
  int depth = 0;
  for (char c : text) {
    if (c == '[' || c == '{') {
      if (++depth > kMaxNesting) return true;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(absl::string_view text) {
  static constexpr std::pair<absl::string_view, double> kUnits[] = {
      {"", 1},          {"B", 1},
      {"KB", 1e3},      {"MB", 1e6},
      {"GB", 1e9},      {"TB", 1e12},
      {"KiB", 1 << 10}, {"MiB", 1 << 20},
      {"GiB", 1 << 30}, {"TiB", double(uint64_t{1} << 40)},
  };
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  const size_t digits = std::min(trimmed.find_first_not_of("0123456789."), trimmed.size());
  const absl::string_view unit = absl::StripLeadingAsciiWhitespace(trimmed.substr(digits));
  double number = 0;
  const bool is_number = absl::SimpleAtod(trimmed.substr(0, digits), &number);
  for (const auto& [name, factor] : kUnits) {
    if (!is_number || unit != name) continue;
    const double bytes = number * factor;
    if (bytes < 9e18) return static_cast<uint64_t>(bytes);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text.substr(0, 40),
                   "\" is not a size; write bytes or a number and KiB, MiB, GiB, TiB"));
}

ConfigFile ParseConfig(absl::string_view text, const std::string& name) {
  ConfigFile file;
  file.name = name;
  // Until the text is known to be TOML, nothing can be said of the values.
  for (const Field& field : Fields(file.config)) file.unread.insert(field.key);
  if (text.size() > kMaxConfigBytes || NestsTooDeeply(text)) {
    file.faults.emplace(1, absl::StrCat(name, ":1: too long (limit ", kMaxConfigBytes,
                                        " bytes) or nested too deeply (limit ", kMaxNesting, ")"));
    return file;
  }
  // The library reports by exceptions, of which some are not its own types; they end here.
  try {
    std::istringstream in{std::string(text)};
    const toml::value root = toml::parse(in, name);
    file.unread.clear();
    ReadTable(root, &file);
  } catch (const toml::exception& error) {
    std::vector<std::string> words = absl::StrSplit(error.what(), '\n');
    const std::string what = words.empty() ? "" : words.front();
    const uint32_t line = error.location().line();
    file.faults.emplace(line, absl::StrCat(name, ":", line, ": ", what, SizeHint(text, line)));
  } catch (const std::exception& error) {
    file.faults.emplace(1, absl::StrCat(name, ":1: ", error.what()));
  }
  return file;
}

namespace {

// Numbers that are out of their field's range.
std::vector<ConfigFault> RangeFaults(const Config& config) {
  std::vector<ConfigFault> faults;
  Config copy = config;
  for (const Field& field : Fields(copy)) {
    uint64_t value = 0;
    if (auto* const* narrow = std::get_if<uint32_t*>(&field.target)) {
      value = **narrow;
    } else if (auto* const* wide = std::get_if<uint64_t*>(&field.target)) {
      value = **wide;
    } else {
      continue;
    }
    if (value >= field.min && value <= field.max) continue;
    const std::string range = field.max == kNoMax
                                  ? absl::StrCat(" is below ", field.min)
                                  : absl::StrCat(" is not within ", field.min, " .. ", field.max);
    faults.push_back({field.key, absl::StrCat(value, range), ""});
  }
  return faults;
}

void CheckListen(const std::vector<std::string>& listen, std::vector<ConfigFault>& faults) {
  if (listen.empty() || listen.size() > kMaxListenAddresses) {
    faults.push_back(
        {"server.listen", absl::StrCat("must name 1 .. ", kMaxListenAddresses, " addresses"), ""});
  }
  for (const std::string& address : listen) {
    const bool is_unix = absl::StartsWith(address, "unix:") && address.size() > 5;
    const size_t colon = address.rfind(':');
    uint32_t port = 0;
    const bool is_tcp = colon != std::string::npos && colon > 0 &&
                        absl::SimpleAtoi(address.substr(colon + 1), &port) && port <= 65535;
    if (is_unix || is_tcp) continue;
    faults.push_back({"server.listen",
                      absl::StrCat("\"", address, "\" is neither host:port nor unix:/path"), ""});
  }
}

}  // namespace

std::vector<ConfigFault> CheckConfig(const Config& config) {
  std::vector<ConfigFault> faults = RangeFaults(config);
  // What may be put must fit; not said of a limit that is out of range itself.
  const auto check_fits = [&](const std::string& limit, uint64_t bytes, const std::string& key,
                              uint64_t space) {
    if (bytes <= space) return;
    if (std::ranges::find(faults, key, &ConfigFault::key) != faults.end()) return;
    faults.push_back({limit, absl::StrCat("must not exceed ", key, " (", space, " bytes)"), key});
  };
  const Limits& limits = config.limits;
  check_fits("limits.max_chunk_bytes", limits.max_chunk_bytes, "store.quota", config.quota_bytes);
  check_fits("limits.max_chunk_bytes", limits.max_chunk_bytes, "limits.max_upload_bytes",
             limits.max_upload_bytes);
  check_fits("limits.max_profile_bytes", limits.max_profile_bytes, "store.profile_quota",
             config.profile_quota_bytes);
  CheckListen(config.listen, faults);
  if (config.data_dir.empty()) {
    faults.push_back({"store.data_dir", "must be set (or give --data-dir)", ""});
  }
  static constexpr absl::string_view kLevels[] = {"debug", "info", "warn", "error"};
  if (std::ranges::find(kLevels, config.log_level) == std::end(kLevels)) {
    faults.push_back(
        {"log.level",
         absl::StrCat("\"", config.log_level, "\" is none of ", absl::StrJoin(kLevels, ", ")), ""});
  }
  return faults;
}

std::vector<std::string> AllFaults(const ConfigFile& file) {
  std::multimap<uint32_t, std::string> all = file.faults;
  for (const ConfigFault& fault : CheckConfig(file.config)) {
    if (file.unread.contains(fault.key) || file.unread.contains(fault.other_key)) continue;
    const auto at = file.lines.find(fault.key);
    const uint32_t line = at == file.lines.end() ? 0 : at->second;
    const std::string place = line == 0 ? "" : absl::StrCat(file.name, ":", line, ": ");
    all.emplace(line, absl::StrCat(place, fault.key, ": ", fault.message));
  }
  std::vector<std::string> faults;
  for (auto& [line, fault] : all) faults.push_back(std::move(fault));
  return faults;
}

}  // namespace sluice::server
