#include "canary/xid/xid_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "os/file/file.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::canary {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class XidLogFile : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }
  void write_xid(int code) {
    write("NVRM: Xid (PCI:0000:3b:00): " + std::to_string(code) + ", a\n");
  }
  // As logrotate(8): the new file exists before the writer opens it.
  void rotate() {
    std::filesystem::rename(path_, path_ + ".1");
    write("");
  }
  void append_to_old(int code) {
    std::ofstream(path_ + ".1", std::ios::app) << "NVRM: Xid (PCI:0000:3b:00): " << code << ", a\n";
  }
  static std::vector<int> descriptors_of(const std::string& path) {
    std::vector<int> fds;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code ignored;
      if (std::filesystem::read_symlink(entry.path(), ignored) == path) {
        fds.push_back(std::stoi(entry.path().filename()));
      }
    }
    return fds;
  }
  // The codes since the last call.
  std::vector<std::uint64_t> read(XidLog& log) {
    codes_.clear();
    log.read();
    return codes_;
  }

  test::TempDir dir_;
  const std::string path_ = dir_.path() + "/kern.log";
  std::vector<std::uint64_t> codes_;
  std::vector<std::string> lines_;
  const OnMessage on_message_ = [this](const KernelMessage& message) {
    lines_.push_back(message.text);
  };
  const XidLog::OnXid on_xid_ = [this](const Xid& xid) { codes_.push_back(xid.code); };
};

TEST_F(XidLogFile, OnlyWhatIsAppendedCounts) {
  write_xid(48);
  XidLog log(path_, on_xid_);
  EXPECT_THAT(read(log), IsEmpty());
  EXPECT_FALSE(os::is_readable(log.fd()));
  write_xid(79);
  EXPECT_TRUE(os::is_readable(log.fd()));
  EXPECT_THAT(read(log), ElementsAre(79));
  EXPECT_FALSE(os::is_readable(log.fd()));
  EXPECT_THAT(read(log), IsEmpty());
}

TEST_F(XidLogFile, ALineInTwoPartsIsOne) {
  write("");
  XidLog log(path_, on_xid_);
  write("NVRM: Xid (PCI:0000:3b:00): 7");
  EXPECT_THAT(read(log), IsEmpty());
  write("9, a\n");
  EXPECT_THAT(read(log), ElementsAre(79));
}

TEST_F(XidLogFile, ANewFileAndATruncatedOneAreRead) {
  write_xid(48);
  XidLog log(path_, on_xid_);
  write_xid(64);
  std::filesystem::rename(path_, path_ + ".1");
  write_xid(95);
  EXPECT_TRUE(os::is_readable(log.fd()));
  EXPECT_THAT(read(log), ElementsAre(64, 95));
  std::filesystem::resize_file(path_, 0);
  EXPECT_THAT(read(log), IsEmpty());
  write_xid(119);
  EXPECT_THAT(read(log), ElementsAre(119));
}

TEST_F(XidLogFile, AnOldFileIsReadUntilTheNextRotation) {
  write_xid(48);
  XidLog log(path_, on_xid_);
  rotate();
  EXPECT_THAT(read(log), IsEmpty());
  append_to_old(64);
  EXPECT_TRUE(os::is_readable(log.fd()));
  EXPECT_THAT(read(log), ElementsAre(64));
  append_to_old(79);
  write_xid(95);
  EXPECT_THAT(read(log), ElementsAre(79, 95));
  append_to_old(119);
  rotate();
  append_to_old(120);
  EXPECT_THAT(read(log), ElementsAre(119, 120));
  append_to_old(140);
  write_xid(48);
  EXPECT_THAT(read(log), ElementsAre(140, 48));
}

TEST_F(XidLogFile, ARemovedOldFileIsReadToItsEndAndClosed) {
  write("");
  XidLog log(path_, on_xid_);
  rotate();
  EXPECT_THAT(read(log), IsEmpty());
  append_to_old(64);
  EXPECT_EQ(descriptors_of(path_ + ".1").size(), 1);
  std::filesystem::remove(path_ + ".1");
  EXPECT_TRUE(os::is_readable(log.fd()));
  EXPECT_THAT(read(log), ElementsAre(64));
  EXPECT_THAT(descriptors_of(path_ + ".1 (deleted)"), IsEmpty());
}

TEST_F(XidLogFile, ADescriptorThatFailsIsOpenedAgainWhereItWas) {
  write_xid(48);
  XidLog log(path_, on_xid_);
  write_xid(64);
  write("NVRM: Xid (PCI:0000:3b:00): 7");
  EXPECT_THAT(read(log), ElementsAre(64));
  const std::vector<int> fds = descriptors_of(path_);
  ASSERT_EQ(fds.size(), 1);
  // It can't be read.
  const base::UniqueFd failing = os::open_file(path_, O_WRONLY);
  ASSERT_GT(::lseek(failing.get(), 0, SEEK_END), 0);
  ASSERT_GE(::dup3(failing.get(), fds[0], O_CLOEXEC), 0);
  write("9, a\n");
  EXPECT_EQ(test::failure_of([&] { read(log); }).message,
            "read '" + path_ + "': Bad file descriptor");
  EXPECT_THAT(read(log), ElementsAre(79));
}

TEST_F(XidLogFile, NothingIsLostWhileANewFileCannotBeRead) {
  write_xid(48);
  XidLog log(path_, on_xid_);
  std::filesystem::rename(path_, path_ + ".1");
  append_to_old(64);
  // Nobody writes into this pipe, and nobody waits for it.
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const auto failure = test::failure_of([&] { read(log); });
  EXPECT_EQ(failure.status, base::ExitStatus::kNoInput);
  EXPECT_EQ(failure.message, "read '" + path_ + "': not a regular file");
  EXPECT_THAT(codes_, ElementsAre(64));
  append_to_old(79);
  std::filesystem::remove(path_);
  write_xid(95);
  EXPECT_THAT(read(log), ElementsAre(79, 95));
  // The same file is not read twice.
  EXPECT_THAT(read(log), IsEmpty());
}

TEST_F(XidLogFile, AfterAReadErrorTheFileThatReplacedItIsRead) {
  // A regular file, whose first page can't be read.
  std::filesystem::create_symlink("/proc/self/mem", path_);
  LogFile log(path_, on_message_, LogFile::From::kBeginning);
  EXPECT_EQ(test::failure_of([&] { log.read(); }).message,
            "read '" + path_ + "': Input/output error");
  std::filesystem::remove(path_);
  write_xid(95);
  log.read();
  EXPECT_THAT(lines_, ElementsAre("NVRM: Xid (PCI:0000:3b:00): 95, a"));
}

TEST_F(XidLogFile, AMissingOneIsAnError) {
  const auto failure = test::failure_of([&] { XidLog log(path_, on_xid_); });
  EXPECT_EQ(failure.status, base::ExitStatus::kNoInput);
  EXPECT_EQ(failure.message, "open '" + path_ + "': No such file or directory");
}

}  // namespace
}  // namespace fo::canary
