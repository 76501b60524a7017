#include "gms/server/server.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cuda/memory.h"
#include "gms/bundle/vault_client.h"
#include "gms/protocol/layout_hash.h"
#include "gms/protocol/layout_record.h"
#include "gms/protocol/protocol.h"
#include "gms/protocol/server_model.h"
#include "gms/server/answers.h"
#include "gms/server/connection.h"
#include "gms/server/memory_pool.h"
#include "loop/acceptor.h"
#include "loop/adopt.h"
#include "loop/event.h"
#include "os/file/file.h"
#include "os/file/random.h"
#include "os/log.h"
#include "os/log_limit.h"
#include "os/socket/fd_passing.h"
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

// A client is disconnected after this time if it sends nothing, stops within a request, or does not
// read its answer.
constexpr base::Duration kPeerTimeout = std::chrono::seconds(30);
// Size of the part of a layout that is hashed or written, about a millisecond's work, before other
// clients are served.
constexpr std::size_t kHashedAtOnce = std::size_t{256} * 1024;

using Memory = MemoryPool::Memory;
using Clock = std::chrono::steady_clock;

class Server {
 public:
  explicit Server(ServerConfig config)
      : config_(std::move(config)),
        counters_(*config_.counters),
        admission_(config_.access, ::geteuid(), config_.max_connections),
        unread_(kMaxUnreadBytes, config_.max_unread_fds),
        pool_(io_, config_.driver, config_.device.ordinal,
              [this](std::exception_ptr error) { fail(std::move(error)); }),
        label_("device=" + std::to_string(config_.device.ordinal.value()) + " tag=" + config_.tag),
        acceptor_(io_.get_executor(), std::move(config_.listener), "accept a client of " + label_) {
    const std::string what = "watch for the end of the server";
    loop::adopt(stop_, loop::duplicate(config_.stop_fd, what), what);
  }

  void run(const std::function<void()>& on_ready) {
    const auto end_of_all = [this](std::exception_ptr error) {
      if (error) fail(std::move(error));
    };
    if (config_.vault) vault_.emplace(std::move(config_.vault));
    asio::co_spawn(io_, wait_for_stop(), end_of_all);
    asio::co_spawn(io_, begin(on_ready), end_of_all);
    io_.run();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Session {
    Session(asio::io_context& io, base::UniqueFd socket, const os::PeerCredentials& credentials,
            UnreadAnswers& unread)
        : connection(io, std::move(socket), unread),
          changed(io.get_executor()),
          peer(credentials) {}
    Connection connection;
    /// Notified when the session is granted its lock, or its client disconnects.
    loop::Event changed;
    SessionId id = 0;
    os::PeerCredentials peer;
    /// When it requested its lock.
    Clock::time_point arrived{};
  };
  using SessionPtr = std::shared_ptr<Session>;

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
    if (config_.deposit) {
      try {
        restore(std::move(*config_.deposit));
      } catch (const Error& error) {
        os::log(LogLevel::kError, "the layout is lost, and has to be published again: {}: {}",
                error.what(), label_);
        is_lost = true;
      }
    }
    if (is_lost && vault_) co_await vault_->drop();
    update_gauges();
    counters_.up.set(1);
    on_ready();
    co_await accept_clients();
  }

