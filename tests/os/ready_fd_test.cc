#include "os/socket/ready_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "os/file/pipe.h"
#include "support/failure.h"
#include "support/fds.h"

namespace fo::os {
namespace {

using base::ExitStatus;

class ReadyFdTest : public fo::test::FdCounting {
 protected:
  std::string read_to_end() {
    std::array<char, 64> buffer;
    std::string text;
    for (;;) {
      const ssize_t got = ::read(pipe_.reader.get(), buffer.data(), buffer.size());
      if (got <= 0) return text;
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }

  Pipe pipe_;
};

TEST_F(ReadyFdTest, WritesOneLineAndCloses) {
  const int fd = ::fcntl(pipe_.writer.get(), F_DUPFD, 3);
  pipe_.writer.reset();
  ReadyFd ready(fd);
  EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
  ready.announce("127.0.0.1:1\n");
  ready.announce();
  EXPECT_EQ(read_to_end(), "127.0.0.1:1\n");
}

TEST_F(ReadyFdTest, IsClosedByItsOwner) {
  ReadyFd ready(pipe_.writer.release());
  ready = ReadyFd();
  EXPECT_EQ(read_to_end(), "");
}

TEST_F(ReadyFdTest, NoDescriptorIsNoError) {
  ReadyFd none(-1);
  none.announce();
}

TEST_F(ReadyFdTest, ADescriptorThatIsNotOpenIsAUsageError) {
  const auto failure = fo::test::failure_of([] { ReadyFd closed(1023); });
  EXPECT_EQ(failure.status, ExitStatus::kUsage);
  EXPECT_EQ(failure.message, "use --ready-fd 1023: Bad file descriptor");
}

}  // namespace
}  // namespace fo::os
