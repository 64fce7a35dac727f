// What a client says on a PutProfile stream: any sequence of messages ends with the profile that
// its id names, or with an error and nothing left. Once as it is, and once with the checksums, the
// id and the length made right, so that what follows them is reached.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "codec/container.h"
#include "server/memory_store.h"
#include "server/validate.h"

namespace sluice::server {
namespace {

using Messages = std::vector<v1::PutProfileRequest>;

// Each message: a length byte, then that many bytes.
Messages Parse(const uint8_t* data, size_t size) {
  Messages messages;
  while (size > 0) {
    const size_t bytes = std::min<size_t>(data[0], size - 1);
    v1::PutProfileRequest& message = messages.emplace_back();
    if (!message.ParseFromArray(data + 1, static_cast<int>(bytes))) message.Clear();
    data += 1 + bytes;
    size -= 1 + bytes;
  }
  return messages;
}

std::span<const std::byte> Payload(const v1::PutProfileRequest& message) {
  return std::as_bytes(std::span(message.frame().payload()));
}

void Seal(Messages& messages) {
  std::string all;
  for (v1::PutProfileRequest& message : messages) {
    message.mutable_frame()->set_checksum(codec::Checksum(Payload(message)));
    all += message.frame().payload();
  }
  const Digest id = codec::Sha256(std::as_bytes(std::span(all)));
  messages[0].set_profile_id(std::string(codec::DigestBytes(id)));
  messages[0].mutable_frame()->set_total_bytes(all.size());
}

absl::Status Put(MemoryStore& store, const Messages& messages) {
  const auto opening = ReadPutProfile(messages[0], Limits());
  if (!opening.ok()) return opening.status();
  auto begun = store.BeginPutProfile(opening->id, opening->total_bytes);
  if (!begun.ok()) return begun.status();
  uint64_t received = 0;
  for (const v1::PutProfileRequest& message : messages) {
    absl::Status status = CheckProfileFrame(message.frame(), received, Limits());
    if (status.ok()) status = begun->session->Append(Payload(message));
    if (!status.ok()) return status;
    received += message.frame().payload().size();
  }
  return begun->session->Commit().status();
}

void Check(const Messages& messages) {
  MemoryStore store(1 << 20);
  const absl::Status status = Put(store, messages);
  const StoreUsage usage = store.Usage();
  if (usage.profiles != (status.ok() ? 1 : 0)) std::abort();
  if (!status.ok()) return;
  std::string all;
  for (const v1::PutProfileRequest& message : messages) all += message.frame().payload();
  const auto reader = store.OpenProfile(codec::Sha256(std::as_bytes(std::span(all))));
  if (!reader.ok() || (*reader)->profile()->content != all) std::abort();
}

}  // namespace
}  // namespace sluice::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::server;
  Messages messages = Parse(data, size);
  if (messages.empty()) return 0;
  Check(messages);
  Seal(messages);
  Check(messages);
  return 0;
}
