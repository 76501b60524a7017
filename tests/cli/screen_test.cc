#include "cli/screen/screen.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <optional>

#include "base/unique_fd.h"
#include "support/environment.h"

namespace fo::cli {
namespace {

// A raw terminal, and its other end, which the test reads.
class OnTerminal : public testing::Test {
 protected:
  void SetUp() override {
    reader_.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_TRUE(reader_ && ::grantpt(reader_.get()) == 0 && ::unlockpt(reader_.get()) == 0);
    terminal_.reset(::open(::ptsname(reader_.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_TRUE(terminal_);
    termios settings{};
    ASSERT_EQ(::tcgetattr(terminal_.get(), &settings), 0);
    ::cfmakeraw(&settings);
    ASSERT_EQ(::tcsetattr(terminal_.get(), TCSANOW, &settings), 0);
  }
  void resize(unsigned short lines, unsigned short columns) const {
    winsize size{};
    size.ws_row = lines;
    size.ws_col = columns;
    ASSERT_EQ(::ioctl(terminal_.get(), TIOCSWINSZ, &size), 0);
  }
  /// Runs `action` with `fd` as stdout, without the output of the tests themselves.
  static void with_stdout(const base::UniqueFd& fd, const std::function<void()>& action) {
    std::fflush(stdout);
    const base::UniqueFd saved(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    ::dup2(fd.get(), STDOUT_FILENO);
    action();
    std::fflush(stdout);
    ::dup2(saved.get(), STDOUT_FILENO);
  }
  /// The bytes that `action` writes to the terminal.
  [[nodiscard]] std::string written_by(const std::function<void()>& action) const {
    action();
    std::string text;
    pollfd ready{reader_.get(), POLLIN, 0};
    while (::poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN) != 0) {
      char buffer[4096];
      const ssize_t got = ::read(reader_.get(), buffer, sizeof buffer);
      if (got <= 0) break;
      text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
  }
  static bool is_there_on(const base::UniqueFd& fd) {
    bool there = false;
    with_stdout(fd, [&] { there = Screen::is_there(); });
    return there;
  }

  fo::test::ScopedVariable environment_{"TERM", "xterm"};
  base::UniqueFd reader_;
  base::UniqueFd terminal_;
};

TEST_F(OnTerminal, IsThereUnlessTheTerminalIsDumb) {
  EXPECT_TRUE(is_there_on(terminal_));
  environment_.set("TERM", "dumb");
  EXPECT_FALSE(is_there_on(terminal_));
  environment_.unset("TERM");
  EXPECT_FALSE(is_there_on(terminal_));
  environment_.set("TERM", "xterm");
  EXPECT_FALSE(is_there_on(base::UniqueFd(::open("/dev/null", O_WRONLY | O_CLOEXEC))));
}

TEST_F(OnTerminal, IsTakenWithTheFirstDrawingAndGivenBack) {
  resize(3, 20);
  std::optional<Screen> screen(terminal_.get());
  EXPECT_EQ(screen->drawing({"one", "two"}),
            "\x1b[?1049h\x1b[?25l\x1b[H\x1b[Kone\r\n\x1b[Ktwo\r\n\x1b[J");
  EXPECT_EQ(screen->drawing({"one", "two", "three"}),
            "\x1b[H\x1b[Kone\r\n\x1b[Ktwo\r\n\x1b[Kthree");
  EXPECT_EQ(written_by([&] { screen->restore(); }), "\x1b[?25h\x1b[?1049l");
  EXPECT_EQ(written_by([&] { screen->restore(); }), "");
  EXPECT_EQ(screen->drawing({"one"}), "\x1b[?1049h\x1b[?25l\x1b[H\x1b[Kone\r\n\x1b[J");
  EXPECT_EQ(written_by([&] { screen.reset(); }), "\x1b[?25h\x1b[?1049l");
}

TEST_F(OnTerminal, HasColorsUnlessTheyAreNotWanted) {
  const auto has_colors = [](const base::UniqueFd& fd) { return Screen(fd.get()).has_colors(); };
  environment_.unset("NO_COLOR");
  EXPECT_TRUE(has_colors(terminal_));
  EXPECT_FALSE(has_colors(base::UniqueFd(::open("/dev/null", O_WRONLY | O_CLOEXEC))));
  environment_.set("NO_COLOR", "");
  EXPECT_TRUE(has_colors(terminal_));
  environment_.set("NO_COLOR", "1");
  EXPECT_FALSE(has_colors(terminal_));
  environment_.unset("NO_COLOR");
  environment_.set("TERM", "dumb");
  EXPECT_FALSE(has_colors(terminal_));
}

TEST_F(OnTerminal, ThatTakesNothingIsNotWaitedForLong) {
  Screen screen(terminal_.get());
  static_cast<void>(screen.drawing({"one"}));
  ASSERT_EQ(::tcflow(terminal_.get(), TCOOFF), 0);
  EXPECT_EQ(written_by([&] { screen.restore(); }), "");
  ASSERT_EQ(::tcflow(terminal_.get(), TCOON), 0);
}

TEST_F(OnTerminal, SizeFollowsTheTerminal) {
  const Screen screen(terminal_.get());
  const Screen::Size before = screen.size();
  resize(5, 30);
  const Screen::Size after = screen.size();
  EXPECT_EQ(before.lines, 24u);
  EXPECT_EQ(before.columns, 80u);
  EXPECT_EQ(after.lines, 5u);
  EXPECT_EQ(after.columns, 30u);
}

}  // namespace
}  // namespace fo::cli
