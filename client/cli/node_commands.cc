#include "client/cli/node_commands.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/decode_context.h"
#include "client/cli/encode_context.h"
#include "client/cli/json.h"
#include "client/cli/profiles.h"
#include "client/cli/rate_note.h"
#include "client/cli/table.h"
#include "client/cli/units.h"
#include "client/context_input.h"
#include "client/remote_admin.h"
#include "codec/status_macros.h"

namespace sluice::cli {
namespace {

constexpr uint32_t kBlockTokens =
    16;  // as serving engines have; less if it does not divide a chunk
constexpr absl::Duration kUnregister = absl::Seconds(1);
constexpr absl::Duration kAskWhy = absl::Seconds(2);  // a save failed
constexpr absl::Duration kSave = absl::Minutes(10);   // longest wait for a save to be durable

absl::Time After(double seconds) { return absl::Now() + absl::Seconds(seconds); }

// Writes the input's tokens into the blocks.
absl::Status Fill(const client::ContextInput& input, uint32_t num_tokens, NodeSession& session) {
  const std::vector<uint32_t> blocks = session.block_ids();
  const client::ChunkPlanes planes(input, 0, num_tokens);
  for (size_t i = 0; i < planes.planes().size(); ++i) {
    RETURN_IF_ERROR(session.pool().blocks().Scatter(i, blocks, planes.planes()[i]));
  }
  return absl::OkStatus();
}

// The daemon answered, but could not store: is its server there?
absl::Status ExplainFailedSave(const absl::Status& status, client::NodeClient& node) {
  const auto about = node.Status(absl::Now() + kAskWhy);
  if (!about.ok()) return status;
  const auto ping = client::RemoteAdmin::Create(about->server)->Ping(absl::Now() + kAskWhy);
  if (ping.ok()) return status;
  return WithHint(
      absl::UnavailableError(absl::StrCat("the storage server ", about->server,
                                          " did not answer the daemon: ", status.message())),
      absl::StrCat("is sluiced running at ", about->server, "?"));
}

// The profile of the put; one that was given is put on the daemon's server, if it is not there.
absl::StatusOr<ProfilePtr> OfferProfile(const NodePutOptions& options,
                                        const codec::Geometry& geometry) {
  const std::string& given = options.source.profile;
  if (given.empty()) return LoadProfile(given, geometry, nullptr);
  ASSIGN_OR_RETURN(const ServerOptions server, ServerOfNode(options.socket, options.timeout_s));
  ASSIGN_OR_RETURN(ProfilePtr profile, LoadProfile(given, geometry, &server));
  const auto sent = client::RemoteStore::Create(server.address)
                        ->PutProfile(profile->id(), profile->bytes(),
                                     absl::Now() + client::kMaxCallTime, nullptr);
  if (!sent.ok()) return ExplainUnreachable(sent.status(), server.address);
  return profile;
}

}  // namespace

absl::StatusOr<ServerOptions> ServerOfNode(const std::string& socket, double timeout_s) {
  const auto status = client::NodeClient::Create(socket)->Status(After(timeout_s));
  if (!status.ok()) return ExplainNoNode(status.status(), socket);
  ServerOptions server;
  server.address = status->server;
  server.timeout_s = timeout_s;
  return server;
}

absl::Status ExplainNoNode(const absl::Status& status, const std::string& socket) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
  return WithHint(absl::Status(status.code(), absl::StrCat("no answer from the daemon at ", socket,
                                                           ": ", status.message())),
                  absl::StrCat("start it with: sluice-node --server HOST:PORT --socket ", socket,
                               ", or go without it: --server HOST:PORT"));
}

absl::StatusOr<NodeSession> NodeSession::Open(const std::string& socket,
                                              const codec::Geometry& geometry,
                                              const codec::Profile* profile, uint32_t num_tokens,
                                              uint32_t chunk_tokens, double timeout_s) {
  const uint32_t block_tokens = std::gcd(chunk_tokens, kBlockTokens);
  NodeSession session;
  session.client_ = client::NodeClient::Create(socket);
  ASSIGN_OR_RETURN(session.pool_,
                   client::EnginePool::Create(geometry, num_tokens / block_tokens, block_tokens));
  std::optional<codec::Digest> profile_id;
  if (profile != nullptr) profile_id = profile->id();
  // The daemon may have to fetch the profile first.
  const absl::Time deadline =
      profile == nullptr ? After(timeout_s) : absl::Now() + client::kMaxCallTime;
  auto pool_id = session.client_->RegisterPool(*session.pool_, profile_id, deadline);
  if (!pool_id.ok()) return ExplainNoNode(pool_id.status(), socket);
  session.pool_id_ = *pool_id;
  session.hold_ = session.client_->HoldPool(*pool_id);
  session.pool_->Unlink();
  return session;
}

NodeSession::~NodeSession() {
  // The daemon may be gone; the pool goes with this process in any case.
  if (pool_id_ != 0 && client_ != nullptr) {
    client_->UnregisterPool(pool_id_, absl::Now() + kUnregister).IgnoreError();
  }
}

