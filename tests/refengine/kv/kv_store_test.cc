#include "refengine/kv/kv_store.h"

#include <gtest/gtest.h>

namespace fo::refengine {
namespace {

const KvStore::Time kNow{};

std::shared_ptr<KvSnapshot> snapshot_of(KvStore& store, base::ByteCount bytes) {
  auto snapshot = std::make_shared<KvSnapshot>();
  snapshot->room = store.reserve(bytes, kNow);
  return snapshot;
}

TEST(KvStore, KeepsSnapshotsUntilTheyAreRemoved) {
  KvStore store(100);
  const auto one = snapshot_of(store, 10);
  const std::string id = store.keep(one, kNow);
  const std::string other = store.keep(snapshot_of(store, 10), kNow);
  EXPECT_NE(id, other);
  EXPECT_EQ(store.find(id, kNow), one);
  store.remove(id);
  EXPECT_EQ(store.find(id, kNow), nullptr);
  EXPECT_NE(store.find(other, kNow), nullptr);
  EXPECT_EQ(store.find("x", kNow), nullptr);
}

TEST(KvStore, ItsMemoryIsLimited) {
  KvStore store(100);
  EXPECT_EQ(store.reserve(101, kNow), nullptr);
  EXPECT_EQ(store.reserve(~base::ByteCount{0}, kNow), nullptr);
  auto first = store.reserve(60, kNow);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(store.reserve(41, kNow), nullptr);
  EXPECT_NE(store.reserve(40, kNow), nullptr);
  first.reset();
  EXPECT_NE(store.reserve(100, kNow), nullptr);
}

TEST(KvStore, WhatWasTakenCountsUntilItIsDestroyed) {
  KvStore store(100);
  const std::string id = store.keep(snapshot_of(store, 60), kNow);
  auto taken = store.find(id, kNow);
  store.remove(id);
  EXPECT_EQ(store.reserve(60, kNow), nullptr);
  taken.reset();
  EXPECT_NE(store.reserve(60, kNow), nullptr);
}

TEST(KvStore, SnapshotsAreDroppedAfterATime) {
  KvStore store(100);
  const std::string id = store.keep(snapshot_of(store, 60), kNow);
  const auto before = kNow + KvStore::kKeepTime - std::chrono::seconds(1);
  EXPECT_NE(store.find(id, before), nullptr);
  EXPECT_EQ(store.reserve(60, before), nullptr);
  const auto after = kNow + KvStore::kKeepTime;
  EXPECT_EQ(store.find(id, after), nullptr);
  EXPECT_NE(store.reserve(60, after), nullptr);
}

TEST(KvStore, SnapshotsMayOutliveIt) {
  auto store = std::make_unique<KvStore>(100);
  const auto snapshot = snapshot_of(*store, 10);
  store.reset();
  EXPECT_NE(snapshot->room, nullptr);
}

}  // namespace
}  // namespace fo::refengine
