#include "lock/lockd/lockd_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "http/pages.h"
#include "http/server.h"
#include "lock/lockd/lockd_metrics.h"
#include "lock/lockd/lockd_model.h"
#include "lock/lockd/lockd_service.h"
#include "lock/lockd/lockd_session.h"
#include "lock/lockd/lockd_state.h"
#include "loop/acceptor.h"
#include "loop/daemon.h"
#include "loop/spawn.h"
#include "net/address.h"
#include "net/resolve.h"
#include "net/tls.h"
#include "os/file/file.h"
#include "os/file/random.h"
#include "os/log.h"
#include "os/log_limit.h"
#include "os/process/process.h"
#include "os/socket/server_socket.h"
#include "os/socket/unix_socket.h"

namespace fo::lock {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;
using os::LogLevel;

// The timeout of a disk that does not answer when the server must end.
constexpr base::Duration kStopGrace = std::chrono::seconds(2);
// The maximum number of TCP connections without a request for the lock. A new one replaces the
// oldest of the address with the most, because a client that opens thousands must not keep a holder
// from reconnecting.
constexpr std::size_t kMaxIdle = 128;
constexpr const char* kAccept = "accept a client";
// Few, because clients of the lock need the descriptors.
constexpr std::size_t kMaxScrapers = 16;

class Server {
 public:
  Server(const LockdConfig& config, std::string state_path, const LoadedState& loaded,
         UniqueFd listener, UniqueFd tcp_listener, UniqueFd metrics_listener, loop::Daemon& daemon)
      : config_(config),
        daemon_(daemon),
        service_(io_, std::move(state_path), loaded,
                 std::chrono::ceil<std::chrono::milliseconds>(config.reconnect_window),
                 tcp_listener ? std::optional(expiry()) : std::nullopt,
                 {[this](ConnectionId id, const LockdAnswer& answer) { send_answer(id, answer); },
                  [this] { stop_when_recorded(); },
                  [this](std::exception_ptr error) { fail(std::move(error)); }}),
        tls_(config.tls),
        unix_(io_.get_executor(), std::move(listener), kAccept) {
    if (tcp_listener) tcp_.emplace(io_.get_executor(), std::move(tcp_listener), kAccept);
    if (!metrics_listener) return;
    metrics_.emplace(
        io_.get_executor(),
        http::make_handler(http::daemon_pages([this] { return metrics_text(metrics()); },
                                              [this] { return daemon_.is_ready(); })),
        http::limits_for_probes(kMaxScrapers));
    metrics_->listen(std::move(metrics_listener));
  }

