#include "gms/server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <exception>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "cuda/memory.h"
#include "gms/connection.h"
#include "gms/protocol.h"
#include "gms/server_model.h"
#include "os/log.h"
#include "os/random.h"
#include "os/unix_socket.h"

namespace fo::gms {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::use_awaitable;
using base::Error;
using base::ExitStatus;
using os::LogLevel;

// A client that connects and says nothing, or does not take its answer, is dropped after this.
constexpr base::Duration kPeerTimeout = std::chrono::seconds(30);

// A request that can't be done; the connection lives on.
struct Refusal {
  std::string error;
  ExitStatus code = ExitStatus::kBadData;
};

struct Reply {
  std::string frame;
  base::UniqueFd fd;
  /// The server closes the connection after the answer.
  bool last = false;
};

template <typename Message>
Reply reply(const Message& message, bool last = false) {
  return {encode_frame(message), {}, last};
}

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

AllocationRecord describe(const Allocation& allocation) {
  return {allocation.allocation_id, static_cast<std::int64_t>(allocation.size),
          static_cast<std::int64_t>(allocation.aligned_size), allocation.tag,
          static_cast<std::int64_t>(allocation.layout_slot)};
}

// What a client may ask for before any handshake.
template <typename Message>
concept FirstMessage = std::same_as<Message, HandshakeRequest> ||
    std::same_as<Message, GetRuntimeStateRequest> || std::same_as<Message, GetEventHistoryRequest>;

// What only a writer with an unsealed layout may ask for.
template <typename Message>
concept WriterRequest =
    std::same_as<Message, CommitRequest> || std::same_as<Message, CommitLayoutRequest> ||
    std::same_as<Message, AllocateRequest> || std::same_as<Message, FreeAllocationRequest> ||
    std::same_as<Message, MetadataPutRequest> || std::same_as<Message, MetadataDeleteRequest>;

class Server {
 public:
  explicit Server(ServerConfig config)
      : config_(std::move(config)),
        listener_(io_, config_.listener.release()),
        stop_(io_, ::fcntl(config_.stop_fd, F_DUPFD_CLOEXEC, 0)),
        label_("device " + std::to_string(config_.device.ordinal.value()) + " " + config_.tag) {}

