#include "weights/snapshot/snapshot_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "snapshot_fixture.h"

namespace fo::weights {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class Folder : public SnapshotDirectory {};

TEST_F(Folder, OfADeadSaverIsRemovedAndNobodyElses) {
  for (const char* name : {"snap.partial-0123abcd/shards", "snap.partial-backup/keep",
                           "snap.partial-0123abcde", "snap.partial-0123ABCD"}) {
    fs::create_directories(dir_.path(name));
  }
  for (const char* name :
       {"manifest.json", "gms_metadata.json.Ab12yZ", "shards/shard_0000.bin", ".lock"}) {
    dir_.write(std::string("snap.partial-0123abcd/") + name, "x");
  }
  dir_.write("snap.partial-backup/keep/f", "mine");
  { const SnapshotFolder folder(snap_, Replace::kNo); }
  EXPECT_THAT(names(), ElementsAre("snap.partial-0123ABCD", "snap.partial-0123abcde",
                                   "snap.partial-backup"));
  EXPECT_EQ(content_of(dir_.path("snap.partial-backup/keep/f")), "mine");
}

TEST_F(Folder, KeepsWhatIsNoPartOfASnapshot) {
  fs::create_directories(dir_.path("snap.partial-0123abcd"));
  dir_.write("snap.partial-0123abcd/f", "mine");
  { const SnapshotFolder folder(snap_, Replace::kNo); }
  EXPECT_EQ(content_of(dir_.path("snap.partial-0123abcd/f")), "mine");
}

// Whatever the order of creation and cleanup.
TEST_F(Folder, IsNeverTakenForADeadOne) {
  std::vector<std::future<void>> savers;
  for (int i = 0; i < 4; ++i) {
    savers.push_back(std::async(std::launch::async, [this] {
      for (int round = 0; round < 200; ++round) {
        const SnapshotFolder folder(snap_, Replace::kNo);
        fs::create_directory(folder.path() + "/shards");
        std::ofstream(folder.path() + "/shards/shard_0000.bin") << "x";
        EXPECT_EQ(content_of(folder.path() + "/shards/shard_0000.bin"), "x");
      }
    }));
  }
  for (auto& saver : savers) EXPECT_NO_THROW(saver.get());
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Folder, HasNothingOfItsOwnInItsPlace) {
  SnapshotFolder folder(snap_, Replace::kNo);
  folder.publish();
  EXPECT_TRUE(fs::is_empty(snap_));
}

TEST_F(Folder, HasModeAndOwnerOfWhatItReplaces) {
  fs::create_directory(snap_);
  ASSERT_EQ(::chmod(snap_.c_str(), 02750), 0);
  const bool gives_away = ::chown(snap_.c_str(), 1234, 5678) == 0 && ::geteuid() == 0;
  for (const bool is_empty : {true, false}) {
    if (!is_empty) dir_.write("snap/manifest.json", "x");
    ASSERT_EQ(::chmod(snap_.c_str(), 02750), 0);
    SnapshotFolder folder(snap_, Replace::kYes);
    folder.publish();
    struct stat made {};
    ASSERT_EQ(::stat(snap_.c_str(), &made), 0);
    EXPECT_EQ(made.st_mode & 07777, 02750u);
    if (gives_away) {
      EXPECT_EQ(made.st_uid, 1234u);
      EXPECT_EQ(made.st_gid, 5678u);
    }
  }
  EXPECT_THAT(names(), ElementsAre("snap"));
}

}  // namespace
}  // namespace fo::weights
