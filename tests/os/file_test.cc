#include "os/file/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <optional>
#include <string>

#include "support.h"
#include "support/fds.h"
#include "support/temp_dir.h"

namespace fo::os::test {
namespace {

using base::ExitStatus;

class File : public fo::test::FdCounting {
 protected:
  std::ptrdiff_t entries() const {
    return std::distance(std::filesystem::directory_iterator(folder_.path()), {});
  }
  fo::test::TempDir folder_;
};

TEST_F(File, OnlyItsUserAndRootMayChangeIt) {
  write_file_atomic(folder_.path("f"), "", 0644);
  struct stat status {};
  ASSERT_EQ(::stat(folder_.path("f").c_str(), &status), 0);
  EXPECT_EQ(find_other_writer(status), std::nullopt);
  for (const mode_t bit : {mode_t{S_IWGRP}, mode_t{S_IWOTH}}) {
    struct stat writable = status;
    writable.st_mode |= bit;
    EXPECT_EQ(find_other_writer(writable), "other users may write to it");
  }
  status.st_uid = 0;
  EXPECT_EQ(find_other_writer(status), std::nullopt);
  status.st_uid = ::geteuid() + 1;
  EXPECT_EQ(find_other_writer(status), "it belongs to user " + std::to_string(status.st_uid));
}

TEST_F(File, RoundTrips) {
  const std::string content("a\0b\n", 4);
  write_file_atomic(folder_.path("f"), content);
  EXPECT_EQ(read_file(folder_.path("f"), 4), content);
  EXPECT_EQ(entries(), 1);
}

TEST_F(File, OpensCloexec) {
  const base::UniqueFd fd = open_file("/dev/null", O_RDONLY);
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
}

TEST_F(File, LongerThanTheLimitIsBadData) {
  write_file_atomic(folder_.path("f"), std::string(2000, 'x'));
  EXPECT_EQ(read_file(folder_.path("f"), 2000).size(), 2000U);
  const Failure failure = failure_of([&] { read_file(folder_.path("f"), 1024); });
  EXPECT_EQ(failure.status, ExitStatus::kBadData);
  EXPECT_EQ(failure.message, "read '" + folder_.path("f") + "': longer than 1 KiB");
}

TEST_F(File, AnEndlessFileIsCutOff) {
  EXPECT_EQ(failure_of([] { read_file("/dev/zero", 1 << 20); }).status, ExitStatus::kBadData);
}

TEST_F(File, AMissingFileIsNoInput) {
  const Failure failure = failure_of([&] { read_file(folder_.path("none"), 1); });
  EXPECT_EQ(failure.status, ExitStatus::kNoInput);
  EXPECT_EQ(failure.message, "open '" + folder_.path("none") + "': No such file or directory");
}

TEST_F(File, AFolderIsNoFile) {
  EXPECT_EQ(failure_of([&] { read_file(folder_.path(), 1); }).status, ExitStatus::kOsError);
}

TEST_F(File, WritingReplacesWholeFilesOnly) {
  write_file_atomic(folder_.path("f"), "old");
  const base::UniqueFd reader = open_file(folder_.path("f"), O_RDONLY);
  write_file_atomic(folder_.path("f"), "new", 0600);
  EXPECT_EQ(read_to_end(reader.get()), "old");
  EXPECT_EQ(read_file(folder_.path("f"), 10), "new");
  struct stat info {};
  ASSERT_EQ(::stat(folder_.path("f").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST_F(File, WhatIsNoRegularFileIsNotReplaced) {
  std::filesystem::create_directory(folder_.path("d"));
  std::filesystem::create_symlink("elsewhere", folder_.path("link"));
  for (const char* name : {"d", "link"}) {
    EXPECT_EQ(failure_of([&] { write_file_atomic(folder_.path(name), "x"); }).status,
              ExitStatus::kCannotCreate);
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder_.path("link")));
  EXPECT_EQ(entries(), 2);
}

TEST_F(File, APlainFileIsCreatedAndOpened) {
  const std::string path = folder_.path("f");
  EXPECT_TRUE(open_plain_file(path, O_RDWR | O_CREAT, "open it", 0600).valid());
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_TRUE(open_plain_file(path, O_RDWR | O_CREAT, "open it").valid());
  EXPECT_TRUE(open_plain_file(path, O_RDONLY, "open it").valid());
}

TEST_F(File, LinksAreNotFollowedWhereAPlainFileIsWanted) {
  const std::string precious = folder_.path("precious");
  write_file_atomic(precious, "x");
  std::filesystem::create_symlink(precious, folder_.path("soft"));
  std::filesystem::create_symlink(folder_.path("absent"), folder_.path("dangling"));
  std::filesystem::create_symlink(folder_.path("loop"), folder_.path("loop"));
  for (const char* name : {"soft", "dangling", "loop"}) {
    for (const int flags : {O_RDONLY, O_RDWR | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC}) {
      const auto failure =
          failure_of([&] { open_plain_file(folder_.path(name), flags, "open it"); });
      EXPECT_EQ(failure.status, ExitStatus::kCannotCreate) << name;
      EXPECT_EQ(failure.message, "open it: a symbolic link, which is not followed");
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.path("absent")));
  std::filesystem::create_hard_link(precious, folder_.path("hard"));
  const auto failure = failure_of([&] { open_plain_file(precious, O_RDWR | O_CREAT, "open it"); });
  EXPECT_EQ(failure.status, ExitStatus::kCannotCreate);
  EXPECT_EQ(failure.message, "open it: the file has more than one hard link");
  EXPECT_EQ(read_file(precious, 10), "x");
}

TEST_F(File, WhatIsNoPlainFileIsRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo(folder_.path("fifo").c_str(), 0600), 0);
  std::filesystem::create_directory(folder_.path("d"));
  for (const char* name : {"fifo", "d"}) {
    for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR | O_CREAT}) {
      const auto failure =
          failure_of([&] { open_plain_file(folder_.path(name), flags, "open it"); });
      EXPECT_EQ(failure.status, ExitStatus::kCannotCreate) << name;
      EXPECT_EQ(failure.message, "open it: not a regular file");
    }
  }
}

TEST_F(File, AMissingFolderIsSaid) {
  write_file_atomic(folder_.path("f"), "x");
  for (const std::string& folder : {folder_.path("no"), folder_.path("f")}) {
    const auto failure =
        failure_of([&] { open_plain_file(folder + "/file", O_RDWR | O_CREAT, "open it"); });
    EXPECT_EQ(failure.status, ExitStatus::kCannotCreate);
    EXPECT_EQ(failure.message, "open it: missing folder '" + folder + "'");
    EXPECT_EQ(find_missing_folder(folder + "/file"), folder);
  }
  EXPECT_EQ(
      failure_of([&] { open_plain_file(folder_.path("absent"), O_RDONLY, "open it"); }).status,
      ExitStatus::kNoInput);
  EXPECT_EQ(find_missing_folder(folder_.path("absent")), std::nullopt);
  EXPECT_EQ(find_missing_folder("/absent"), std::nullopt);
  EXPECT_EQ(find_missing_folder("absent"), std::nullopt);
}

TEST_F(File, AFailedWriteLeavesNothingBehind) {
  EXPECT_EQ(failure_of([&] { write_file_atomic(folder_.path("no/f"), "x"); }).status,
            ExitStatus::kCannotCreate);
}

TEST_F(File, AFullDiskIsAnIoError) {
  const base::UniqueFd full = open_file("/dev/full", O_WRONLY);
  const Failure failure = failure_of([&] { write_all(full.get(), "x", "write 'it'"); });
  EXPECT_EQ(failure.status, ExitStatus::kIoError);
  EXPECT_EQ(failure.message, "write 'it': No space left on device");
}

}  // namespace
}  // namespace fo::os::test