  // Changes nothing if it throws.
  void restore(Deposit deposit) {
    LayoutRecord record = read_record(deposit.record.get());
    const auto& allocations = record.layout.allocations();
    if (allocations.size() != deposit.memory.size()) {
      throw Error(ExitStatus::kSoftware, "restore a layout: descriptors for " +
                                             std::to_string(deposit.memory.size()) + " of " +
                                             base::counted(allocations.size(), "allocation"));
    }
    std::size_t next = 0;
    for (const auto& [slot, allocation] : allocations) {
      memory_.emplace(allocation.allocation_id,
                      std::make_shared<ServedMemory>(std::move(deposit.memory[next++]),
                                                     allocation.aligned_size));
      bytes_ += allocation.aligned_size;
    }
    is_protected_ = true;
    os::log(LogLevel::kInfo, "restored {}, layout {}: {}",
            base::counted(allocations.size(), "allocation"), record.hash.value(), label_);
    model_.restore(std::move(record.layout), std::move(record.hash), record.published);
    memory_epoch_ = model_.layout_epoch();
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
    std::optional<os::PeerCredentials> entered;
    try {
      const os::PeerCredentials peer = os::peer_credentials(socket.get());
      std::vector<gid_t> groups;
      if (admission_.wants_groups()) groups = os::peer_groups(socket.get());
      if (const auto reason = admission_.enter(peer, groups)) {
        counters_.dropped(admission_.is_allowed(peer, groups) ? DropReason::kTooManyConnections
                                                              : DropReason::kRefusedUser);
        // Limited by user, because it may be a new process each time.
        log_of({0, peer.uid, peer.gid}, LogLevel::kWarning, "refuse a client: {}: {} pid={} uid={}",
               *reason, label_, peer.pid, peer.uid);
        return;
      }
      entered = peer;
      start_session(std::move(socket), peer);
    } catch (const std::exception& error) {
      if (entered) admission_.leave(*entered);
      log_of(entered.value_or(os::PeerCredentials{}), LogLevel::kWarning, "admit a client: {}: {}",
             error.what(), label_);
    }
  }

