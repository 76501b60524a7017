// The device memory of the server's layout, and the answers to the requests that need it or the
// descriptor store: allocate, free, export, commit.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/strong.h"
#include "gms/bundle/fd_store.h"
#include "gms/bundle/fd_store_client.h"
#include "gms/protocol/protocol.h"
#include "gms/protocol/server_model.h"
#include "gms/server/answers.h"
#include "gms/server/memory_pool.h"
#include "gms/server/server.h"
#include "gms/server/session.h"

namespace fo::gms {

class ServedLayout {
 public:
  /// The server's objects that this one uses; they must outlive it.
  struct Parts {
    boost::asio::io_context& io;
    const ServerConfig& config;
    ServerCounters& counters;
    ServerModel& model;
    MemoryPool& pool;
    std::optional<FdStoreClient>& fd_store;
    ClientLog& log;
    /// Identifies the server in log lines.
    const std::string& label;
  };
  explicit ServedLayout(const Parts& parts) : parts_(parts) {}

  /// Takes the layout of the previous server. Changes nothing if it throws Error.
  void restore(StoredLayout stored_layout);
  /// Answers a request that answer_from_state() does not. nullopt if the client disconnected.
  /// Throws Refusal, and errors that end the session or the server. The model may grant a lock
  /// afterwards.
  boost::asio::awaitable<std::optional<Reply>> answer(SessionPtr session, const Request& request);
  /// Releases the memory if the model has dropped its layout.
  void drop_if_changed();
  void update_gauges();

 private:
  using Memory = MemoryPool::Memory;
  using Answer = boost::asio::awaitable<std::optional<Reply>>;

  Answer answer_allocate(SessionPtr session, const AllocateRequest& request);
  Answer answer_allocate_many(SessionPtr session, const AllocateManyRequest& request);
  Answer answer_export(SessionPtr session, const ExportAllocationRequest& request);
  Answer answer_export_layout(SessionPtr session, const ExportLayoutRequest& request);
  Answer answer_commit(SessionPtr session, bool publish);
  Reply answer_free(const FreeAllocationRequest& wanted);

  [[nodiscard]] base::ByteCount aligned_size(std::int64_t size) const;
  [[nodiscard]] Refusal too_big(base::ByteCount bytes) const;
  [[nodiscard]] Refusal not_made(base::ByteCount size, const std::string& reason) const;
  AllocateResponse add_allocation(const AllocationSpec& spec, Memory memory);
  boost::asio::awaitable<std::vector<Memory>> create_memory(SessionPtr session,
                                                            std::vector<base::ByteCount> sizes);
  boost::asio::awaitable<void> log_shortage(base::ByteCount size, os::PeerCredentials peer,
                                            std::string client);
  boost::asio::awaitable<LayoutHash> compute_hash();
  boost::asio::awaitable<base::UniqueFd> write_record(const LayoutHash& hash, bool published);
  boost::asio::awaitable<void> keep(const Session& session, const LayoutHash& hash, bool published);

  Parts parts_;
  std::unordered_map<AllocationId, Memory> memory_;
  /// Size of `memory_`.
  base::ByteCount bytes_ = 0;
  /// The model's layout_epoch() that `memory_` belongs to.
  std::uint64_t epoch_ = 0;
  /// Whether the descriptor store has the layout.
  bool is_protected_ = false;
};

}  // namespace fo::gms