  void run(const std::function<void()>& on_ready) {
    const auto end_of_all = [this](std::exception_ptr error) {
      if (error) fail(std::move(error));
    };
    asio::co_spawn(io_, wait_for_stop(), end_of_all);
    asio::co_spawn(io_, accept_clients(), end_of_all);
    on_ready();
    io_.run();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Session {
    Session(asio::io_context& io, base::UniqueFd socket)
        : connection(io, std::move(socket)), wake(io) {}
    Connection connection;
    /// Rung when the session is granted its lock or its client is gone; expires with its timeout.
    asio::steady_timer wake;
    SessionId id = 0;
    os::PeerCredentials peer{};
  };
  using SessionPtr = std::shared_ptr<Session>;

  awaitable<void> wait_for_stop() {
    boost::system::error_code ec;
    co_await stop_.async_wait(asio::posix::descriptor_base::wait_read,
                              asio::redirect_error(use_awaitable, ec));
    io_.stop();
  }

  // The end of everything: the error leaves run().
  void fail(std::exception_ptr failure) {
    if (!failure_) failure_ = std::move(failure);
    io_.stop();
  }

  // Whatever the driver says of itself: a device that fails while it is served can't be trusted.
  void fail(const cuda::CudaError& error) {
    fail(std::make_exception_ptr(Error(ExitStatus::kSoftware, error.what())));
  }

  awaitable<void> accept_clients() {
    for (;;) {
      boost::system::error_code ec;
      co_await listener_.async_wait(asio::posix::descriptor_base::wait_read,
                                    asio::redirect_error(use_awaitable, ec));
      while (!ec) {
        while (sessions_.size() >= config_.max_connections) co_await room_for_clients();
        base::UniqueFd socket(
            ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (!socket && errno == EAGAIN) break;
        const bool accepted = socket.valid();
        if (!accepted) os::log(LogLevel::kWarning, "{}: accept a client: {}", label_, os_reason());
        if (accepted) admit(std::move(socket));
        if (!accepted) co_await room_for_clients();
      }
    }
  }

  void admit(base::UniqueFd socket) {
    try {
      if (is_welcome(socket.get())) start_session(std::move(socket));
    } catch (const std::exception& error) {
      os::log(LogLevel::kWarning, "{}: admit a client: {}", label_, error.what());
    }
  }

  static std::string os_reason() { return std::generic_category().message(errno); }

  // Out of descriptors or places: the next client is taken when one has gone, or in a while.
  awaitable<void> room_for_clients() {
    room_.expires_after(std::chrono::seconds(1));
    boost::system::error_code ec;
    co_await room_.async_wait(asio::redirect_error(use_awaitable, ec));
  }

  // Only processes of our own user, and root, speak to us, whatever the socket file's mode.
  static bool is_welcome(int socket_fd) {
    const os::PeerCredentials peer = os::peer_credentials(socket_fd);
    if (peer.uid == ::geteuid() || peer.uid == 0) return true;
    os::log(LogLevel::kWarning, "refuse client process {}: user {} is not ours", peer.pid,
            peer.uid);
    return false;
  }

  void start_session(base::UniqueFd socket) {
    auto session = std::make_shared<Session>(io_, std::move(socket));
    sessions_.insert(session);
    asio::co_spawn(io_, run_session(session), asio::detached);
  }

  // A peer's misbehaviour ends its session only; a device's ends the server.
  awaitable<void> run_session(SessionPtr session) {
    try {
      co_await talk(session);
    } catch (const cuda::CudaError& error) {
      fail(error);
    } catch (const Error& error) {
      os::log(LogLevel::kWarning, "{}: session {} ends: {}", label_, session->id, error.what());
    } catch (const std::exception&) {
      fail(std::current_exception());
    }
    session->connection.close();
    if (session->id != 0) {
      by_id_.erase(session->id);
      model_.leave(session->id);
      after_change();
    }
    sessions_.erase(session);
    room_.cancel();
  }

  awaitable<void> talk(SessionPtr session) {
    std::optional<std::string_view> body = co_await session->connection.read_frame(kPeerTimeout);
    if (!body) co_return;
    Request first = decode_request(*body);
    if (const auto* handshake = std::get_if<HandshakeRequest>(&first)) {
      if (!co_await shake_hands(session, *handshake)) co_return;
    } else {
      Reply answer = answer_stranger(first);
      co_await send(session, std::move(answer));
      co_return;
    }
    for (;;) {
      body = co_await session->connection.read_frame(std::nullopt);
      if (!body) co_return;
      Request request = decode_request(*body);
      std::optional<Reply> answer = co_await answer_request(session, request);
      if (!answer) co_return;
      const bool last = answer->last;
      const bool sent = co_await send(session, std::move(*answer));
      if (!sent || last) co_return;
    }
  }

  static awaitable<bool> send(SessionPtr session, Reply answer) {
    co_return co_await session->connection.write_frame(answer.frame, std::move(answer.fd),
                                                       kPeerTimeout);
  }

  Reply answer_stranger(const Request& request) {
    if (std::holds_alternative<GetRuntimeStateRequest>(request)) {
      return reply(model_.runtime_state(), true);
    }
    if (std::holds_alternative<GetEventHistoryRequest>(request)) {
      return reply(GetEventHistoryResponse{model_.events()}, true);
    }
    return reply(ErrorResponse{"a handshake_request has to come first", 0}, true);
  }

  // True once the lock is the client's and it has been told so.
  awaitable<bool> shake_hands(SessionPtr session, const HandshakeRequest& request) {
    const std::optional<LockType> type = parse_lock_type(request.lock_type);
    if (!type) {
      Reply refusal =
          reply(ErrorResponse{"unknown lock_type " + base::quoted(request.lock_type), 0}, true);
      co_await send(session, std::move(refusal));
      co_return false;
    }
    session->id = model_.arrive(*type);
    by_id_.emplace(session->id, session);
    after_change();
    if (!model_.grant_of(session->id)) co_await wait_for_grant(session, request.timeout_ms);
    const std::optional<Grant> grant = model_.grant_of(session->id);
    if (!session->connection.is_alive()) co_return false;
    HandshakeResponse response;
    response.success = grant.has_value();
    if (!grant) {
      // Out of the queue before the answer, not after: it must not be granted anything now.
      model_.leave(session->id);
      after_change();
    }
    response.committed = model_.published();
    if (grant) response.granted_lock_type = to_string(*grant);
    Reply answer = reply(response);
    const bool sent = co_await send(session, std::move(answer));
    co_return sent&& grant;
  }

  // Returns when the session was granted its lock, its time is over, or its client is gone.
  awaitable<void> wait_for_grant(SessionPtr session, std::optional<std::int64_t> timeout_ms) {
    // Longer than a year is for ever, and fits the clock.
    constexpr std::int64_t kYear = std::int64_t{366} * 24 * 3600 * 1000;
    const std::int64_t wait_ms =
        timeout_ms ? std::clamp<std::int64_t>(*timeout_ms, 0, kYear) : kYear;
    co_await wait_while_watching(session, std::chrono::milliseconds(wait_ms));
  }

  static awaitable<void> ring_at_hangup(SessionPtr session) {
    co_await session->connection.watch_hangup();
    session->wake.cancel();
  }

  // Sleeps for `duration`, but no longer than until the session's bell is rung or its client is
  // gone.
  awaitable<void> wait_while_watching(SessionPtr session, base::Duration duration) {
    session->wake.expires_after(duration);
    asio::co_spawn(io_, ring_at_hangup(session), asio::detached);
    // The watch may have ended already, and rung before anybody listened.
    if (session->connection.is_alive()) {
      boost::system::error_code ec;
      co_await session->wake.async_wait(asio::redirect_error(use_awaitable, ec));
    }
    session->connection.stop_watching();
  }

  // To be called after anything that may free the lock or drop the layout.
  void after_change() {
    while (const auto granted = model_.grant_next(
               [this](SessionId id) { return by_id_.at(id)->connection.is_alive(); })) {
      os::log(LogLevel::kInfo, "{}: session {}: granted {}", label_, granted->session,
              to_string(granted->grant));
      by_id_.at(granted->session)->wake.cancel();
    }
    if (model_.layout_epoch() != memory_epoch_) {
      memory_epoch_ = model_.layout_epoch();
      for (auto& [id, memory] : memory_) release(std::move(memory));
      memory_.clear();
    }
  }

  using Memory = std::shared_ptr<cuda::PhysicalMemory>;

  // Releases run on the CUDA thread in the order they were asked for, hence before any allocation
  // that is asked for later.
  void release(Memory memory) {
    asio::co_spawn(
        cuda_thread_,
        [memory = std::move(memory)]() -> awaitable<void> {
          memory->close();
          co_return;
        },
        asio::bind_executor(io_.get_executor(), [this](std::exception_ptr failure) {
          if (!failure) return;
          try {
            std::rethrow_exception(std::move(failure));
          } catch (const cuda::CudaError& error) {
            fail(error);
          } catch (...) {
            fail(std::current_exception());
          }
        }));
  }

  template <typename Call>
  auto on_cuda_thread(Call call) {
    using Result = decltype(call());
    return asio::co_spawn(
        cuda_thread_, [call = std::move(call)]() -> awaitable<Result> { co_return call(); },
        use_awaitable);
  }

  // nullopt: the client is gone. Throws what ends the session or the server.
  awaitable<std::optional<Reply>> answer_request(SessionPtr session, Request& request) {
    const Grant grant = *model_.grant_of(session->id);
    try {
      check_allowed(request, grant);
      if (const auto* allocate = std::get_if<AllocateRequest>(&request)) {
        co_return co_await answer_allocate(session, *allocate);
      }
      if (const auto* wanted = std::get_if<ExportAllocationRequest>(&request)) {
        co_return co_await answer_export(*wanted);
      }
      co_return answer_at_once(session, request);
    } catch (const Refusal& refusal) {
      co_return refuse(refusal);
    } catch (const cuda::CudaError&) {
      throw;
    } catch (const Error& error) {
      co_return refuse({error.what(), error.status()});
    }
  }

  static Reply refuse(const Refusal& refusal) {
    return reply(ErrorResponse{refusal.error, base::to_int(refusal.code)});
  }

  static void check_allowed(const Request& request, Grant grant) {
    std::visit(
        [&]<typename Message>(const Message&) {
          if constexpr (FirstMessage<Message>) {
            throw Refusal{std::string(Message::kType) + ": only possible as the first message",
                          ExitStatus::kProtocol};
          } else if constexpr (WriterRequest<Message>) {
            if (grant != Grant::kRw) {
              throw Refusal{std::string(Message::kType) + ": needs an rw lock, this session has " +
                                std::string(to_string(grant)),
                            ExitStatus::kNotPermitted};
            }
          }
        },
        request);
  }

  const Allocation& find_allocation(const std::string& id) const {
    const Allocation* allocation = model_.layout().find(id);
    if (allocation == nullptr) throw Refusal{"no such allocation: " + base::quoted(id)};
    return *allocation;
  }

  awaitable<std::optional<Reply>> answer_allocate(SessionPtr session,
                                                  const AllocateRequest& request) {
    if (request.size <= 0) {
      throw Refusal{"allocate " + std::to_string(request.size) + " bytes: not a size"};
    }
    const auto size = static_cast<base::ByteCount>(request.size);
    const base::ByteCount aligned = base::round_up(size, config_.device.granularity);
    if (aligned == 0 || aligned > config_.device.total_memory) {
      throw Refusal{"allocate " + base::format_size(size) + ": the device has " +
                    base::format_size(config_.device.total_memory)};
    }
    Memory memory = co_await create_memory(session, aligned);
    if (!memory) co_return std::nullopt;
    const Allocation& allocation =
        model_.layout().add(os::make_uuid4(), size, aligned, request.tag);
    memory_.emplace(allocation.allocation_id, std::move(memory));
    co_return reply(AllocateResponse{allocation.allocation_id, request.size,
                                     static_cast<std::int64_t>(aligned),
                                     static_cast<std::int64_t>(allocation.layout_slot)});
  }

  // Device memory, waited for as long as the configuration says; null when the client left.
  awaitable<Memory> create_memory(SessionPtr session, base::ByteCount aligned) {
    const auto deadline = base::Deadline::after(config_.alloc_retry_timeout);
    for (bool first = true;; first = false) {
      // Made into an answer inside the thread: an exception can't be waited for in a handler.
      auto create = [this, aligned]() -> Memory {
        try {
          return std::make_shared<cuda::PhysicalMemory>(
              cuda::PhysicalMemory::create(config_.driver, config_.device.ordinal, aligned));
        } catch (const cuda::OutOfMemory&) {
          return nullptr;
        }
      };
      Memory memory = co_await on_cuda_thread(std::move(create));
      if (memory) co_return memory;
      if (first) {
        model_.add_event("allocation_oom", model_.layout().allocations().size());
        os::log(LogLevel::kWarning, "{}: session {}: no room for {}, trying again", label_,
                session->id, base::format_size(aligned));
      }
      if (deadline.expired()) {
        throw Refusal{"allocate " + base::format_size(aligned) + " on device " +
                          std::to_string(config_.device.ordinal.value()) + ": out of memory",
                      ExitStatus::kTryAgain};
      }
      co_await wait_while_watching(session,
                                   std::min(config_.alloc_retry_interval, *deadline.remaining()));
      if (!session->connection.is_alive()) co_return nullptr;
    }
  }

  awaitable<std::optional<Reply>> answer_export(const ExportAllocationRequest& request) {
    const Allocation& allocation = find_allocation(request.allocation_id);
    Reply answer = reply(ExportAllocationResponse{describe(allocation)});
    auto call = [memory = memory_.at(allocation.allocation_id)] { return memory->export_fd(); };
    answer.fd = co_await on_cuda_thread(std::move(call));
    co_return answer;
  }

  Reply answer_at_once(const SessionPtr& session, Request& request) {
    return std::visit(
        Overloaded{
            [&](CommitRequest&) {
              model_.publish();
              after_change();
              os::log(LogLevel::kInfo, "{}: session {}: published {} allocations, layout {}",
                      label_, session->id, model_.layout().allocations().size(), model_.hash());
              return reply(CommitResponse{true}, true);
            },
            [&](CommitLayoutRequest&) {
              model_.seal();
              return reply(CommitLayoutResponse{true, model_.hash(),
                                                std::string(to_string(Grant::kRwData))});
            },
            [&](FreeAllocationRequest& wanted) {
              const auto found = memory_.find(wanted.allocation_id);
              if (found == memory_.end()) return reply(FreeAllocationResponse{false});
              release(std::move(found->second));
              memory_.erase(found);
              return reply(FreeAllocationResponse{model_.layout().remove(wanted.allocation_id)});
            },
            [&](MetadataPutRequest& put) { return answer_put(put); },
            [&](MetadataDeleteRequest& wanted) {
              return reply(MetadataDeleteResponse{model_.layout().erase(wanted.key)});
            },
            [&](GetAllocationRequest& wanted) {
              return reply(GetAllocationResponse{describe(find_allocation(wanted.allocation_id))});
            },
            [&](ListAllocationsRequest& wanted) {
              ListAllocationsResponse response;
              for (const auto& [slot, allocation] : model_.layout().allocations()) {
                if (!wanted.tag || *wanted.tag == allocation.tag) {
                  response.allocations.push_back({describe(allocation)});
                }
              }
              return reply(response);
            },
            [&](MetadataGetRequest& wanted) { return answer_get(wanted); },
            [&](MetadataListRequest& wanted) {
              MetadataListResponse response;
              const Metadata& metadata = model_.layout().metadata();
              for (auto at = metadata.lower_bound(wanted.prefix);
                   at != metadata.end() && at->first.starts_with(wanted.prefix); ++at) {
                response.keys.push_back(at->first);
              }
              return reply(response);
            },
            [&](GetLockStateRequest&) { return reply(model_.lock_state()); },
            [&](GetAllocationStateRequest&) {
              return reply(GetAllocationStateResponse{
                  static_cast<std::int64_t>(model_.layout().allocations().size())});
            },
            [&](GetMemoryLayoutHashRequest&) {
              return reply(GetMemoryLayoutHashResponse{model_.hash()});
            },
            // The rest was answered or refused before.
            [](auto& other) -> Reply {
              using Message = std::remove_reference_t<decltype(other)>;
              throw Error(ExitStatus::kSoftware, std::string(Message::kType) + ": no answer");
            },
        },
        request);
  }

  Reply answer_put(MetadataPutRequest& put) {
    if (put.value.data.size() > kMaxMetadataValue) {
      throw Refusal{"metadata " + base::quoted(put.key) + ": a value of " +
                    base::format_size(put.value.data.size()) + ", at most " +
                    base::format_size(kMaxMetadataValue) + " are allowed"};
    }
    switch (model_.layout().put(put.key, put.allocation_id, put.offset_bytes,
                                std::move(put.value.data))) {
      case Layout::PutResult::kDone:
        break;
      case Layout::PutResult::kUnknownAllocation:
        throw Refusal{"no such allocation: " + base::quoted(put.allocation_id)};
      case Layout::PutResult::kOffsetOutOfRange:
        throw Refusal{"metadata " + base::quoted(put.key) + ": offset " +
                      std::to_string(put.offset_bytes) + " is outside its allocation"};
    }
    return reply(MetadataPutResponse{true});
  }

  Reply answer_get(const MetadataGetRequest& wanted) const {
    const Metadata& metadata = model_.layout().metadata();
    const auto found = metadata.find(wanted.key);
    if (found == metadata.end()) return reply(MetadataGetResponse{});
    const MetadataEntry& entry = found->second;
    return reply(MetadataGetResponse{true, entry.allocation_id,
                                     static_cast<std::int64_t>(entry.offset_bytes),
                                     Bytes{entry.value}});
  }

  ServerConfig config_;
  ServerModel model_;
  std::uint64_t memory_epoch_ = 0;
  std::unordered_map<std::string, Memory> memory_;
  std::exception_ptr failure_;
  // What is destroyed first is declared last: sockets and timers before the loop they belong to,
  // and the CUDA thread before the loop that it posts to. The loop destroys what still waits on it.
  asio::io_context io_{1};
  asio::thread_pool cuda_thread_{1};
  asio::posix::stream_descriptor listener_;
  asio::posix::stream_descriptor stop_;
  asio::steady_timer room_{io_};
  /// Which server this is, for log lines.
  std::string label_;
  std::map<SessionId, SessionPtr> by_id_;
  std::set<SessionPtr> sessions_;
};

}  // namespace

void run_server(ServerConfig config, const std::function<void()>& on_ready) {
  Server(std::move(config)).run(on_ready);
}

}  // namespace fo::gms