  // `ready` is written to the ready descriptor.
  void run(const std::string& ready) {
    start(daemon_.run([this](loop::Stop how) {
      if (how == loop::Stop::kNow && service_.is_recording()) leave_now();
      stop();
    }));
    start(accept_clients(unix_, &Server::admit));
    if (tcp_) start(accept_clients(*tcp_, &Server::admit_over_tcp));
    service_.start();
    daemon_.ready(ready);
    io_.run();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  using Session = LockdSession;
  using SessionPtr = Session::Pointer;

  [[nodiscard]] std::chrono::milliseconds expiry() const {
    return std::chrono::ceil<std::chrono::milliseconds>(config_.expiry);
  }

  void start(awaitable<void> task) {
    loop::spawn(io_, std::move(task), [this](std::exception_ptr error) {
      if (error) fail(std::move(error));
    });
  }

  // Finishes a pending record first, for example of a release, which the next server should know.
  void stop() {
    daemon_.begin_stop();
    unix_.close();
    if (tcp_) tcp_->close();
    if (!service_.is_recording()) return io_.stop();
    grace_.set(base::Deadline::after(kStopGrace), [this] { leave_now(); });
  }

  void stop_when_recorded() {
    if (daemon_.is_stopping() && !service_.is_recording()) io_.stop();
  }

  // A thread that waits for its disk can be neither joined nor cancelled.
  [[noreturn]] void leave_now() {
    os::log(LogLevel::kWarning, "write the lock's state: the disk does not answer");
    ::unlink(config_.socket_path.c_str());
    ::_exit(to_int(failure_ ? ExitStatus::kOsError : ExitStatus::kOk));
  }

  void fail(std::exception_ptr failure) {
    if (!failure_) failure_ = std::move(failure);
    if (!daemon_.is_stopping()) stop();
  }

  awaitable<void> accept_clients(loop::Acceptor& acceptor, void (Server::*take)(UniqueFd)) {
    const std::function<bool()> is_full = [this, &acceptor] { return this->is_full(acceptor); };
    for (;;) {
      UniqueFd client = co_await acceptor.next(is_full);
      if (!client) co_return;
      (this->*take)(std::move(client));
    }
  }

  // TCP clients use at most half of the connections; the rest is for processes of this machine.
  [[nodiscard]] bool is_full(const loop::Acceptor& acceptor) const {
    const bool is_tcp = &acceptor != &unix_;
    return sessions_.size() + closing_ >= config_.max_connections ||
           (is_tcp && tcp_sessions_ + closing_ >= std::max<std::size_t>(max_over_tcp(), 1));
  }
  [[nodiscard]] std::size_t max_over_tcp() const { return config_.max_connections / 2; }

  // Accepts only processes of the server's user and of root, whatever the socket file's mode.
  void admit(UniqueFd socket) {
    try {
      const os::PeerCredentials peer = os::peer_credentials(socket.get());
      auto session = std::make_shared<Session>(io_.get_executor(), std::move(socket));
      if (peer.uid != ::geteuid() && peer.uid != 0) {
        const std::string user = "user " + std::to_string(peer.uid);
        warn(user, "refuse process " + std::to_string(peer.pid) + ": " + user +
                       " is not the server's user");
        ++refusals_[to_int(ExitStatus::kNotPermitted)];
        session->send(RefusedAnswer{ExitStatus::kNotPermitted, "not a process of this user"});
        return;
      }
      session->id = ++last_id_;
      session->process = describe_process(peer.pid);
      session->name = "process " + std::to_string(session->process ? session->process->pid : 0);
      sessions_.emplace(session->id, session);
      start(run_session(session));
    } catch (const std::exception& error) {
      warn("", std::string("admit a client: ") + error.what());
    }
  }

  // With TLS, the handshake accepts only clients with a certificate.
  void admit_over_tcp(UniqueFd socket) {
    try {
      drop_oldest_idle();
      auto session =
          std::make_shared<Session>(io_.get_executor(), std::move(socket), tls_,
                                    [this](awaitable<void> task) { start(std::move(task)); });
      session->id = ++last_id_;
      sessions_.emplace(session->id, session);
      ++tcp_sessions_;
      start(run_session(session));
    } catch (const std::exception& error) {
      // Limited for all peers together, because the reason is usually the same: a TLS file.
      warn("", std::string("admit a client: ") + error.what());
    }
  }

  void drop_oldest_idle() {
    // By address, oldest first.
    std::map<std::string, std::pair<std::size_t, SessionPtr>> idle;
    std::size_t count = 0;
    for (const auto& [id, session] : sessions_) {
      const bool is_idle = session->is_tcp() && session->talk != Session::Talk::kAcquire;
      if (!is_idle || !session->is_open()) continue;
      ++count;
      auto& [of_host, oldest] = idle[session->host];
      if (of_host++ == 0) oldest = session;
    }
    if (count == 0 || count < std::min(kMaxIdle, max_over_tcp() / 2)) return;
    const auto most = std::max_element(idle.begin(), idle.end(), [](const auto& a, const auto& b) {
      return a.second.first < b.second.first;
    });
    most->second.second->drop();
  }

  // A peer's misbehaviour ends its connection only.
  awaitable<void> run_session(SessionPtr session) {
    bool is_ready = false;
    try {
      co_await session->handshake();
      is_ready = true;
      listen_for(*session);
      while (!session->is_closing()) {
        const std::optional<std::string> line = co_await session->next_line();
        if (!line || session->ended) break;
        answer(session, decode_request(*line));
      }
    } catch (const Error& error) {
      if (is_ready) {
        refuse(*session, error.status(), error.what());
      } else if (!session->was_dropped()) {
        warn(session->host, error.what());
      }
    } catch (const std::exception& error) {
      refuse(*session, ExitStatus::kSoftware, error.what());
    }
    end(session);
  }

  [[nodiscard]] LockdMetrics metrics() {
    return {service_.model().counts(), sessions_.size() - tcp_sessions_, tcp_sessions_, refusals_,
            expired_leases_};
  }

  // A peer can cause these at will.
  void warn(const std::string& peer, const std::string& text) {
    warnings_.log(LogLevel::kWarning, peer, text);
  }

  void refuse(Session& session, ExitStatus status, const std::string& reason) {
    warn(session.is_tcp() ? session.host : session.name,
         "connection of " + session.name + ": " + reason);
    ++refusals_[to_int(status)];
    session.send(RefusedAnswer{status, reason});
  }

  // Closes the connection if it has sent nothing by the limit.
  void listen_for(Session& session) const {
    session.watch_silence(config_.silence_limit, [](const SessionPtr& silent, base::Duration) {
      if (silent->talk != Session::Talk::kAcquire) silent->drop();
    });
  }

  // From now on, a TCP client has `left` to send a message.
  void await_heartbeat(Session& session, base::Duration left) {
    session.watch_silence(left, [this](const SessionPtr& silent, base::Duration late) {
      // Messages from the time of a suspension may be unread.
      if (late > kWindowLateness && !std::exchange(silent->has_more_time, true)) {
        return await_heartbeat(*silent, std::min<base::Duration>(expiry(), kWindowExtension));
      }
      warn(silent->host, silent->name + ": it sent nothing for " +
                             base::format_duration(service_.model().expiry_of(silent->id)));
      ++expired_leases_;
      end_lease(silent);
      service_.apply();
    });
  }

  // Call service_.apply() afterwards.
  void end_lease(const SessionPtr& session) {
    service_.model().lifeline_ended(session->id, LockdService::now());
    session->ended ? forget(*session) : end(session);
  }

  // Ends the other connections of a client that has a grant.
  void end_other_leases(const Session& last, bool closed_only) {
    std::vector<SessionPtr> others;
    for (const auto& [id, each] : sessions_) {
      if (each->has_grant && id != last.id && each->engine_id == last.engine_id &&
          (each->ended || !closed_only)) {
        others.push_back(each);
      }
    }
    for (const SessionPtr& each : others) end_lease(each);
    service_.apply();
  }

  void answer(const SessionPtr& session, const LockdRequest& request) {
    using Talk = Session::Talk;
    if (const auto* acquire = std::get_if<AcquireRequest>(&request)) {
      if (session->talk != Talk::kNothingYet) {
        throw Error(ExitStatus::kProtocol, "acquire the lock: the connection is in use");
      }
      session->take_lifeline();
      // It has disconnected after its request: no other client may join it before its end is read.
      if (session->is_gone()) return;
      notice_ends();
      session->talk = Talk::kAcquire;
      session->ignore_silence();
      session->engine_id = acquire->engine_id;
      if (session->is_tcp()) return acquire_lease(*session, *acquire);
      const bool has_lifeline = session->has_lifeline();
      const HoldBy hold_by = has_lifeline ? HoldBy::kLifeline : HoldBy::kConnection;
      // Processes that are not visible cannot be distinguished.
      const LockdPeer peer{
          session->process,
          hold_by,
          {},
          {},
          session->process ? session->name : "processes that are not visible to the server"};
      service_.model().acquire(session->id, *acquire, peer, LockdService::now());
      if (has_lifeline) start(watch_lifeline(session));
      service_.apply();
      return;
    }
    if (const auto* heartbeat = std::get_if<HeartbeatRequest>(&request)) {
      return answer_heartbeat(*session, *heartbeat);
    }
    if (std::holds_alternative<ReleaseRequest>(request)) {
      return session->is_tcp() ? release_lease(*session) : release_lifeline(*session);
    }
    if (session->talk == Talk::kAcquire || session->has_descriptor()) {
      throw Error(ExitStatus::kProtocol, "query the status: not possible on this connection");
    }
    session->talk = Talk::kStatus;
    listen_for(*session);
    StatusAnswer status = service_.model().status(LockdService::now());
    status.pid_ns = os::own_pid_namespace();
    session->send(status);
  }

  void acquire_lease(Session& session, const AcquireRequest& request) {
    service_.model().acquire(
        session.id, request,
        {std::nullopt, HoldBy::kLease, session.name, os::random_hex(16), session.host},
        LockdService::now());
    await_heartbeat(session, service_.model().expiry_of(session.id));
    service_.apply();
    if (!request.generation || session.is_closing()) return;
    session.has_grant = true;
    end_other_leases(session, true);
  }

  void answer_heartbeat(Session& session, const HeartbeatRequest& request) {
    if (!session.is_tcp() || session.talk != Session::Talk::kAcquire) {
      throw Error(ExitStatus::kProtocol, "a heartbeat: not possible on this connection");
    }
    session.has_more_time = false;
    service_.model().heartbeat(session.id, LockdService::now());
    await_heartbeat(session, service_.model().expiry_of(session.id));
    service_.apply();
    session.send(HeartbeatAnswer{request.sequence, expiry()});
  }

  void release_lease(Session& session) {
    if (session.talk != Session::Talk::kAcquire) {
      throw Error(ExitStatus::kProtocol, "release the lock: not requested on this connection");
    }
    // Its reader ends now and applies the effects.
    session.send_no_more();
    if (session.has_grant) end_other_leases(session, false);
    service_.model().lifeline_ended(session.id, LockdService::now());
  }

  // The holder's remaining processes have the other end, but no part in the lock any more.
  void release_lifeline(Session& session) {
    if (session.talk != Session::Talk::kAcquire || session.has_descriptor()) {
      throw Error(ExitStatus::kProtocol, "release the lock: not requested on this connection");
    }
    if (!session.has_lifeline()) return;
    session.close_lifeline();
    service_.model().lifeline_ended(session.id, LockdService::now());
    service_.apply();
  }

  awaitable<void> watch_lifeline(SessionPtr session) {
    const bool ended = co_await session->lifeline_ended();
    if (!ended) co_return;
    service_.model().lifeline_ended(session->id, LockdService::now());
    if (!session->is_open()) forget(*session);
    service_.apply();
  }

  // Reads pending ends of the holder's connections, so that a new client does not join a dead one.
  // One live connection suffices.
  void notice_ends() {
    while (const std::optional<ConnectionId> id = service_.model().find_joinable()) {
      const auto found = sessions_.find(*id);
      if (found == sessions_.end() || !found->second->is_closed_by_peer()) return;
      end(SessionPtr(found->second));
    }
  }

  void end(const SessionPtr& session) {
    if (std::exchange(session->ended, true)) return;
    const bool stays = service_.model().closed(session->id, LockdService::now());
    if (session->is_closing()) {
      ++closing_;
      session->finish([this] {
        --closing_;
        there_is_room();
      });
    } else {
      session->close();
    }
    if (!stays) {
      session->close_lifeline();
      forget(*session);
    }
    service_.apply();
  }

  void forget(Session& session) {
    session.ignore_silence();
    if (sessions_.erase(session.id) != 0 && session.is_tcp()) --tcp_sessions_;
    there_is_room();
  }

  void there_is_room() {
    unix_.notify_room();
    if (tcp_) tcp_->notify_room();
  }

  void send_answer(ConnectionId id, const LockdAnswer& answer) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    if (const auto* refused = std::get_if<RefusedAnswer>(&answer)) {
      ++refusals_[to_int(refused->status)];
    }
    found->second->send(answer);
  }

