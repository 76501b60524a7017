#include "lock/lockd_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <csignal>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "lock/lockd_model.h"
#include "lock/lockd_state.h"
#include "os/fd_passing.h"
#include "os/file.h"
#include "os/log.h"
#include "os/process.h"
#include "os/server_socket.h"
#include "os/signals.h"
#include "os/unix_socket.h"

namespace fo::lock {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::posix::stream_descriptor;
using base::Error;
using base::ExitStatus;
using base::throw_errno;
using base::UniqueFd;
using os::LogLevel;
using Wait = asio::posix::descriptor_base;

// For a disk that does not answer when we are asked to end.
constexpr base::Duration kStopGrace = std::chrono::seconds(2);

LockdTime now() { return {std::chrono::steady_clock::now(), std::chrono::system_clock::now()}; }

// False once it was closed.
bool is_open(const stream_descriptor& descriptor, const boost::system::error_code& ec) {
  if (ec && descriptor.is_open()) {
    throw Error(ExitStatus::kOsError, "wait for a descriptor", std::error_code(ec));
  }
  return descriptor.is_open();
}

awaitable<bool> readable(stream_descriptor& descriptor) {
  boost::system::error_code ec;
  co_await descriptor.async_wait(Wait::wait_read, asio::redirect_error(asio::use_awaitable, ec));
  co_return is_open(descriptor, ec);
}

// To be watched by the loop. What asio's own constructor throws is no Error, and leaks `fd`.
stream_descriptor watched(asio::io_context& io, UniqueFd fd) {
  stream_descriptor descriptor(io);
  boost::system::error_code ec;
  descriptor.assign(fd.get(), ec);
  if (ec) throw Error(ExitStatus::kOsError, "watch a descriptor", std::error_code(ec));
  static_cast<void>(fd.release());
  return descriptor;
}

void close(stream_descriptor& descriptor) {
  boost::system::error_code ignored;
  descriptor.close(ignored);
}

// Made fit to be watched. A pipe that we could write to ourselves would never come to its end.
UniqueFd check_lifeline(UniqueFd fd) {
  struct stat info {};
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fstat(fd.get(), &info) != 0 || !S_ISFIFO(info.st_mode) ||
      (flags & O_ACCMODE) != O_RDONLY || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    throw Error(ExitStatus::kProtocol, "the descriptor is not the reading end of a pipe");
  }
  return fd;
}

class Server {
 public:
  Server(const LockdConfig& config, std::string state_path, const LoadedState& loaded,
         UniqueFd listener, UniqueFd signals)
      : config_(config),
        state_path_(std::move(state_path)),
        model_(std::chrono::ceil<std::chrono::milliseconds>(config.reconnect_window), loaded,
               watch_running(loaded.state), now()),
        listener_(watched(io_, std::move(listener))),
        signals_(watched(io_, std::move(signals))) {}

