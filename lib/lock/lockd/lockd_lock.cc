#include "lock/lockd/lockd_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>

#include "base/error.h"
#include "lock/lockd/lockd_status.h"
#include "loop/backoff.h"
#include "os/file/pipe.h"
#include "os/log.h"
#include "os/process/process.h"
#include "os/socket/fd_passing.h"
#include "os/socket/unix_socket.h"

namespace fo::lock {
namespace {

using base::BootClock;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::throw_errno;
using base::UniqueFd;

// The pause between attempts to connect.
constexpr base::Duration kRetryInterval = std::chrono::milliseconds(50);
// Interval in which a holder records that its connection exists. After a suspension of this
// process, that is the last known time.
constexpr base::Duration kSeenInterval = std::chrono::seconds(1);

void send_request(int socket, const LockdRequest& request, std::span<const int> fds,
                  const std::string& what) {
  const std::string line = encode_request(request);
  const std::ptrdiff_t sent = os::send_with_fds(socket, std::as_bytes(std::span(line)), fds);
  // A new socket has room for a line, so a short write means that the server has closed it.
  if (sent != static_cast<std::ptrdiff_t>(line.size())) {
    throw_errno(sent < 0 ? static_cast<int>(-sent) : EPIPE, ExitStatus::kUnavailable, what);
  }
}

// Appends the available bytes without waiting; false at the end of the connection.
bool receive(int socket, net::LineBuffer& lines, const std::string& what) {
  std::array<char, 4096> chunk;
  const ssize_t got = ::recv(socket, chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (got > 0) lines.append({chunk.data(), static_cast<std::size_t>(got)});
  if (got < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNRESET) throw_errno(errno, what);
  return got > 0 || (got < 0 && errno != ECONNRESET);
}

}  // namespace

LockdLock::LockdLock(std::string path, std::string id, base::Duration first_contact)
    : FailoverLock(std::move(path), std::move(id)), first_contact_(first_contact) {
  os::check_socket_path(this->path());
  renew_lifeline();
}

void LockdLock::renew_lifeline() {
  os::Pipe pipe;
  if (!lifeline_writer_) {
    // The write end gets the lowest free number, so that a dying process closes it last.
    UniqueFd reader(::fcntl(pipe.reader.get(), F_DUPFD_CLOEXEC, pipe.writer.get()));
    if (!reader) throw_errno(errno, "create a pipe");
    pipe.reader = std::move(reader);
    lifeline_writer_.reset(::fcntl(pipe.writer.get(), F_DUPFD_CLOEXEC, 3));
    if (!lifeline_writer_) throw_errno(errno, "create a pipe");
  } else if (::dup3(pipe.writer.get(), lifeline_writer_.get(), O_CLOEXEC) < 0) {
    throw_errno(errno, "create a pipe");
  }
  lifeline_reader_ = std::move(pipe.reader);
}

bool LockdLock::connect() {
  const std::string what = "query lock server " + base::quoted(path());
  try {
    lines_ = net::LineBuffer(kMaxAnswerBytes);
    UniqueFd socket = os::connect_unix(path(), Deadline::after(base::Duration::zero()));
    const std::array<int, 1> lifeline{lifeline_reader_.get()};
    send_request(socket.get(), AcquireRequest{id(), generation_}, lifeline, what);
    socket_ = std::move(socket);
    error_text_ = what + ": no answer in time";
    return true;
  } catch (const Error& error) {
    if (!loop::is_transient(error)) throw;
    error_text_ = error.what();
    return false;
  }
}

std::optional<LockdAnswer> LockdLock::take_answer() {
  if (!socket_) return std::nullopt;
  std::optional<std::string> line = lines_.take_line();
  if (!line) {
    const bool open =
        receive(socket_.get(), lines_, "read from lock server " + base::quoted(path()));
    line = lines_.take_line();
    if (!open && !line) socket_.reset();
  }
  if (!line) return std::nullopt;
  reached_ = true;
  return decode_answer(*line);
}

std::optional<LockdAnswer> LockdLock::take_verdict() {
  while (std::optional<LockdAnswer> answer = take_answer()) {
    if (const auto* granted = std::get_if<GrantedAnswer>(&*answer)) {
      window_ = granted->reconnect_window;
      return answer;
    }
    if (std::holds_alternative<RefusedAnswer>(*answer)) return answer;
    if (const auto* waiting = std::get_if<WaitingAnswer>(&*answer)) {
      window_ = waiting->reconnect_window;
    }
  }
  return std::nullopt;
}

FailoverLock::Result LockdLock::acquire(const Deadline& deadline, int interrupt_fd,
                                        const os::Reminder& reminder) {
  using Clock = Deadline::Clock;
  const Clock::time_point begin = Clock::now();
  Deadline remind_at = reminder.next();
  const Deadline reach_by = Deadline::after(first_contact_);
  for (;;) {
    if (!reached_ && reach_by.expired()) throw Error(ExitStatus::kUnavailable, error_text_);
    if (!socket_) connect();
    if (const std::optional<LockdAnswer> verdict = take_verdict()) {
      if (const auto* refused = std::get_if<RefusedAnswer>(&*verdict)) {
        throw Error(refused->status,
                    "acquire lock " + base::quoted(path()) + ": " + refused->reason);
      }
      const auto& granted = std::get<GrantedAnswer>(*verdict);
      generation_ = granted.generation;
      seen_at_ = BootClock::now();
      return {os::LockWait::kLocked,
              {id(), granted.generation, granted.granted_at, Clock::now() - begin}};
    }
    if (deadline.expired()) return abandon(os::LockWait::kDeadline);
    Deadline next = deadline.sooner(remind_at);
    if (!reached_) next = next.sooner(reach_by);
    if (!socket_) next = next.sooner(Deadline::after(kRetryInterval));
    std::array<pollfd, 2> ready{{{socket_.get(), POLLIN, 0}, {interrupt_fd, POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), next.poll_timeout()) < 0 && errno != EINTR) {
      throw_errno(errno, "wait for lock " + base::quoted(path()));
    }
    if (ready[1].revents != 0 && ready[0].revents == 0) {
      return abandon(os::LockWait::kInterrupted);
    }
    if (remind_at.expired()) {
      reminder.remind();
      remind_at = reminder.next();
    }
  }
}

FailoverLock::Result LockdLock::abandon(os::LockWait outcome) {
  socket_.reset();
  // A server that granted at this instant must see the pipe's end.
  renew_lifeline();
  return {outcome, {}};
}

FailoverLock::Watch LockdLock::watch() {
  if (loss_) return {};
  const base::Duration next = socket_ ? kSeenInterval : kRetryInterval;
  const Deadline at = unreachable_at_.sooner(Deadline::after(next));
  return {socket_.get(), POLLIN, at};
}

std::optional<Loss> LockdLock::check() {
  if (!loss_) loss_ = check_connection();
  return loss_;
}

std::optional<Loss> LockdLock::check_connection() {
  try {
    const bool confirmed = unreachable_at_.is_never();
    if (const std::optional<LockdAnswer> verdict = take_verdict()) {
      if (const auto* refused = std::get_if<RefusedAnswer>(&*verdict)) {
        return taken(refused->status, refused->reason);
      }
      // Another process may have had the lock meanwhile, and the command knows the old number.
      const std::uint64_t generation = std::get<GrantedAnswer>(*verdict).generation;
      if (generation != generation_) {
        return taken(ExitStatus::kTryAgain,
                     "it was granted again, as generation " + std::to_string(generation));
      }
      if (!confirmed) os::log(os::LogLevel::kWarning, "lock {}: reconnected", base::quoted(path()));
      unreachable_at_ = Deadline::never();
    }
    if (is_confirmed()) seen_at_ = BootClock::now();
    if (socket_) {
      if (!unreachable_at_.expired()) return std::nullopt;
    } else if (confirmed) {
      os::log(os::LogLevel::kWarning, "lock {}: the connection broke; reconnecting",
              base::quoted(path()));
      unreachable_at_ = Deadline::after(window_ + kReconnectMargin);
    }
    if (unreachable_at_.expired()) {
      return out_of_reach("the lock server is unreachable");
    }
    connect();
    return std::nullopt;
  } catch (const Error& error) {
    return out_of_reach(error.what());
  }
}

bool LockdLock::is_confirmed() const { return socket_ && unreachable_at_.is_never(); }

void LockdLock::release() {
  const std::string what = "release lock " + base::quoted(path());
  if (!is_confirmed()) throw Error(ExitStatus::kUnavailable, what + ": the server is unreachable");
  send_request(socket_.get(), ReleaseRequest{}, {}, what);
  socket_.reset();
  generation_.reset();
}

Loss LockdLock::taken(ExitStatus status, std::string reason) const {
  return {status, std::move(reason), Deadline::after(base::Duration::zero()),
          BootClock::now() - seen_at_};
}

Loss LockdLock::out_of_reach(std::string reason) const {
  // A server that starts now grants the lock to another process after its window.
  Loss loss{ExitStatus::kProtocol, std::move(reason), Deadline::after(window_ / 2)};
  loss.is_overlap_known = false;
  return loss;
}

LockStatus query_lockd(const std::string& path, const Deadline& deadline) {
  const std::string what = "query lock server " + base::quoted(path);
  const UniqueFd socket = os::connect_unix(path, deadline);
  send_request(socket.get(), StatusRequest{}, {}, what);
  net::LineBuffer lines(kMaxAnswerBytes);
  std::optional<std::string> line;
  while (!(line = lines.take_line())) {
    pollfd ready{socket.get(), POLLIN, 0};
    const int count = ::poll(&ready, 1, deadline.poll_timeout());
    if (count < 0 && errno != EINTR) throw_errno(errno, what);
    if (count == 0) throw Error(ExitStatus::kTryAgain, what + ": no answer in time");
    if (count > 0 && !receive(socket.get(), lines, what)) {
      throw Error(ExitStatus::kProtocol, what + ": it closed the connection");
    }
  }
  const StatusAnswer reported = status_in(*line, what);
  return status_of(path, reported, reported.pid_ns == os::own_pid_namespace());
}

}  // namespace fo::lock