  const LockdConfig config_;
  loop::Daemon& daemon_;
  std::exception_ptr failure_;
  ConnectionId last_id_ = 0;
  // Declared in reverse order of destruction: sockets and timers are destroyed before their loop,
  // and the service before the loop that its thread posts to. The loop destroys pending operations.
  asio::io_context io_{1};
  LockdService service_;
  net::ServerTls tls_;
  os::LogLimit warnings_;
  loop::Acceptor unix_;
  std::optional<loop::Acceptor> tcp_;
  loop::Alarm grace_{io_.get_executor()};
  std::map<ConnectionId, SessionPtr> sessions_;
  // The sessions over TCP; and former sessions whose connections still flush their last answer.
  std::size_t tcp_sessions_ = 0;
  std::size_t closing_ = 0;
  std::map<int, std::uint64_t> refusals_ = LockdMetrics().refusals;
  std::uint64_t expired_leases_ = 0;
  std::optional<http::Server> metrics_;
};

void check_listen(const LockdConfig& config) {
  const auto refuse = [](const std::string& what) -> Error { return {ExitStatus::kUsage, what}; };
  const net::TlsFiles& tls = config.tls;
  if (tls.ca.empty() != tls.certificate.empty() || tls.ca.empty() != tls.key.empty()) {
    throw refuse("serve TLS: --tls-cert, --tls-key and --tls-ca need each other");
  }
  if (config.listen.empty()) {
    if (!tls.ca.empty()) throw refuse("serve TLS: needs --listen");
    return;
  }
  const std::string what = "listen on " + base::quoted(config.listen) + ": ";
  if (tls.ca.empty() && !net::is_loopback(net::parse_address(config.listen).host)) {
    throw refuse(what + "not a loopback address: needs TLS: --tls-cert, --tls-key, --tls-ca");
  }
  if (config.expiry < kMinExpiry || config.expiry > kMaxExpiry) {
    throw refuse(what + "the expiry must be " + base::format_duration(kMinExpiry) + " to " +
                 base::format_duration(kMaxExpiry));
  }
  if (config.reconnect_window < config.expiry) {
    throw refuse(what + "the reconnect window of " +
                 base::format_duration(config.reconnect_window) +
                 " is shorter than the expiry of " + base::format_duration(config.expiry) +
                 ": leases of the previous server could outlive it");
  }
  if (!tls.ca.empty()) static_cast<void>(net::make_tls_server(tls));
}

}  // namespace

