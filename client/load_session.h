// One load, from the lookup to the last outcome; see Loader::Load.
//
// One thread at a time: the caller's thread runs the planner, puts frames together and reports; a
// reader thread brings the frames and the pool decodes, both by way of LoadEvents.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "adapt/load_types.h"
#include "client/chunk_assembly.h"
#include "client/decode_pool.h"
#include "client/fetch_link.h"
#include "client/load_decoder.h"
#include "client/load_events.h"
#include "client/load_plan.h"
#include "client/load_spec.h"
#include "client/loader.h"
#include "client/shared_link.h"
#include "client/transfer_share.h"

namespace sluice::client {

class LoadSession {
 public:
  static constexpr double kLookupShare = 0.5;  // of the SLO, for the lookup
  // Silence that is shorter than this is not held against the server.
  static constexpr absl::Duration kVerdictAfter = absl::Milliseconds(50);
  // A stream that breaks is opened again: at once, and then after pauses that double.
  static constexpr int kMaxReconnects = 5;
  static constexpr adapt::TimeUs kMinReconnectPauseUs = 50000;
  static constexpr int kMaxEventsPerPlan = 64;
  // A base that waits for the decoder while its refinement arrives is passed over if all that has
  // no base yet can be decoded at the finer level within this part of the time left.
  static constexpr double kPassOver = 0.5;

  // Everything that is referred to must outlive the session.
  LoadSession(RemoteStore& store, SharedLink& link, TransferShare& share, DecodePool& pool,
              const Loader::Config& config, std::shared_ptr<const codec::Profile> profile,
              const LoadOptions& options, PlaneSink& sink, const OnOutcomes& on_outcomes,
              LoadControl* control);
  ~LoadSession();

  LoadResult Run();

 private:
  struct Group {
    int done = -1;      // step that is written
    int decoding = -1;  // step on its way through the decoder, -1 for none
  };
  struct Chunk {
    ChunkPlan plan;
    ChunkManifest manifest;
    std::unique_ptr<ChunkAssembly> assembly;  // while bytes are expected or kept
    std::vector<Group> groups;
    uint32_t attempt = 0;  // rises when the base is asked for again
    bool final = false;
    bool covered = false;  // without steps, final, or its base is written
    RecomputeReason failure = RecomputeReason::kNone;  // the first thing that went wrong
    std::string message;
    adapt::TimeUs first_ask_us = -1;
    uint64_t load_bytes_before = 0;  // received by the load until then
    adapt::TimeUs written_us = 0;
    ChunkOutcome outcome;
  };
  // How an ask gets its bytes: from the server for itself or for others too, or through another
  // load.
  enum class Via { kAlone, kCarries, kFollows };
  struct AskRecord {
    uint32_t chunk = 0;
    uint32_t first_step = 0;
    uint32_t last_step = 0;
    uint64_t missing_bytes = 0;
    adapt::TimeUs asked_us = 0;
    adapt::TimeUs expected_us = 0;  // until its last byte; 0: nothing was known of the link
    bool answered = false;          // its first frame is here
    FetchAsk message;
    // Of a shareable ask: as what it takes part in its transfer, and what it has brought for
    // others.
    TransferShare::Key transfer;
    Via via = Via::kAlone;
    std::vector<TransferShare::Piece> pieces;
    bool live = true;  // false: what still comes is ignored
  };
  struct Failure {
    RecomputeReason reason = RecomputeReason::kNone;
    std::string message;
    bool may_retry = false;
  };

  enum class ServerState { kUnknown, kAnswered, kFailed };

  // What an error of the lookup or of the whole stream says of the chunks.
  static Failure FailureOf(absl::StatusCode code, const std::string& message);

  // False when computing is faster than asking; the load is over then.
  bool MayAsk();
  bool Lookup();
  void JoinLink();
  void RunPlan();
  void Reconnect();
  void JudgeServer();

  void Handle(FetchFrame& frame);
  void Handle(GroupDone& done);
  void Handle(SharedBytes& shared);
  void Handle(StreamEnded& ended);
  bool FrameOk(const FetchFrame& frame);
  bool TakeBytes(uint32_t ask_id, uint64_t offset, const std::string& payload);
  void EndAsk(uint32_t ask_id);
  void FailAsk(uint32_t ask_id, const Failure& failure);
  void FailStep(uint32_t chunk, uint32_t step, const Failure& failure);
  void SubmitDecode(uint32_t chunk, size_t group);
  bool MayPassOverBase(codec::Level level) const;
  void Cover(Chunk& chunk);
  void PollControl();

  double ComputeScale() const;
  void StartRecord();
  void EndRecord();

  void Carry(const adapt::Actions& actions);
  void SendAsk(const adapt::Ask& ask);
  void Transfer(uint32_t ask_id);
  void LeaveTransfer(uint32_t ask_id, AskRecord& ask);
  uint64_t MemberId(uint32_t ask_id) const;
  void CancelAsks(uint32_t chunk, uint32_t first_step);
  void CloseChunk(uint32_t chunk);
  void GiveUp(const adapt::GiveUp& give_up);
  void FinishLoaded(uint32_t chunk);
  void Finish(uint32_t chunk, RecomputeReason reason, const std::string& message);
  void FinishAll(RecomputeReason reason, const std::string& message);
  void TellOutcomes();
  Failure WhyLate() const;
  bool ServerSilent() const;

  RemoteStore& store_;
  SharedLink& link_;
  TransferShare& share_;
  const DecodePool& pool_;
  const Loader::Config& config_;
  const std::shared_ptr<const codec::Profile> profile_;
  const LoadOptions& options_;
  const OnOutcomes& on_outcomes_;
  LoadControl* const control_;
  const LoadTerms terms_;
  const absl::Time deadline_;

  std::vector<Chunk> chunks_;  // without the skipped ones
  LoadEvents events_;
  std::unique_ptr<SharedLink::Member> member_;
  LoadDecoder decoder_;
  FetchLink fetch_;
  absl::flat_hash_map<uint32_t, AskRecord> asks_;
  uint32_t next_ask_id_ = 1;
  adapt::TimeUs first_ask_us_ = -1;
  bool answered_ = false;  // a frame has come
  int reconnects_ = 0;
  adapt::TimeUs reconnect_us_ = -1;  // when to open the stream again; -1: it is not broken
  Failure link_failure_;             // why the link is lost
  absl::Status refused_;             // why the rest of the stream is not taken
  ServerState server_ = ServerState::kUnknown;
  uint32_t computed_chunks_ = 0;  // of the context, as far as the planner knows
  size_t uncovered_ = 0;          // chunks
  std::vector<ChunkOutcome> untold_;
  bool over_ = false;  // cancelled, or the sink failed
  LoadResult result_;
  std::shared_ptr<LoadRecord> record_;  // if there is to be one
};

}  // namespace sluice::client