  void start_session(base::UniqueFd socket, const os::PeerCredentials& peer) {
    auto session = std::make_shared<Session>(io_, std::move(socket), peer, unread_);
    sessions_.insert(session);
    counters_.connections.set(sessions_.size());
    asio::co_spawn(io_, run_session(session), asio::detached);
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
        log_of(session->peer, LogLevel::kWarning, "end a session: {}: {}", error.what(),
               label(*session));
      }
    } catch (const std::exception&) {
      fail(std::current_exception());
    }
    session->connection.close();
    if (session->id != 0) {
      by_id_.erase(session->id);
      model_.leave(session->id);
      after_change();
    }
    count_faults(*session);
    admission_.leave(session->peer);
    sessions_.erase(session);
    counters_.connections.set(sessions_.size());
    acceptor_.notify_room();
  }

  void count_faults(const Session& session) {
    if (const std::size_t count = session.connection.messages_with_fds(); count > 0) {
      counters_.unexpected_fds.add(count);
      log_of(session.peer, LogLevel::kWarning, "closed the unexpected descriptors of {}: {}",
             base::counted(count, "message"), label(session));
    }
    using Fault = Connection::Fault;
    const Fault fault = session.connection.fault();
    if (fault != Fault::kSilent && fault != Fault::kSlowReader) return;
    const bool is_silent = fault == Fault::kSilent;
    counters_.dropped(is_silent ? DropReason::kSilent : DropReason::kSlowReader);
    log_of(session.peer, LogLevel::kWarning, "disconnect a client that {}: {}",
           is_silent ? "sent no whole message in time" : "does not read its answers",
           label(session));
  }

  awaitable<void> talk(SessionPtr session) {
    std::optional<std::string_view> body =
        co_await session->connection.read_frame(kPeerTimeout, kPeerTimeout);
    if (!body) co_return;
    if (const std::optional<std::string> mark = other_protocol(*body)) {
      counters_.dropped(DropReason::kOtherProtocol);
      log_of(session->peer, LogLevel::kWarning,
             "refuse a client of another protocol: its message has {}: {}", *mark, label(*session));
      Reply refusal = refuse_other_protocol(*mark);
      co_await send(session, std::move(refusal));
      co_return;
    }
    Request first = decode_request(*body);
    if (const auto* handshake = std::get_if<HandshakeRequest>(&first)) {
      const bool granted = co_await shake_hands(session, *handshake);
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
  awaitable<bool> shake_hands(SessionPtr session, const HandshakeRequest& request) {
    const std::optional<LockType> type = parse_lock_type(request.lock_type);
    if (!type) {
      Reply refusal =
          reply(ErrorResponse{"unknown lock_type " + base::quoted(request.lock_type), 0}, true);
      co_await send(session, std::move(refusal));
      co_return false;
    }
    session->arrived = Clock::now();
    session->id = model_.arrive(*type);
    by_id_.emplace(session->id, session);
    after_change();
    if (!model_.grant_of(session->id)) co_await wait_for_grant(session, request.timeout_ms);
    const std::optional<Grant> grant = model_.grant_of(session->id);
    // The grant has dropped the old layout: its memory must be free when the writer allocates, and
    // it must not be restored after a crash. This holds even if the client has disconnected.
    if (grant == Grant::kRw && vault_) co_await vault_->drop();
    if (!session->connection.is_alive()) co_return false;
    HandshakeResponse response;
    response.success = grant.has_value();
    if (!grant) {
      // Removed from the queue before the answer, because now it must not be granted anything.
      counters_.lock_timeouts[*type].add();
      model_.leave(session->id);
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
      co_await wait_while_watching(session, deadline);
    }
  }

  static awaitable<void> notify_at_hangup(SessionPtr session) {
    co_await session->connection.watch_hangup();
    session->changed.notify();
  }

  // Waits until `deadline`, or until the session changes, which includes that its client
  // disconnects.
  awaitable<void> wait_while_watching(SessionPtr session, Deadline deadline) {
    asio::co_spawn(io_, notify_at_hangup(session), asio::detached);
    // The watch may have ended before this wait begins.
    if (session->connection.is_alive()) co_await session->changed.wait(deadline);
    co_await session->connection.stop_watching();
  }

  // Call it after anything that may free the lock or drop the layout.
  void after_change() {
    while (const auto granted = model_.grant_next(
               [this](SessionId id) { return by_id_.at(id)->connection.is_alive(); })) {
      Session& session = *by_id_.at(granted->session);
      const base::Duration waited = Clock::now() - session.arrived;
      counters_.granted(granted->grant, waited);
      log_of(session.peer, LogLevel::kInfo, "granted {}: {} waited_ms={}",
             to_string(granted->grant), label(session),
             std::chrono::duration_cast<std::chrono::milliseconds>(waited).count());
      session.changed.notify();
    }
    if (model_.layout_epoch() != memory_epoch_) {
      memory_epoch_ = model_.layout_epoch();
      if (!memory_.empty()) counters_.layouts_dropped.add();
      bytes_ = 0;
      is_protected_ = false;
      std::vector<Memory> dropped;
      for (auto& [id, memory] : memory_) dropped.push_back(std::move(memory));
      memory_.clear();
      pool_.release(std::move(dropped));
    }
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
    counters_.allocations.set(memory_.size());
    counters_.allocated_bytes.set(bytes_);
    counters_.committed.set(model_.published() ? 1 : 0);
    counters_.is_protected.set(is_protected_ ? 1 : 0);
  }

  // A log line that clients can cause at will: limited per client, and for all clients together.
  template <typename... Args>
  void log_of(const os::PeerCredentials& peer, LogLevel level, fmt::format_string<Args...> format,
              Args&&... args) {
    log_limit_.log(level, fmt::format("pid={} uid={}", peer.pid, peer.uid),
                   fmt::format(format, std::forward<Args>(args)...));
  }

  // Identifies the session in log lines.
  [[nodiscard]] std::string label(const Session& session) const {
    return fmt::format("{} session={} pid={} uid={}", label_, session.id, session.peer.pid,
                       session.peer.uid);
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
      co_return co_await answer_with_device(session, request);
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

  // Requests that need the device or the parent process.
  awaitable<std::optional<Reply>> answer_with_device(SessionPtr session, Request& request) {
    if (const auto* one = std::get_if<AllocateRequest>(&request)) {
      co_return co_await answer_allocate(session, *one);
    }
    if (const auto* many = std::get_if<AllocateManyRequest>(&request)) {
      co_return co_await answer_allocate_many(session, *many);
    }
    if (const auto* wanted = std::get_if<ExportAllocationRequest>(&request)) {
      co_return co_await answer_export(session, *wanted);
    }
    if (const auto* wanted = std::get_if<ExportLayoutRequest>(&request)) {
      co_return co_await answer_export_layout(session, *wanted);
    }
    if (const auto* wanted = std::get_if<FreeAllocationRequest>(&request)) {
      co_return answer_free(*wanted);
    }
    const bool publish = std::holds_alternative<CommitRequest>(request);
    co_return co_await answer_commit(session, publish);
  }

  Reply answer_free(const FreeAllocationRequest& wanted) {
    const auto found = memory_.find(wanted.allocation_id);
    if (found == memory_.end()) return reply(FreeAllocationResponse{false});
    bytes_ -= found->second->size();
    pool_.release({std::move(found->second)});
    memory_.erase(found);
    update_gauges();
    return reply(FreeAllocationResponse{model_.layout().remove(wanted.allocation_id)});
  }

  // The device memory for an allocation of this size. Throws Refusal for more than the device has.
  [[nodiscard]] base::ByteCount aligned_size(std::int64_t size) const {
    if (size <= 0) {
      throw Refusal{"allocate " + std::to_string(size) + " bytes: size must be > 0"};
    }
    const auto bytes = static_cast<base::ByteCount>(size);
    const base::ByteCount aligned = base::round_up(bytes, config_.device.granularity);
    if (aligned == 0 || aligned > config_.device.total_memory) throw too_big(bytes);
    return aligned;
  }

  [[nodiscard]] Refusal too_big(base::ByteCount bytes) const {
    return {"allocate " + base::format_size(bytes) + ": the device has " +
            base::format_size(config_.device.total_memory)};
  }

  AllocateResponse add_allocation(const AllocationWish& wish, Memory memory) {
    const Allocation& made =
        model_.layout().add(AllocationId(os::make_uuid4()), static_cast<base::ByteCount>(wish.size),
                            memory->size(), wish.tag);
    bytes_ += made.aligned_size;
    memory_.emplace(made.allocation_id, std::move(memory));
    counters_.allocations.set(memory_.size());
    counters_.allocated_bytes.set(bytes_);
    return {made.allocation_id, wish.size, static_cast<std::int64_t>(made.aligned_size),
            static_cast<std::int64_t>(made.layout_slot)};
  }

  awaitable<std::optional<Reply>> answer_allocate(SessionPtr session,
                                                  const AllocateRequest& request) {
    const AllocationWish wish{request.size, request.tag};
    check_room(model_.layout(), {wish});
    std::vector<base::ByteCount> sizes{aligned_size(wish.size)};
    std::vector<Memory> memory = co_await create_memory(session, std::move(sizes));
    if (memory.empty()) co_return std::nullopt;
    co_return reply(add_allocation(wish, std::move(memory.front())));
  }

  awaitable<std::optional<Reply>> answer_allocate_many(SessionPtr session,
                                                       const AllocateManyRequest& request) {
    const auto& wishes = request.allocations;
    if (wishes.empty()) throw Refusal{"an empty list of allocations"};
    check_room(model_.layout(), wishes);
    std::vector<base::ByteCount> sizes;
    base::ByteCount sum = 0;
    for (const AllocationWish& wish : wishes) {
      sizes.push_back(aligned_size(wish.size));
      sum += sizes.back();
      if (sum > config_.device.total_memory) throw too_big(sum);
    }
    std::vector<Memory> memory = co_await create_memory(session, std::move(sizes));
    if (memory.empty()) co_return std::nullopt;
    AllocateManyResponse response;
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      response.allocations.push_back(add_allocation(wishes[i], std::move(memory[i])));
    }
    co_return reply(response);
  }

  // Device memory of these sizes; waits for free memory as configured. Empty if the client
  // disconnected.
  awaitable<std::vector<Memory>> create_memory(SessionPtr session,
                                               std::vector<base::ByteCount> sizes) {
    const auto deadline = Deadline::after(config_.alloc_retry_timeout);
    std::vector<Memory> made;
    for (bool first = true;; first = false) {
      std::vector<base::ByteCount> missing(sizes.begin() + static_cast<std::ptrdiff_t>(made.size()),
                                           sizes.end());
      MemoryPool::Created more = co_await pool_.create(std::move(missing));
      for (Memory& one : more.memory) made.push_back(std::move(one));
      if (made.size() == sizes.size()) co_return made;
      const base::ByteCount size = sizes[made.size()];
      if (!more.has_descriptors) {
        pool_.release(std::move(made));
        throw not_made(size, "no descriptors left (ulimit -n)");
      }
      if (first) {
        model_.add_event("allocation_oom", model_.layout().allocations().size());
        // Runs detached.
        asio::co_spawn(io_, log_shortage(size, session->peer, label(*session)), asio::detached);
      }
      const bool in_time = !deadline.expired();
      if (in_time) {
        const base::Duration pause = std::min(config_.alloc_retry_interval, *deadline.remaining());
        co_await wait_while_watching(session, Deadline::after(pause));
      }
      const bool alive = session->connection.is_alive();
      if (in_time && alive) {
        counters_.oom_retries.add();
        continue;
      }
      pool_.release(std::move(made));
      if (!alive) co_return std::vector<Memory>();
      counters_.oom_refusals.add();
      throw not_made(size, "out of memory");
    }
  }

  [[nodiscard]] Refusal not_made(base::ByteCount size, const std::string& reason) const {
    return {"allocate " + base::format_size(size) + " on device " +
                std::to_string(config_.device.ordinal.value()) + ": " + reason,
            ExitStatus::kTryAgain};
  }

  // Logs which processes use the device's memory.
  awaitable<void> log_shortage(base::ByteCount size, os::PeerCredentials peer, std::string client) {
    const base::ByteCount ours = bytes_;
    std::string use = fmt::format("this layout has {} in {}", base::format_size(ours),
                                  base::counted(memory_.size(), "allocation"));
    const std::optional<cuda::MemoryInfo> info = co_await pool_.memory_info();
    if (info) {
      const base::ByteCount used = info->total - info->free;
      use += fmt::format(", others {}, of {}", base::format_size(used > ours ? used - ours : 0),
                         base::format_size(info->total));
    }
    log_of(peer, LogLevel::kWarning, "out of memory for {}, retrying: {}: {}",
           base::format_size(size), use, client);
  }

  awaitable<std::optional<Reply>> answer_export(SessionPtr session,
                                                const ExportAllocationRequest& request) {
    static_cast<void>(find_allocation(model_, request.allocation_id));
    const bool is_reading = co_await session->connection.make_room(1, kPeerTimeout);
    if (!is_reading) co_return std::nullopt;
    const Allocation& allocation = find_allocation(model_, request.allocation_id);
    Reply answer = reply(ExportAllocationResponse{to_record(allocation)});
    std::vector<Memory> memory{memory_.at(allocation.allocation_id)};
    answer.fds = co_await pool_.export_fds(std::move(memory));
    counters_.exports.add();
    co_return answer;
  }

  awaitable<std::optional<Reply>> answer_export_layout(SessionPtr session,
                                                       const ExportLayoutRequest& request) {
    const std::size_t most = std::min(
        {os::kMaxFdsPerMessage, config_.max_unread_fds, model_.layout().allocations().size()});
    const bool is_reading = co_await session->connection.make_room(most, kPeerTimeout);
    if (!is_reading) co_return std::nullopt;
    const LayoutPage page = page_of(model_.layout(), request, most);
    ExportLayoutResponse response;
    std::vector<Memory> memory;
    for (const Allocation* allocation : page.allocations) {
      response.allocations.push_back({to_record(*allocation)});
      memory.push_back(memory_.at(allocation->allocation_id));
    }
    if (page.next_slot) response.next_slot = static_cast<std::int64_t>(*page.next_slot);
    response.memory_layout_hash = model_.hash();
    Reply answer = reply(response);
    if (!memory.empty()) answer.fds = co_await pool_.export_fds(std::move(memory));
    counters_.exports.add(answer.fds.size());
    co_return answer;
  }

  // The layout cannot change while others are served: it belongs to the writer, who waits for the
  // answer.
  awaitable<LayoutHash> hash_layout() {
    LayoutHasher hasher(std::as_const(model_).layout());
    while (hasher.step(kHashedAtOnce)) co_await asio::post(io_, use_awaitable);
    co_return hasher.finish();
  }

  // A file with the layout's record; empty without a free descriptor or memory for it.
  awaitable<base::UniqueFd> write_record(const LayoutHash& hash, bool published) {
    base::UniqueFd file(::memfd_create("gms-layout", MFD_CLOEXEC));
    RecordWriter writer(std::as_const(model_).layout(), hash, published);
    for (std::string part = writer.next(); file && !part.empty(); part = writer.next()) {
      try {
        os::write_all(file.get(), part, "write a layout's record");
      } catch (const Error&) {
        file.reset();
      }
      co_await asio::post(io_, use_awaitable);
    }
    co_return file;
  }

  // Publishes or seals the layout. The parent stores it before any client sees it.
  awaitable<std::optional<Reply>> answer_commit(SessionPtr session, bool publish) {
    LayoutHash hash = co_await hash_layout();
    const std::string label = this->label(*session);
    if (vault_) co_await keep_layout(*session, hash, publish);
    const std::size_t count = model_.layout().allocations().size();
    log_of(session->peer, LogLevel::kInfo, "{} {}, layout {}: {}", publish ? "published" : "sealed",
           base::counted(count, "allocation"), hash.value(), label);
    (publish ? counters_.commits : counters_.seals).add();
    if (publish) {
      model_.publish(std::move(hash));
      after_change();
      co_return reply(CommitResponse{true}, true);
    }
    model_.seal(std::move(hash));
    update_gauges();
    const CommitLayoutResponse response{true, model_.hash(),
                                        std::string(to_string(Grant::kRwData))};
    co_return reply(response);
  }

  awaitable<void> keep_layout(const Session& session, const LayoutHash& hash, bool published) {
    std::vector<Memory> memory;
    for (const auto& [slot, allocation] : model_.layout().allocations()) {
      memory.push_back(memory_.at(allocation.allocation_id));
    }
    base::UniqueFd record = co_await write_record(hash, published);
    VaultClient::Answer answer;
    if (record) answer = co_await vault_->begin(std::move(record), memory.size());
    const std::size_t most = std::min(os::kMaxFdsPerMessage, config_.max_unread_fds);
    for (std::size_t at = 0; answer.accepted && at < memory.size();) {
      const std::size_t end = std::min(at + most, memory.size());
      std::vector<Memory> part(memory.begin() + static_cast<std::ptrdiff_t>(at),
                               memory.begin() + static_cast<std::ptrdiff_t>(end));
      std::vector<base::UniqueFd> fds;
      try {
        fds = co_await pool_.export_fds(std::move(part));
      } catch (const base::Error& error) {
        if (error.status() != ExitStatus::kTryAgain) throw;
        answer = {};
        break;
      }
      answer = co_await vault_->add(std::move(fds));
      at = end;
    }
    if (answer.accepted) answer = co_await vault_->keep();
    is_protected_ = answer.accepted;
    if (is_protected_) co_return;
    log_of(session.peer, LogLevel::kWarning,
           "layout {} is not protected against a crash of this server: it takes {}, "
           "there is room for {} (raise the limit on open files): {}",
           hash.value(), base::counted(memory.size() + 1, "descriptor"), answer.room, label_);
  }

  ServerConfig config_;
  ServerCounters& counters_;
  Admission admission_;
  UnreadAnswers unread_;
  ServerModel model_;
  os::LogLimit log_limit_;
  std::uint64_t memory_epoch_ = 0;
  /// Size of `memory_`.
  base::ByteCount bytes_ = 0;
  /// Whether the vault has the layout.
  bool is_protected_ = false;
  std::unordered_map<AllocationId, Memory> memory_;
  std::exception_ptr failure_;
  // Declared in reverse order of destruction: sockets and timers are destroyed before their loop,
  // and the CUDA thread before the loop that it posts to. The loop destroys pending operations.
  asio::io_context io_{1};
  asio::posix::stream_descriptor stop_{io_};
  MemoryPool pool_;
  std::optional<VaultClient> vault_;
  /// Identifies this server in log lines.
  std::string label_;
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
