#include "os/process/sibling.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>

#include "base/unique_fd.h"
#include "os/file/file.h"
#include "os/file/pipe.h"
#include "os/process/exec.h"

namespace fo::os {
namespace {

using base::UniqueFd;

constexpr std::size_t kChunk = 4096;
// The time for a killed program to end. One that hangs in the kernel is abandoned.
constexpr base::Duration kDeathTime = std::chrono::seconds(2);

// One output of the program: its pipe, and the bytes read so far.
class Output {
 public:
  explicit Output(std::size_t max) : max_(max) {
    if (::fcntl(pipe_.reader.get(), F_SETFL, O_NONBLOCK) != 0) {
      base::throw_errno(errno, "create a pipe");
    }
  }
  [[nodiscard]] int writer() const { return pipe_.writer.get(); }
  /// poll(2) skips -1, the value after the end of the output.
  [[nodiscard]] int reader() const { return pipe_.reader.get(); }
  void close_writer() { pipe_.writer.reset(); }
  /// Reads what is available, without waiting.
  void read_some() {
    std::array<char, kChunk> chunk;
    const ssize_t got = ::read(reader(), chunk.data(), chunk.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) return pipe_.reader.reset();
    const std::size_t room = max_ - text_.size();
    text_.append(chunk.data(), std::min(room, static_cast<std::size_t>(got)));
  }
  /// The program's output, at most what a pipe holds. Processes that it left may still write.
  std::string take() {
    constexpr std::size_t kPipe = std::size_t{64} * 1024;
    for (std::size_t read = 0; read <= kPipe && reader() >= 0; read += kChunk) read_some();
    return std::move(text_);
  }

 private:
  Pipe pipe_;
  std::size_t max_;
  std::string text_;
};

}  // namespace

void require_helper(const std::string& file) {
  if (::access(file.c_str(), X_OK) != 0) {
    base::throw_errno(errno, base::ExitStatus::kUnavailable,
                      "use helper program " + base::quoted(file));
  }
}

std::string find_sibling(std::string_view name) {
  namespace fs = std::filesystem;
  fs::path folder = variable("FO_LIBEXEC_DIR");
  if (folder.empty()) {
    std::error_code error;
    const fs::path program = fs::read_symlink("/proc/self/exe", error);
    folder = (program.parent_path() / "../libexec/fo").lexically_normal();
  }
  fs::path helper = folder / name;
  require_helper(helper);
  return helper;
}

std::optional<Captured> run_captured(const std::vector<std::string>& argv,
                                     const base::Deadline& deadline, int interrupt_fd,
                                     std::size_t max_output) {
  const UniqueFd nothing = open_file("/dev/null", O_RDONLY);
  Output out(max_output);
  Output err(max_output);
  SpawnOptions options;
  options.parent_death_signal = SIGKILL;
  options.stdin_fd = nothing.get();
  options.stdout_fd = out.writer();
  options.stderr_fd = err.writer();
  const Child child = spawn(argv, options);
  out.close_writer();
  err.close_writer();
  bool ended = false;
  while (!ended) {
    std::array<pollfd, 4> events{{{out.reader(), POLLIN, 0},
                                  {err.reader(), POLLIN, 0},
                                  {interrupt_fd, POLLIN, 0},
                                  {child.pidfd(), POLLIN, 0}}};
    const int ready = ::poll(events.data(), events.size(), deadline.poll_timeout());
    if (ready < 0 && errno != EINTR) base::throw_errno(errno, "wait for a helper program");
    if (ready == 0 || events[2].revents != 0) break;
    if (ready < 0) continue;
    if (events[0].revents != 0) out.read_some();
    if (events[1].revents != 0) err.read_some();
    ended = events[3].revents != 0;
  }
  const std::optional<WaitStatus> status = ended ? child.wait(deadline) : std::nullopt;
  if (!status) {
    child.signal(SIGKILL);
    static_cast<void>(child.wait(base::Deadline::after(kDeathTime)));
    return std::nullopt;
  }
  return Captured{*status, out.take(), err.take()};
}

base::Error helper_error(const Captured& helper, std::string_view name, const std::string& what) {
  std::string reason = helper.err.substr(0, helper.err.find('\n'));
  const std::string prefix = std::string(name) + ": error: ";
  if (reason.starts_with(prefix)) reason.erase(0, prefix.size());
  if (reason.empty()) {
    reason = std::string(name) + " ended with status " + std::to_string(helper.status);
  }
  const bool known = helper.status <= base::to_int(base::ExitStatus::kConfig);
  return {known ? static_cast<base::ExitStatus>(helper.status) : base::ExitStatus::kSoftware,
          what + reason};
}

}  // namespace fo::os
