// make_golden TESTS_FOLDER: writes golden/{accept,reject}/ and the seeds of fuzz/corpus/ below it.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "codec/byte_block.h"
#include "tests/golden/calibrated_cases.h"
#include "tests/golden/golden_cases.h"

namespace sluice::codec {
namespace {

bool WriteFile(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  return out.flush().good();
}

// As byte_block_fuzzer and byte_block_test read it: the number of coded bytes, then the block.
std::string BlockSeed(const std::string& text) {
  ByteWriter writer;
  writer.Write<uint32_t>(text.size());
  EncodeByteBlock(AsBytes(text), writer);
  return std::move(writer).Take();
}

std::string RandomText(size_t size, double mean) {
  std::mt19937 random(1);
  std::poisson_distribution<int> symbol(mean);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(symbol(random));
  return text;
}

bool WriteAll(const std::filesystem::path& tests) {
  bool ok = true;
  const std::filesystem::path corpus = tests / "fuzz" / "corpus";
  std::vector<GoldenCase> cases = GoldenCases();
  for (const auto& more : {CalibratedProfileCases(), CalibratedChunkCases()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  for (const GoldenCase& c : cases) {
    const char* verdict = c.expected.empty() ? "accept" : "reject";
    ok &= WriteFile(tests / "golden" / verdict / c.kind / (c.name + ".bin"), c.bytes);
    ok &= WriteFile(corpus / c.kind / (std::string(verdict) + "_" + c.name), c.bytes);
  }
  ContextFile context = ExampleContextFile();
  context.profile_bytes = ExampleCalibratedProfile().bytes();
  context.descriptor.profile_id = ExampleCalibratedProfile().id();
  context.containers[0] = ExampleCalibratedChunk();
  ok &= WriteFile(corpus / "context_file" / "accept_calibrated", SerializeContextFile(context));
  ok &= WriteFile(corpus / "container" / "accept_calibrated", ExampleCalibratedChunk());
  std::string repeated;
  for (int i = 0; i < 20; ++i) repeated += "the same words again; ";
  const std::pair<const char*, std::string> texts[] = {{"raw", "raw"},
                                                       {"constant", std::string(100, 'c')},
                                                       {"rans", RandomText(2000, 3)},
                                                       {"zstd", repeated}};
  for (const auto& [name, text] : texts) {
    const std::string file = std::string(name) + ".bin";
    ok &= WriteFile(tests / "golden" / "accept" / "byte_block" / file, BlockSeed(text));
    ok &= WriteFile(corpus / "byte_block" / name, BlockSeed(text));
  }
  return ok;
}

}  // namespace
}  // namespace sluice::codec

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s TESTS_FOLDER\n", argv[0]);
    return 2;
  }
  return sluice::codec::WriteAll(argv[1]) ? 0 : 1;
}
