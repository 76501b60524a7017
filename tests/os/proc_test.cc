#include "os/process/proc.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/unique_fd.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::os {
namespace {

using base::ExitStatus;

TEST(Proc, ShowsThisProcessAndItsDescriptors) {
  std::set<pid_t> pids;
  each_process([&](pid_t pid) { pids.insert(pid); });
  EXPECT_TRUE(pids.contains(::getpid()));

  const base::UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::map<int, std::string> links;
  EXPECT_TRUE(each_fd(::getpid(), [&](int fd, const std::string& path) { links[fd] = path; }));
  ASSERT_TRUE(links.contains(null.get()));
  EXPECT_EQ(std::filesystem::read_symlink(links[null.get()]), "/dev/null");
}

TEST(Proc, AProcessThatHasEndedHasNoDescriptors) {
  const fo::test::TempDir proc;
  EXPECT_TRUE(each_fd(
      1, [](int, const std::string&) { FAIL(); }, proc.path()));
}

TEST(Proc, OnlyNumbersAreProcesses) {
  const fo::test::TempDir proc;
  for (const char* name : {"17", "self", "4 2", "-1", "irq"}) {
    std::filesystem::create_directory(proc.path(name));
  }
  std::set<pid_t> pids;
  each_process([&](pid_t pid) { pids.insert(pid); }, proc.path());
  EXPECT_EQ(pids, std::set<pid_t>{17});
}

TEST(Proc, AFolderThatIsNotThereIsUnavailable) {
  const fo::test::Failure failure =
      fo::test::failure_of([] { each_process([](pid_t) {}, "/none"); });
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_EQ(failure.message, "inspect '/none': No such file or directory");
}

}  // namespace
}  // namespace fo::os
