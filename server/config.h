// Configuration of a server: one plain struct, read from TOML and flags in main only.
//
// Immutable once validated. Sizes are bytes; in TOML they may also be text such as "64 GiB".
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::server {

// Limits that clients meet. Everything a client can make the server hold has one.
struct Limits {
  uint32_t max_frame_bytes = 1 << 20;              // 4 KiB .. 1 MiB
  uint32_t max_keys_per_request = 2048;            // 1 .. 65536
  uint64_t max_chunk_bytes = uint64_t{1} << 30;    // 4 KiB ..
  uint64_t max_profile_bytes = uint64_t{1} << 30;  // 1 KiB .. 4 GiB
  uint32_t max_asks_in_flight = 1024;              // of one stream; 1 .. 65536
  uint32_t max_streams = 256;                      // of loads, puts and profiles; 1 .. 65536
  uint32_t max_uploads = 64;                       // announced and not committed; 1 .. 65536
  uint64_t max_upload_bytes = uint64_t{8} << 30;   // of all of them together; 4 KiB ..
  uint32_t upload_ttl_ms = 30000;                  // without a frame; 100 .. 3600000
  uint32_t max_namespaces = 1024;                  // 1 .. 10000

  bool operator==(const Limits&) const = default;
};

struct Config {
  // "host:port" (port 0: any free one) or "unix:/path". At least one, at most 16.
  std::vector<std::string> listen = {"127.0.0.1:7420"};
  uint32_t drain_ms = 5000;  // how long running loads may go on after SIGTERM; 0 .. 600000

  std::string data_dir;                               // must be set
  uint64_t quota_bytes = uint64_t{64} << 30;          // of all containers on disk; 1 MiB ..
  uint64_t profile_quota_bytes = uint64_t{16} << 30;  // of all profiles on disk; 1 KiB ..
  uint64_t cache_bytes = uint64_t{1} << 30;           // of containers in memory; 0: no cache
  uint32_t cache_max_chunk_percent = 25;              // larger chunks bypass the cache; 1 .. 100

  Limits limits;
  std::string log_level = "info";  // debug, info, warn, error

  bool operator==(const Config&) const = default;
  uint64_t cache_max_chunk_bytes() const { return cache_bytes / 100 * cache_max_chunk_percent; }
};

struct ConfigFault {
  std::string key;  // "table.key"
  std::string message;
  std::string other_key;  // with which the value does not agree, may be empty
};

// Values that are out of range or do not fit together; empty if there are none.
std::vector<ConfigFault> CheckConfig(const Config& config);

// What a file says. Reading a file and applying flags are two steps, so ranges are checked at the
// end.
struct ConfigFile {
  std::string name;
  Config config;
  std::map<std::string, uint32_t> lines;  // where each key stands
  // Of the text, by line (0: of no line): syntax, unknown keys, wrong types.
  std::multimap<uint32_t, std::string> faults;
  std::set<std::string> unread;  // keys whose value has such a fault; a default stands in
};

// Parses TOML. Reports every fault of the text that can be told apart, as "NAME:LINE: key:
// message".
ConfigFile ParseConfig(absl::string_view text, const std::string& name);
// Everything that is wrong with the text and, after flags were applied, with the values, by line.
std::vector<std::string> AllFaults(const ConfigFile& file);

// "1048576", "64 GiB", "1.5 MB".
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);

}  // namespace sluice::server
