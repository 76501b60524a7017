#include "os/sibling.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/unique_fd.h"
#include "os/file.h"

namespace fo::os {
namespace {

using base::UniqueFd;

constexpr std::size_t kMostOutput = std::size_t{64} * 1024;
// For a killed program to be gone. One that hangs in the kernel is left behind.
constexpr base::Duration kDeathTime = std::chrono::seconds(2);

// One of the program's outputs: where it writes, where we read, what came.
class Output {
 public:
  Output() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) base::throw_errno(errno, "create a pipe");
    reader_.reset(ends[0]);
    writer_.reset(ends[1]);
  }
  [[nodiscard]] int writer() const { return writer_.get(); }
  /// poll(2) passes over -1, which is what is left after the end.
  [[nodiscard]] int reader() const { return reader_.get(); }
  void close_writer() { writer_.reset(); }
  void read_some() {
    std::array<char, 4096> chunk;
    const ssize_t got = ::read(reader_.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) return reader_.reset();
    const std::size_t room = kMostOutput - text_.size();
    text_.append(chunk.data(), std::min(room, static_cast<std::size_t>(got)));
  }
  std::string take() { return std::move(text_); }

 private:
  UniqueFd reader_;
  UniqueFd writer_;
  std::string text_;
};

}  // namespace

std::string find_sibling(std::string_view name) {
  namespace fs = std::filesystem;
  const char* named = std::getenv("FO_LIBEXEC_DIR");
  fs::path folder = named == nullptr ? "" : named;
  if (folder.empty()) {
    std::error_code error;
    const fs::path program = fs::read_symlink("/proc/self/exe", error);
    folder = (program.parent_path() / "../libexec/fo").lexically_normal();
  }
  fs::path helper = folder / name;
  if (::access(helper.c_str(), X_OK) != 0) {
    base::throw_errno(errno, base::ExitStatus::kUnavailable,
                      "use helper program " + base::quoted(helper.native()));
  }
  return helper;
}

std::optional<Captured> run_captured(const std::vector<std::string>& argv,
                                     const base::Deadline& deadline, int interrupt_fd) {
  const UniqueFd nothing = open_file("/dev/null", O_RDONLY);
  Output out;
  Output err;
  SpawnOptions options;
  options.parent_death_signal = SIGKILL;
  options.stdin_fd = nothing.get();
  options.stdout_fd = out.writer();
  options.stderr_fd = err.writer();
  const Child child = spawn(argv, options);
  out.close_writer();
  err.close_writer();
  while (out.reader() >= 0 || err.reader() >= 0) {
    std::array<pollfd, 3> events{
        {{out.reader(), POLLIN, 0}, {err.reader(), POLLIN, 0}, {interrupt_fd, POLLIN, 0}}};
    const int ready = ::poll(events.data(), events.size(), deadline.poll_timeout());
    if (ready < 0 && errno != EINTR) base::throw_errno(errno, "wait for a helper program");
    if (ready == 0 || events[2].revents != 0) break;
    if (ready < 0) continue;
    if (events[0].revents != 0) out.read_some();
    if (events[1].revents != 0) err.read_some();
  }
  const bool ended = out.reader() < 0 && err.reader() < 0;
  const std::optional<WaitStatus> status = ended ? child.wait(deadline) : std::nullopt;
  if (!status) {
    child.signal(SIGKILL);
    static_cast<void>(child.wait(base::Deadline::after(kDeathTime)));
    return std::nullopt;
  }
  return Captured{*status, out.take(), err.take()};
}

}  // namespace fo::os
