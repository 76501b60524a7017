#include "gms/server/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "gms/bundle/fd_store_client.h"
#include "gms/protocol/protocol.h"
#include "gms/protocol/server_model.h"
#include "gms/server/answers.h"
#include "gms/server/connection.h"
#include "gms/server/memory_pool.h"
#include "gms/server/served_layout.h"
#include "gms/server/session.h"
#include "loop/acceptor.h"
#include "loop/adopt.h"
#include "loop/spawn.h"
#include "os/log.h"
#include "os/socket/unix_socket.h"

namespace fo::gms {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::use_awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using os::LogLevel;

using Clock = std::chrono::steady_clock;

class Server {
 public:
  explicit Server(ServerConfig config)
      : config_(std::move(config)),
        counters_(*config_.counters),
        admission_(config_.access, ::geteuid(), config_.max_connections),
        unread_(kMaxUnreadBytes, config_.max_unread_fds),
        label_("device=" + std::to_string(config_.device.ordinal.value()) + " tag=" + config_.tag),
        layout_({io_, config_, counters_, model_, pool_, fd_store_, log_, label_}),
        pool_(io_, config_.driver, config_.device.ordinal,
              [this](std::exception_ptr error) { fail(std::move(error)); }),
        acceptor_(io_.get_executor(), std::move(config_.listener), "accept a client of " + label_) {
    const std::string what = "watch for the end of the server";
    loop::adopt(stop_, loop::duplicate(config_.stop_fd, what), what);
  }