std::vector<uint32_t> NodeSession::block_ids() const {
  std::vector<uint32_t> ids(pool_->layout().num_blocks);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

absl::StatusOr<ExitCode> PutThroughNode(const NodePutOptions& options) {
  const std::string& path = options.source.path;
  if (IsContextFile(path)) {
    return WithHint(absl::InvalidArgumentError("the daemon stores caches, not .sluice files"),
                    "put a .sluice file with --server ADDRESS");
  }
  ASSIGN_OR_RETURN(const client::ContextInput input, client::ReadContext(path));
  const uint32_t chunk_tokens = options.source.identity.ChunkTokens();
  const uint32_t num_tokens = input.num_tokens / chunk_tokens * chunk_tokens;
  if (input.token_ids.empty() || num_tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": needs token_ids in its metadata and ", chunk_tokens, " tokens"));
  }
  ASSIGN_OR_RETURN(const ProfilePtr profile, OfferProfile(options, input.geometry));
  client::NodeSave save;
  ASSIGN_OR_RETURN(save.identity, MakeDescriptor(options.source.identity, input, *profile));
  ASSIGN_OR_RETURN(NodeSession session,
                   NodeSession::Open(options.socket, input.geometry,
                                     options.source.profile.empty() ? nullptr : profile.get(),
                                     num_tokens, chunk_tokens, options.timeout_s));
  RETURN_IF_ERROR(Fill(input, num_tokens, session));
  save.pool_id = session.pool_id();
  save.token_ids.assign(input.token_ids.begin(), input.token_ids.begin() + num_tokens);
  save.block_ids = session.block_ids();
  save.lossless = options.source.lossless;
  save.request_id = "sluice-put";
  const absl::Time start = absl::Now();
  auto saved = session.client().Save(save, start + kSave);
  if (absl::IsAborted(saved.status())) return ExplainFailedSave(saved.status(), session.client());
  if (!saved.ok()) return ExplainNoNode(saved.status(), options.socket);
  for (const std::string& note : InputNotes(input)) Note(note);
  if (const auto note = UnusualRateNote(saved->unusual_rate_chunks)) Note(*note);
  if (save.lossless && saved->existing_chunks > 0) {
    Note("chunks that were stored already keep the levels that they have");
  }
  const double ms = absl::ToDoubleMilliseconds(absl::Now() - start);
  if (options.json) {
    PrintJson({{"stored_chunks", saved->stored_chunks},
               {"existing_chunks", saved->existing_chunks},
               {"sent_bytes", saved->bytes},
               {"unusual_rate_chunks", saved->unusual_rate_chunks},
               {"stored_tokens", num_tokens},
               {"left_out_tokens", input.num_tokens - num_tokens},
               {"ms", ms}});
    return kOk;
  }
  std::printf("%u chunks stored, %u already stored, %s sent, %s\n", saved->stored_chunks,
              saved->existing_chunks, FormatBytes(saved->bytes).c_str(), FormatMs(ms).c_str());
  return kOk;
}

absl::StatusOr<ExitCode> NodeStats(const std::string& socket, double timeout_s, bool json) {
  const auto node = client::NodeClient::Create(socket);
  auto status = node->Status(After(timeout_s));
  if (!status.ok()) return ExplainNoNode(status.status(), socket);
  if (json) {
    PrintJson({{"node", status->node},
               {"server", status->server},
               {"breaker", status->breaker},
               {"link_bytes_per_s", status->link_bytes_per_s},
               {"pools", status->pools},
               {"loads", status->loads},
               {"saves", status->saves},
               {"loaded_chunks", status->loaded_chunks},
               {"recompute_chunks", status->recompute_chunks},
               {"received_bytes", status->received_bytes},
               {"late_loads", status->late_loads},
               {"dropped_records", status->dropped_records},
               {"unusual_rate_chunks", status->unusual_rate_chunks},
               {"uptime_ms", status->uptime_ms}});
    return kOk;
  }
  PrintPairs({{"node", status->node},
              {"up", FormatAge(status->uptime_ms)},
              {"server", absl::StrCat(status->server, ", breaker ", status->breaker)},
              {"link", FormatRate(status->link_bytes_per_s)},
              {"now", absl::StrCat(status->pools, " pools, ", status->loads, " loads, ",
                                   status->saves, " saves")},
              {"chunks", absl::StrCat(FormatCount(status->loaded_chunks), " loaded, ",
                                      FormatCount(status->recompute_chunks), " to recompute")},
              {"received", FormatBytes(static_cast<double>(status->received_bytes))},
              {"late loads", FormatCount(status->late_loads)},
              {"dropped records", FormatCount(status->dropped_records)},
              {"unusual rate", absl::StrCat(FormatCount(status->unusual_rate_chunks, "saved chunk"),
                                            " with far more bits than the profile's figure")}});
  return kOk;
}

}  // namespace sluice::cli
