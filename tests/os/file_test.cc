#include "os/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iterator>

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
