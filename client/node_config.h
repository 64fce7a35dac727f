// Configuration of the node daemon: one plain struct, read from TOML and flags in main only.
//
// Immutable once validated.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::client {

struct NodeConfig {
  // [node]
  std::string server = "127.0.0.1:7420";         // "host:port" or "unix:/path"
  std::string socket = "/run/sluice/node.sock";  // for the engines; 1 .. 107 bytes
  uint32_t chunk_tokens = 256;                   // where an engine does not say; 16 .. 4096
  // Folder of the profiles that were fetched; empty: none. At most 4096 bytes.
  std::string profile_cache_dir = "/var/cache/sluice-node/profiles";
  uint64_t profile_cache_bytes = uint64_t{16} << 30;  // of its files; 1 MiB .. 1 TiB
  // What computing costs, as learnt from the engines; empty: not kept. At most 4096 bytes.
  std::string prefill_file = "/var/lib/sluice-node/prefill.json";
  // Records of loads; empty: none are kept. At most 4096 bytes.
  std::string record_dir;
  uint32_t max_records = 100;  // files in it; 1 .. 65536
  uint32_t drain_ms = 5000;    // how long saves may go on after SIGTERM; 0 .. 600000
  // [load]
  uint32_t reserve_ms = 20;     // of every SLO, kept for the last decode; 0 .. 10000
  uint32_t decode_threads = 0;  // of all loads together; 0: as the machine has, at most 4; 0 .. 256
  // [save]
  uint32_t put_timeout_ms = 10000;  // for storing one chunk; 1 .. 600000
  uint32_t save_threads = 1;        // key `threads`; each encodes one chunk at a time; 1 .. 256

  // [limits]
  struct Limits {
    uint32_t pools = 64;                                // registered; 1 .. 4096
    uint32_t loads = 16;                                // running, then NODE_BUSY; 1 .. 1024
    uint32_t saves = 64;                                // waiting or running; 1 .. 1024
    uint32_t tokens_per_request = 4 << 20;              // 4096 .. 4194304
    uint64_t load_memory_bytes = uint64_t{256} << 20;   // of each load; 1 MiB .. 64 GiB
    uint64_t profile_memory_bytes = uint64_t{1} << 30;  // that no pool uses; 0 .. 64 GiB
    uint64_t chunk_bytes = uint64_t{256} << 20;         // planes of a chunk to save; 1 MiB .. 4 GiB
  };
  Limits limits;
  // [log]
  std::string log_level = "info";  // key `level`; debug, info, warn, error

  // All values that are out of range, by key; empty if there are none.
  std::map<std::string, std::string> Faults() const;
};

// What a file says. Ranges are checked by AllFaults(), because flags may still change values.
struct NodeConfigFile {
  std::string name;
  NodeConfig config;
  std::map<std::string, uint32_t> lines;             // where each key stands
  std::multimap<uint32_t, std::string> faults = {};  // of the text, by line; 0: of the whole file
};

// Parses TOML. Unknown keys and wrong types are faults, all of which are reported as
// "NAME:LINE: what is wrong". `name` is the file's.
NodeConfigFile ParseNodeConfig(std::string_view text, const std::string& name);
// Everything that is wrong with the text and, after flags were applied, with the values, by line.
// If there is anything, the configuration must not be used.
std::vector<std::string> AllFaults(const NodeConfigFile& file);

}  // namespace sluice::client
