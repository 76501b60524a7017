#include "cli/screen/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "support.h"

namespace fo::cli::test {
namespace {

/// Redirects stdout while it lives.
class Redirected {
 public:
  explicit Redirected(const char* path) : saved_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(::dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
    ::close(fd);
  }
  ~Redirected() {
    std::fflush(stdout);
    std::clearerr(stdout);
    ::dup2(saved_, STDOUT_FILENO);
    ::close(saved_);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  int saved_;
};

TEST(Output, LinesAreWrittenAtOnce) {
  testing::internal::CaptureStdout();
  print("a");
  print("");
  print_line("b");
  finish_output();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "ab\n");
}

TEST(Output, AFullStdoutIsAnIoError) {
  const Redirected full("/dev/full");
  Failure failure = failure_of([] { print_line("x"); });
  EXPECT_EQ(failure.status, base::ExitStatus::kIoError);
  EXPECT_EQ(failure.message, "write to standard output: No space left on device");
}

TEST(Output, AnEarlierFailureIsNotForgotten) {
  const Redirected full("/dev/full");
  EXPECT_EQ(failure_of([] { print(std::string(1 << 20, 'x')); }).status,
            base::ExitStatus::kIoError);
  EXPECT_EQ(failure_of([] { finish_output(); }).status, base::ExitStatus::kIoError);
}

TEST(Output, NothingWrittenIsNothingLost) {
  const Redirected full("/dev/full");
  EXPECT_NO_THROW(finish_output());
}

}  // namespace
}  // namespace fo::cli::test
