#include "canary/xid/xid.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"
#include "canary/xid/kernel_log.h"
#include "canary/xid/xid_report.h"
#include "cli/screen/output.h"
#include "commands.h"
#include "os/file/file.h"

namespace fo::fo_canary {
namespace {

// This is checked before the file is opened, because opening a pipe waits for its writer.
void check_follow(const std::string& path) {
  if (path != "-") return canary::check_can_follow(path, "--follow");
  throw base::Error(base::ExitStatus::kUsage,
                    "--follow: standard input is neither a file nor the kernel's log");
}

}  // namespace

int xid(const Options& options) {
  canary::XidReader reader;
  const canary::OnMessage on_message = [&](const canary::KernelMessage& message) {
    const auto found = reader.read(message.text);
    if (found) cli::print_line(canary::to_json(*found, message));
  };
  const bool is_stdin = options.log == "-";
  if (options.follow) check_follow(options.log);
  const std::string what = is_stdin ? "read standard input" : "read " + base::quoted(options.log);
  base::UniqueFd file;
  if (!is_stdin) file = os::open_file(options.log, O_RDONLY);
  const int fd = is_stdin ? STDIN_FILENO : file.get();
  const canary::ReadCall read = [fd](char* to, std::size_t size) { return ::read(fd, to, size); };
  if (canary::is_kmsg(fd)) {
    canary::read_kmsg(read, what, on_message, [&] { canary::warn_of_lost_messages(what); });
  } else if (options.follow) {
    canary::LogFile followed(options.log, on_message, canary::LogFile::From::kBeginning);
    for (pollfd changes{.fd = followed.fd(), .events = POLLIN, .revents = 0};;) {
      followed.read();
      if (::poll(&changes, 1, -1) < 0 && errno != EINTR) base::throw_errno(errno, what);
    }
  } else {
    canary::LogLines lines(on_message);
    canary::read_log(read, what, lines);
    lines.finish();
  }
  return base::to_int(base::ExitStatus::kOk);
}

}  // namespace fo::fo_canary
