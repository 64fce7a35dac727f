#include "client/transfer_share.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace sluice::client {
namespace {

using Role = TransferShare::Role;

TransferShare::Key KeyOf(uint32_t layer) {
  TransferShare::Key key;
  key.first_layer = layer;
  key.num_layers = 1;
  return key;
}

TransferShare::Pieces PiecesOf(size_t bytes) {
  return std::make_shared<const std::vector<TransferShare::Piece>>(
      std::vector<TransferShare::Piece>{{0, std::string(bytes, 'x')}});
}

// Remembers what it is told.
struct Follower {
  TransferShare::Tell Tell() {
    return [this](TransferShare::Pieces pieces) { told.push_back(std::move(pieces)); };
  }
  std::vector<TransferShare::Pieces> told;
};

TEST(TransferShare, FollowersGetWhatTheCarrierBrings) {
  TransferShare share(1000);
  Follower carrier, follower, late, other;
  EXPECT_EQ(share.Join(KeyOf(0), 1, carrier.Tell()), Role::kCarry);
  EXPECT_EQ(share.Join(KeyOf(0), 2, follower.Tell()), Role::kFollow);
  EXPECT_EQ(share.Join(KeyOf(1), 3, other.Tell()), Role::kCarry);
  const TransferShare::Pieces pieces = PiecesOf(10);
  share.Complete(KeyOf(0), pieces);
  EXPECT_EQ(follower.told, std::vector{pieces});
  EXPECT_TRUE(carrier.told.empty());
  EXPECT_EQ(share.Join(KeyOf(0), 4, late.Tell()), Role::kThere);
  EXPECT_EQ(late.told, std::vector{pieces});
  EXPECT_TRUE(other.told.empty());
}

TEST(TransferShare, AFollowerCarriesOnWhenTheCarrierGivesUp) {
  TransferShare share(1000);
  Follower first, second, third;
  share.Join(KeyOf(0), 1, first.Tell());
  share.Join(KeyOf(0), 2, second.Tell());
  share.Join(KeyOf(0), 3, third.Tell());
  share.Leave(KeyOf(0), 3);
  share.Abandon(KeyOf(0));
  EXPECT_EQ(second.told, std::vector<TransferShare::Pieces>{nullptr});
  EXPECT_TRUE(third.told.empty());
  EXPECT_EQ(share.Join(KeyOf(0), 2, second.Tell()), Role::kCarry);
  EXPECT_EQ(share.Join(KeyOf(0), 3, third.Tell()), Role::kFollow);
}

TEST(TransferShare, OnlySoManyBytesAreKept) {
  TransferShare share(25);
  Follower any;
  for (uint32_t layer = 0; layer < 3; ++layer) {
    share.Join(KeyOf(layer), layer, any.Tell());
    share.Complete(KeyOf(layer), PiecesOf(10));
  }
  EXPECT_EQ(share.Join(KeyOf(0), 9, any.Tell()), Role::kCarry);
  EXPECT_EQ(share.Join(KeyOf(2), 9, any.Tell()), Role::kThere);
  share.Complete(KeyOf(0), PiecesOf(100));  // more than may be kept
  EXPECT_EQ(share.Join(KeyOf(0), 9, any.Tell()), Role::kCarry);
  EXPECT_EQ(share.Join(KeyOf(2), 9, any.Tell()), Role::kCarry);
}

TEST(TransferShare, WhatIsOverIsNotAbandoned) {
  TransferShare share(1000);
  Follower any;
  share.Abandon(KeyOf(0));
  share.Leave(KeyOf(0), 1);
  share.Complete(KeyOf(0), PiecesOf(1));
  EXPECT_EQ(share.Join(KeyOf(0), 1, any.Tell()), Role::kCarry);
  share.Complete(KeyOf(0), PiecesOf(1));
  share.Abandon(KeyOf(0));
  EXPECT_EQ(share.Join(KeyOf(0), 1, any.Tell()), Role::kThere);
}

}  // namespace
}  // namespace sluice::client
