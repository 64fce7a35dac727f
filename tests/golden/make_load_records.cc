// make_load_records TESTS_FOLDER: writes golden/{accept,reject}/load_record/ and the seeds of
// fuzz/corpus/load_record/ below it.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/golden/load_record_cases.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s TESTS_FOLDER\n", argv[0]);
    return 2;
  }
  const std::filesystem::path tests = argv[1];
  const auto write = [](const std::filesystem::path& path, const std::string& bytes) {
    std::filesystem::create_directories(path.parent_path());
    return (std::ofstream(path, std::ios::binary) << bytes).flush().good();
  };
  bool ok = true;
  for (const auto& c : sluice::client::LoadRecordCases()) {
    const std::string verdict = c.expected.empty() ? "accept" : "reject";
    ok &= write(tests / "golden" / verdict / "load_record" / (c.name + ".bin"), c.bytes);
    ok &= write(tests / "fuzz" / "corpus" / "load_record" / (verdict + "_" + c.name), c.bytes);
  }
  return ok ? 0 : 1;
}