  void run(const std::function<void()>& on_ready) {
    const auto end_of_all = [this](std::exception_ptr error) {
      if (error) fail(std::move(error));
    };
    if (config_.fd_store) fd_store_.emplace(std::move(config_.fd_store));
    loop::spawn(io_, wait_for_stop(), end_of_all);
    loop::spawn(io_, begin(on_ready), end_of_all);
    io_.run();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  awaitable<void> wait_for_stop() {
    boost::system::error_code ec;
    co_await stop_.async_wait(asio::posix::descriptor_base::wait_read,
                              asio::redirect_error(use_awaitable, ec));
    io_.stop();
  }

  // Ends the server: run() throws the error. Whatever the driver reports, a device that fails while
  // it is served cannot be trusted.
  void fail(std::exception_ptr failure) {
    try {
      std::rethrow_exception(std::move(failure));
    } catch (const cuda::CudaError& error) {
      failure = std::make_exception_ptr(Error(ExitStatus::kSoftware, error.what()));
    } catch (...) {
      failure = std::current_exception();
    }
    if (!failure_) failure_ = std::move(failure);
    io_.stop();
  }

  // Starts with the layout of the previous server. If that cannot be restored, only the layout is
  // lost.
  awaitable<void> begin(std::function<void()> on_ready) {
    bool is_lost = false;
    if (config_.stored_layout) {
      try {
        layout_.restore(std::move(*config_.stored_layout));
      } catch (const Error& error) {
        os::log(LogLevel::kError, "the layout is lost, and has to be published again: {}: {}",
                error.what(), label_);
        is_lost = true;
      }
    }
    if (is_lost && fd_store_) co_await fd_store_->drop();
    update_gauges();
    counters_.up.set(1);
    on_ready();
    co_await accept_clients();
  }

  awaitable<void> accept_clients() {
    const std::function<bool()> is_full = [this] { return admission_.full(); };
    for (;;) {
      base::UniqueFd client = co_await acceptor_.next(is_full);
      if (!client) co_return;
      admit(std::move(client));
    }
  }

  void admit(base::UniqueFd socket) {
    std::optional<os::PeerCredentials> admitted;
    try {
      const os::PeerCredentials peer = os::peer_credentials(socket.get());
      std::vector<gid_t> groups;
      if (admission_.wants_groups()) groups = os::peer_groups(socket.get());
      if (const auto reason = admission_.admit(peer, groups)) {
        counters_.dropped(admission_.is_allowed(peer, groups) ? DropReason::kTooManyConnections
                                                              : DropReason::kRefusedUser);
        // Without the pid, the log is limited by user: each client may be a new process.
        log_.write({0, peer.uid, peer.gid}, LogLevel::kWarning,
                   "refuse a client: {}: {} pid={} uid={}", *reason, label_, peer.pid, peer.uid);
        return;
      }
      admitted = peer;
      start_session(std::move(socket), peer);
    } catch (const std::exception& error) {
      if (admitted) admission_.release(*admitted);
      log_.write(admitted.value_or(os::PeerCredentials{}), LogLevel::kWarning,
                 "admit a client: {}: {}", error.what(), label_);
    }
  }

  void start_session(base::UniqueFd socket, const os::PeerCredentials& peer) {
    auto session = std::make_shared<Session>(io_, std::move(socket), peer, unread_);
    sessions_.insert(session);
    counters_.connections.set(sessions_.size());
    loop::spawn(io_, run_session(session));
  }

  // A peer's misbehaviour ends its session only; a failure of the device ends the server.
  awaitable<void> run_session(SessionPtr session) {
    try {
      co_await talk(session);
    } catch (const cuda::CudaError&) {
      fail(std::current_exception());
    } catch (const Error& error) {
      if (error.status() == ExitStatus::kSoftware) {
        fail(std::current_exception());
      } else {
        const bool too_big = session->connection.fault() == Connection::Fault::kFrameTooBig;
        counters_.dropped(too_big ? DropReason::kFrameTooBig : DropReason::kMalformed);
        log_.write(session->peer, LogLevel::kWarning, "end a session: {}: {}", error.what(),
                   session->label(label_));
      }
    } catch (const std::exception&) {
      fail(std::current_exception());
    }
    session->connection.close();
    if (session->id != 0) {
      by_id_.erase(session->id);
      model_.disconnect(session->id);
      after_change();
    }
    count_faults(*session);
    admission_.release(session->peer);
    sessions_.erase(session);
    counters_.connections.set(sessions_.size());
    acceptor_.notify_room();
  }

  void count_faults(const Session& session) {
    if (const std::size_t count = session.connection.messages_with_fds(); count > 0) {
      counters_.unexpected_fds.add(count);
      log_.write(session.peer, LogLevel::kWarning, "closed the unexpected descriptors of {}: {}",
                 base::counted(count, "message"), session.label(label_));
    }
    using Fault = Connection::Fault;
    const Fault fault = session.connection.fault();
    if (fault != Fault::kSilent && fault != Fault::kSlowReader) return;
    const bool is_silent = fault == Fault::kSilent;
    counters_.dropped(is_silent ? DropReason::kSilent : DropReason::kSlowReader);
    log_.write(session.peer, LogLevel::kWarning, "disconnect a client that {}: {}",
               is_silent ? "sent no complete message in time" : "does not read its answers",
               session.label(label_));
  }

  awaitable<void> talk(SessionPtr session) {
    std::optional<std::string_view> body =
        co_await session->connection.read_frame(kPeerTimeout, kPeerTimeout);
    if (!body) co_return;
    if (const std::optional<std::string> mark = other_protocol(*body)) {
      counters_.dropped(DropReason::kOtherProtocol);
      log_.write(session->peer, LogLevel::kWarning,
                 "refuse a client of another protocol: its message has {}: {}", *mark,
                 session->label(label_));
      Reply refusal = refuse_other_protocol(*mark);
      co_await send(session, std::move(refusal));
      co_return;
    }
    Request first = decode_request(*body);
    if (const auto* handshake = std::get_if<HandshakeRequest>(&first)) {
      const bool granted = co_await answer_handshake(session, *handshake);
      if (!granted) co_return;
    } else {
      Reply answer = answer_unexpected(model_, first);
      co_await send(session, std::move(answer));
      co_return;
    }
    for (;;) {
      body = co_await session->connection.read_frame(std::nullopt, kPeerTimeout);
      if (!body) co_return;
      const auto start = Clock::now();
      Request request;
      std::optional<Reply> answer;
      try {
        request = decode_request(*body);
      } catch (const Error& error) {
        if (error.status() != ExitStatus::kBadData) throw;
        answer = refuse({error.what(), error.status()});
      }
      if (!answer && has_long_answer(request)) {
        const bool has_room = co_await session->connection.make_room(0, kPeerTimeout);
        if (!has_room) co_return;
      }
      if (!answer) answer = answer_at_once(*session, request);
      if (!answer) answer = co_await answer_in_time(session, request);
      if (!answer) co_return;
      const bool last = answer->last;
      const auto result = answer->refused ? RequestResult::kRefused : RequestResult::kAnswered;
      if (answer->fds.empty()) {
        answer->frame.erase(0, session->connection.write_at_once(answer->frame));
      }
      bool sent = answer->frame.empty();
      if (!sent) sent = co_await send(session, std::move(*answer));
      counters_.observe_request(Clock::now() - start, result);
      if (!sent || last) co_return;
    }
  }

  static awaitable<bool> send(SessionPtr session, Reply answer) {
    co_return co_await session->connection.write_frame(answer.frame, std::move(answer.fds),
                                                       kPeerTimeout);
  }

  // True when the lock was granted and the client was informed.
  awaitable<bool> answer_handshake(SessionPtr session, const HandshakeRequest& request) {
    const std::optional<LockType> type = parse_lock_type(request.lock_type);
    if (!type) {
      Reply refusal =
          reply(ErrorResponse{"unknown lock_type " + base::quoted(request.lock_type), 0}, true);
      co_await send(session, std::move(refusal));
      co_return false;
    }
    session->arrived = Clock::now();
    session->id = model_.enqueue(*type);
    by_id_.emplace(session->id, session);
    after_change();
    if (!model_.grant_of(session->id)) co_await wait_for_grant(session, request.timeout_ms);
    const std::optional<Grant> grant = model_.grant_of(session->id);
    // The grant has dropped the old layout: its memory must be free when the writer allocates, and
    // it must not be restored after a crash. This holds even if the client has disconnected.
    if (grant == Grant::kRw && fd_store_) co_await fd_store_->drop();
    if (!session->connection.is_alive()) co_return false;
    HandshakeResponse response;
    response.success = grant.has_value();
    if (!grant) {
      // The session leaves the queue before the answer, so that it is not granted a lock after it.
      counters_.lock_timeouts[*type].add();
      model_.disconnect(session->id);
      after_change();
    }
    response.committed = model_.published();
    if (grant) response.granted_lock_type = to_string(*grant);
    for (const auto name : {kExportLayout, kMetadataDump, kAllocateMany, kMetadataPutMany}) {
      response.extensions.emplace_back(name);
    }
    Reply answer = reply(response);
    if (grant == Grant::kRw) session->connection.allow_long_frames();
    const bool sent = co_await send(session, std::move(answer));
    co_return sent&& grant;
  }

  // Returns when the session was granted its lock, timed out, or its client disconnected.
  awaitable<void> wait_for_grant(SessionPtr session, std::optional<std::int64_t> timeout_ms) {
    // More than a year counts as for ever, and fits the clock.
    constexpr std::int64_t kYear = std::int64_t{366} * 24 * 3600 * 1000;
    const std::int64_t wait_ms =
        timeout_ms ? std::clamp<std::int64_t>(*timeout_ms, 0, kYear) : kYear;
    const auto deadline = Deadline::after(std::chrono::milliseconds(wait_ms));
    while (session->connection.is_alive() && !model_.grant_of(session->id) && !deadline.expired()) {
      co_await wait_for_change(session, deadline);
    }
  }

  // Call it after anything that may free the lock or drop the layout.
  void after_change() {
    while (const auto granted = model_.grant_next(
               [this](SessionId id) { return by_id_.at(id)->connection.is_alive(); })) {
      Session& session = *by_id_.at(granted->session);
      const base::Duration waited = Clock::now() - session.arrived;
      counters_.granted(granted->grant, waited);
      log_.write(session.peer, LogLevel::kInfo, "granted {}: {} waited_ms={}",
                 to_string(granted->grant), session.label(label_),
                 std::chrono::duration_cast<std::chrono::milliseconds>(waited).count());
      session.changed.notify();
    }
    layout_.drop_if_changed();
    update_gauges();
  }

  void update_gauges() {
    for (const Grant grant : {Grant::kRw, Grant::kRo, Grant::kRwData}) {
      counters_.sessions[grant].set(model_.sessions(grant));
    }
    for (const LockType type :
         {LockType::kRw, LockType::kRo, LockType::kRwOrRo, LockType::kRwDataOrRw}) {
      counters_.waiting[type].set(model_.waiting(type));
    }
    counters_.committed.set(model_.published() ? 1 : 0);
    layout_.update_gauges();
  }

  // nullopt if the request needs more than the state. Most do not, and are answered without a
  // coroutine of their own.
  std::optional<Reply> answer_at_once(const Session& session, Request& request) {
    try {
      check_allowed(request, *model_.grant_of(session.id));
      return answer_from_state(model_, request);
    } catch (...) {
      return refuse_or_throw();
    }
  }

  // nullopt if the client disconnected. Throws errors that end the session or the server.
  awaitable<std::optional<Reply>> answer_in_time(SessionPtr session, Request& request) {
    try {
      std::optional<Reply> answer = co_await layout_.answer(session, request);
      // Readers change nothing, and there may be thousands of them.
      if (model_.grant_of(session->id) != Grant::kRo) after_change();
      co_return answer;
    } catch (...) {
      co_return refuse_or_throw();
    }
  }

  // In a catch block: the answer to a request that cannot be fulfilled.
  static Reply refuse_or_throw() {
    try {
      throw;
    } catch (const Refusal& refusal) {
      return refuse(refusal);
    } catch (const cuda::CudaError&) {
      throw;
    } catch (const Error& error) {
      if (error.status() == ExitStatus::kSoftware) throw;
      return refuse({error.what(), error.status()});
    }
  }

  ServerConfig config_;
  ServerCounters& counters_;
  Admission admission_;
  UnreadAnswers unread_;
  ServerModel model_;
  ClientLog log_;
  /// Identifies this server in log lines.
  const std::string label_;
  ServedLayout layout_;
  std::exception_ptr failure_;
  // Declared in reverse order of destruction: sockets and timers are destroyed before their loop,
  // and the CUDA thread before the loop that it posts to. The loop destroys pending operations.
  asio::io_context io_{1};
  asio::posix::stream_descriptor stop_{io_};
  MemoryPool pool_;
  std::optional<FdStoreClient> fd_store_;
  loop::Acceptor acceptor_;
  std::map<SessionId, SessionPtr> by_id_;
  std::set<SessionPtr> sessions_;
};

}  // namespace

void run_server(ServerConfig config, const std::function<void()>& on_ready) {
  auto server = std::make_unique<Server>(std::move(config));
  try {
    server->run(on_ready);
  } catch (...) {
    // A failed device may never answer, so its memory is released with the process.
    static_cast<void>(server.release());
    throw;
  }
}

}  // namespace fo::gms