int serve_lock(const LockdConfig& given) {
  LockdConfig config = given;
  loop::Daemon daemon(config.ready_fd);
  check_listen(config);
  // A connection has up to two descriptors; the rest is for the state file and recorded processes.
  config.max_connections = std::min(config.max_connections, os::raise_fd_limit() / 4);
  const std::string state_path =
      config.state_path.empty() ? config.socket_path + ".state" : config.state_path;
  os::ServerSocket socket = os::open_server_socket(config.socket_path);
  const std::optional<UniqueFd> state_lock = os::try_lock_path(state_path + ".lock");
  if (!state_lock) {
    throw Error(ExitStatus::kCannotCreate,
                "use state file " + base::quoted(state_path) + ": another server uses it");
  }
  std::string ready = "\n";
  http::Listener tcp;
  if (!config.listen.empty()) {
    tcp = http::listen_tcp(config.listen);
    const std::string address = net::to_string({net::parse_address(config.listen).host, tcp.port});
    os::log(LogLevel::kInfo, "listening on {}", address);
    ready = address + "\n";
  }
  http::Listener metrics;
  if (!config.metrics.empty()) metrics = http::listen_tcp(config.metrics);
  const LoadedState loaded = load_state(state_path);
  // A server that is killed before the first grant must not leave a file of a free lock.
  const bool is_lost = tcp.fd && loaded.kind == LoadedState::Kind::kNone;
  prepare_state(state_path, is_lost ? LoadedState{LoadedState::Kind::kDamaged} : loaded);
  Server(config, state_path, loaded, std::move(socket.listener), std::move(tcp.fd),
         std::move(metrics.fd), daemon)
      .run(ready);
  return 0;
}

}  // namespace fo::lock