  void run(UniqueFd ready_fd) {
    start(wait_for_signals());
    start(accept_clients());
    for (std::size_t i = 0; i < running_.size(); ++i) start(wait_for_end(i));
    apply_effects();
    if (ready_fd) os::write_all(ready_fd.get(), "\n", "write to the ready descriptor");
    ready_fd.reset();
    io_.run();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Session {
    Session(asio::io_context& io, UniqueFd connected)
        : socket(watched(io, std::move(connected))), silence(io) {}
    ConnectionId id = 0;
    std::optional<RecordedProcess> process;
    stream_descriptor socket;
    /// Open while somebody has the other end.
    std::optional<stream_descriptor> lifeline;
    asio::steady_timer silence;
    LineBuffer lines{kMostRequestBytes};
    /// Came with the line that is being read.
    std::vector<UniqueFd> fds;
    enum class Talk { kNothingYet, kStatus, kAcquire } talk = Talk::kNothingYet;
    bool ended = false;
  };
  using SessionPtr = std::shared_ptr<Session>;

  void start(awaitable<void> task) {
    asio::co_spawn(io_, std::move(task), [this](std::exception_ptr error) {
      if (error) fail(std::move(error));
    });
  }

  // The recorded processes that run, which are watched from now on.
  std::vector<RecordedProcess> watch_running(const LockdState& state) {
    std::vector<RecordedProcess> running;
    for (const RecordedProcess& process : state.processes) {
      std::optional<UniqueFd> pidfd = open_running(process);
      if (!pidfd) continue;
      running.push_back(process);
      running_.emplace_back(process, watched(io_, std::move(*pidfd)));
    }
    return running;
  }

  awaitable<void> wait_for_end(std::size_t index) {
    stream_descriptor& pidfd = running_[index].second;
    const bool open = co_await readable(pidfd);
    if (!open) co_return;
    close(pidfd);
    model_.process_ended(running_[index].first, now());
    apply_effects();
  }

  awaitable<void> wait_for_signals() {
    for (;;) {
      const bool open = co_await readable(signals_);
      if (!open) co_return;
      if (os::read_signal(signals_.native_handle()) != 0) stop();
    }
  }

  // What is being recorded is finished first: a release, say, that the next server should know of.
  void stop() {
    if (std::exchange(stopping_, true)) leave_now();
    close(listener_);
    if (!is_recording_) return io_.stop();
    grace_.expires_after(kStopGrace);
    grace_.async_wait([this](const boost::system::error_code& ec) {
      if (!ec) leave_now();
    });
  }

  // A thread that waits for its disk can be neither joined nor cancelled.
  [[noreturn]] void leave_now() {
    os::log(LogLevel::kWarning, "record the lock's state: the disk does not answer");
    ::unlink(config_.socket_path.c_str());
    ::_exit(to_int(failure_ ? ExitStatus::kOsError : ExitStatus::kOk));
  }

  void fail(std::exception_ptr failure) {
    if (!failure_) failure_ = std::move(failure);
    if (!stopping_) stop();
  }

  awaitable<void> accept_clients() {
    for (;;) {
      const bool open = co_await readable(listener_);
      if (!open) break;
      while (listener_.is_open()) {
        if (sessions_.size() >= config_.max_connections) {
          co_await room_for_clients();
          continue;
        }
        UniqueFd socket(
            ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (!socket && errno == EAGAIN) break;
        const bool accepted = socket.valid();
        if (accepted) {
          admit(std::move(socket));
        } else {
          os::log(LogLevel::kWarning, "accept a client: {}",
                  std::generic_category().message(errno));
          co_await room_for_clients();
        }
      }
    }
  }

  // Out of descriptors or places: the next client is taken when one has gone, or in a while.
  awaitable<void> room_for_clients() {
    room_.expires_after(std::chrono::seconds(1));
    boost::system::error_code ec;
    co_await room_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }

  // Only processes of our own user, and root, speak to us, whatever the socket file's mode.
  void admit(UniqueFd socket) {
    try {
      const os::PeerCredentials peer = os::peer_credentials(socket.get());
      auto session = std::make_shared<Session>(io_, std::move(socket));
      if (peer.uid != ::geteuid() && peer.uid != 0) {
        os::log(LogLevel::kWarning, "refuse process {}: user {} is not ours", peer.pid, peer.uid);
        send(*session, RefusedAnswer{ExitStatus::kNotPermitted, "not a process of this user"});
        return;
      }
      session->id = ++last_id_;
      session->process = describe_process(peer.pid);
      sessions_.emplace(session->id, session);
      start(run_session(session));
    } catch (const std::exception& error) {
      os::log(LogLevel::kWarning, "admit a client: {}", error.what());
    }
  }

  // A peer's misbehaviour ends its connection only.
  awaitable<void> run_session(SessionPtr session) {
    try {
      listen_for(session, config_.silence_limit);
      for (;;) {
        const bool open = co_await readable(session->socket);
        if (!open) break;
        if (!receive(*session)) break;
      }
    } catch (const Error& error) {
      refuse(*session, error.status(), error.what());
    } catch (const std::exception& error) {
      refuse(*session, ExitStatus::kSoftware, error.what());
    }
    end(session);
  }

  static void refuse(Session& session, ExitStatus status, const std::string& reason) {
    os::log(LogLevel::kWarning, "connection of process {}: {}",
            session.process ? session.process->pid : 0, reason);
    send(session, RefusedAnswer{status, reason});
  }

  // Closes the connection when it is still silent after `limit`.
  static void listen_for(const SessionPtr& session, base::Duration limit) {
    session->silence.expires_after(limit);
    session->silence.async_wait(
        [weak = std::weak_ptr(session)](const boost::system::error_code& ec) {
          const SessionPtr silent = weak.lock();
          // A handler that is queued already can't be cancelled: it has to see that it is late.
          if (ec || !silent || silent->talk == Session::Talk::kAcquire) return;
          if (silent->silence.expiry() <= std::chrono::steady_clock::now()) close(silent->socket);
        });
  }

  // False when the client is gone.
  bool receive(Session& session) {
    std::array<std::byte, kMostRequestBytes> chunk;
    const std::ptrdiff_t got =
        os::receive_with_fds(session.socket.native_handle(), chunk, session.fds);
    if (got == -EAGAIN) return true;
    if (got == -EMSGSIZE || session.fds.size() > 1) {
      throw Error(ExitStatus::kProtocol, "more than one descriptor in a request");
    }
    if (got <= 0) return false;
    session.lines.append({reinterpret_cast<const char*>(chunk.data()), static_cast<size_t>(got)});
    while (const std::optional<std::string> line = session.lines.take_line()) {
      answer(session, decode_request(*line));
    }
    if (session.talk == Session::Talk::kAcquire &&
        (!session.lines.empty() || !session.fds.empty())) {
      throw Error(ExitStatus::kProtocol, "nothing may follow a request for the lock");
    }
    return true;
  }

  void answer(Session& session, const LockdRequest& request) {
    using Talk = Session::Talk;
    const SessionPtr shared = sessions_.at(session.id);
    if (const auto* acquire = std::get_if<AcquireRequest>(&request)) {
      if (session.talk != Talk::kNothingYet) {
        throw Error(ExitStatus::kProtocol, "ask for the lock: the connection is in use");
      }
      if (!session.fds.empty()) {
        session.lifeline.emplace(watched(io_, check_lifeline(std::move(session.fds.front()))));
        session.fds.clear();
      }
      // It asked, and is gone: nobody may join it before its end is read.
      if (is_gone(session)) return;
      notice_ends();
      session.talk = Talk::kAcquire;
      session.silence.cancel();
      model_.acquire(session.id, *acquire, session.process, session.lifeline.has_value(), now());
      if (session.lifeline) start(watch_lifeline(shared));
      apply_effects();
      return;
    }
    if (std::holds_alternative<ReleaseRequest>(request)) return let_go_of_lifeline(session);
    if (session.talk == Talk::kAcquire || !session.fds.empty()) {
      throw Error(ExitStatus::kProtocol, "ask for the status: not on this connection");
    }
    session.talk = Talk::kStatus;
    listen_for(shared, config_.silence_limit);
    StatusAnswer status = model_.status(now());
    status.pid_ns = os::own_pid_namespace();
    send(session, status);
  }

  // What the holder keeps running has the other end, and no part in the lock any more.
  void let_go_of_lifeline(Session& session) {
    if (session.talk != Session::Talk::kAcquire || !session.fds.empty()) {
      throw Error(ExitStatus::kProtocol, "give the lock up: not asked for on this connection");
    }
    if (!session.lifeline || !session.lifeline->is_open()) return;
    close(*session.lifeline);
    model_.lifeline_ended(session.id, now());
    apply_effects();
  }

  // What is written into a lifeline does not matter, only that there is nobody left who could.
  awaitable<void> watch_lifeline(SessionPtr session) {
    stream_descriptor& lifeline = *session->lifeline;
    for (;;) {
      std::array<char, 16384> ignored;
      const ssize_t got = ::read(lifeline.native_handle(), ignored.data(), ignored.size());
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
      const bool open = co_await readable(lifeline);
      if (!open) co_return;
    }
    close(lifeline);
    model_.lifeline_ended(session->id, now());
    if (!session->socket.is_open()) forget(*session);
    apply_effects();
  }

  static bool is_closed_by_peer(Session& session) {
    char next = 0;
    return session.socket.is_open() &&
           ::recv(session.socket.native_handle(), &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }

  // The connection is closed, and nobody has the other end of its lifeline.
  static bool is_gone(Session& session) {
    if (!is_closed_by_peer(session)) return false;
    if (!session.lifeline) return true;
    pollfd lifeline{session.lifeline->native_handle(), POLLIN, 0};
    return ::poll(&lifeline, 1, 0) > 0 && (lifeline.revents & POLLHUP) != 0;
  }

  // The ends of connections that nobody has read yet: whoever asks now must not join the dead.
  void notice_ends() {
    std::vector<SessionPtr> ended;
    for (const auto& [id, session] : sessions_) {
      if (session->talk == Session::Talk::kAcquire && is_closed_by_peer(*session)) {
        ended.push_back(session);
      }
    }
    for (const SessionPtr& session : ended) end(session);
  }

  void end(const SessionPtr& session) {
    if (std::exchange(session->ended, true)) return;
    session->silence.cancel();
    close(session->socket);
    session->fds.clear();
    const bool stays = model_.closed(session->id, now());
    if (!stays) {
      if (session->lifeline) close(*session->lifeline);
      forget(*session);
    }
    apply_effects();
  }

  void forget(const Session& session) {
    sessions_.erase(session.id);
    room_.cancel();
  }

  // Whoever does not read what he is told is dropped: nobody waits for him.
  static void send(Session& session, const LockdAnswer& answer) {
    if (!session.socket.is_open()) return;
    const std::string line = encode_answer(answer);
    const auto bytes = std::as_bytes(std::span(line));
    const std::ptrdiff_t sent = os::send_with_fds(session.socket.native_handle(), bytes, {});
    const bool is_last = std::holds_alternative<RefusedAnswer>(answer);
    if (is_last || sent != static_cast<std::ptrdiff_t>(line.size())) close(session.socket);
  }

  // To be called after everything that the model was told.
  void apply_effects() {
    LockdEffects effects = model_.take_effects();
    for (const LockdEffects::Note& note : effects.notes) {
      os::log(note.is_warning ? LogLevel::kWarning : LogLevel::kInfo, "{}", note.text);
    }
    for (const auto& [id, answer] : effects.answers) {
      const auto found = sessions_.find(id);
      if (found != sessions_.end()) send(*found->second, answer);
    }
    if (effects.record) record(*effects.record);
    if (const auto at = model_.wake_at()) {
      timer_.expires_at(*at);
      timer_.async_wait([this](const boost::system::error_code& ec) {
        if (ec) return;
        model_.tick(now());
        apply_effects();
      });
    } else {
      timer_.cancel();
    }
  }

  void record(const LockdState& state) {
    is_recording_ = true;
    asio::post(disk_, [this, text = encode_state(state)] {
      std::optional<std::string> error;
      try {
        os::write_file_atomic(state_path_, text);
      } catch (const std::exception& failure) {
        error = failure.what();
      }
      asio::post(io_, [this, error] {
        is_recording_ = false;
        model_.recorded(error, now());
        apply_effects();
        if (stopping_ && !is_recording_) io_.stop();
      });
    });
  }

  const LockdConfig config_;
  std::string state_path_;
  std::exception_ptr failure_;
  ConnectionId last_id_ = 0;
  bool is_recording_ = false;
  bool stopping_ = false;
  // What is destroyed first is declared last: sockets and timers before the loop they belong to,
  // and the disk's thread before the loop that it posts to. The loop destroys what still waits on
  // it.
  asio::io_context io_{1};
  asio::thread_pool disk_{1};
  std::vector<std::pair<RecordedProcess, stream_descriptor>> running_;
  LockdModel model_;
  stream_descriptor listener_;
  stream_descriptor signals_;
  asio::steady_timer grace_{io_};
  asio::steady_timer room_{io_};
  asio::steady_timer timer_{io_};
  std::map<ConnectionId, SessionPtr> sessions_;
};

}  // namespace

int serve_lock(const LockdConfig& given) {
  LockdConfig config = given;
  if (config.ready_fd >= 0 && ::fcntl(config.ready_fd, F_SETFD, FD_CLOEXEC) != 0) {
    throw_errno(errno, ExitStatus::kUsage, "use --ready-fd " + std::to_string(config.ready_fd));
  }
  UniqueFd ready_fd(config.ready_fd);
  const sigset_t stop = os::signal_set({SIGTERM, SIGINT, SIGHUP});
  os::block_signals(stop);
  UniqueFd signals = os::open_signal_fd(stop);
  // A connection has up to two descriptors; the rest is for the state file and recorded processes.
  config.max_connections = std::min(config.max_connections, os::raise_fd_limit() / 4);
  const std::string state_path =
      config.state_path.empty() ? config.socket_path + ".state" : config.state_path;
  os::ServerSocket socket = os::open_server_socket(config.socket_path);
  const std::optional<UniqueFd> state_lock = os::try_lock_path(state_path + ".lock");
  if (!state_lock) {
    throw Error(ExitStatus::kCannotCreate,
                "use state file " + base::quoted(state_path) + ": another server has it");
  }
  const LoadedState loaded = load_state(state_path);
  prepare_state(state_path, loaded);
  Server(config, state_path, loaded, std::move(socket.listener), std::move(signals))
      .run(std::move(ready_fd));
  return 0;
}

}  // namespace fo::lock
