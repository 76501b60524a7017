// Moves KV caches of running requests between engines: the source offers and sends them, the target
// pulls, checks and keeps them for the continuation of the request. After any failure, the
// continuation is processed from its beginning.
//
// Runs on one loop's thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "http/server.h"
#include "net/networks.h"
#include "refengine/kv/kv_store.h"
#include "refengine/scheduler.h"

namespace fo::refengine {

class KvTransfer {
 public:
  struct Options {
    /// The addresses of engines to pull from.
    net::Networks sources;
    /// Limit of the host memory for pulled KV caches.
    base::ByteCount max_bytes = 256 * base::kMiB;
  };
  /// Maximum number of KV caches that are sent at a time.
  static constexpr std::size_t kMaxSending = 4;

  /// `positions` is the capacity of the KV cache.
  KvTransfer(Options options, const ModelConfig& config, const std::string& model_name,
             std::uint32_t positions, std::shared_ptr<Scheduler> scheduler);

  /// Sets the fingerprint of the mapped weights, which a wake may change.
  void set_fingerprint(std::string fingerprint) { identity_.fingerprint = std::move(fingerprint); }

  /// Makes a running request findable by its id while this object exists. Of several requests with
  /// one id, only the first can be found.
  class Running {
   public:
    Running(std::shared_ptr<KvTransfer> transfer, const std::string& id,
            const Scheduler::Turn& turn, const Generation& generation);
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    friend class KvTransfer;
    std::shared_ptr<KvTransfer> transfer_;
    std::string id_;
    const Scheduler::Turn& turn_;
    const Generation& generation_;
    std::uint64_t serial_;
  };

  /// The result of take().
  struct Found {
    std::shared_ptr<const KvSnapshot> snapshot;
    /// The reason if `snapshot` is null.
    std::string reason;
  };
  /// Takes the snapshot `id` if `prompt` begins with its tokens. A snapshot can be taken once.
  Found take(const std::string& id, std::span<const TokenId> prompt);

  /// GET /kv_snapshot: the offer of a running request. Throws ApiError.
  [[nodiscard]] std::string offer(const http::Request& request) const;
  /// GET /kv_snapshot/blocks: the first `tokens` tokens of that request, in blocks;
  /// fewer if the request ends meanwhile. Throws ApiError.
  static boost::asio::awaitable<void> send(std::shared_ptr<KvTransfer> self,
                                           const http::Request& request, http::Reply& reply);
  /// POST /kv_snapshot/pull: reads the KV cache of a request of another engine. Throws ApiError.
  static boost::asio::awaitable<void> pull(std::shared_ptr<KvTransfer> self,
                                           const http::Request& request, http::Reply& reply);

  /// The number of KV caches that are being sent.
  [[nodiscard]] std::size_t sending() const { return sending_; }

 private:
  [[nodiscard]] const Running& find(const http::Request& request) const;
  [[nodiscard]] KvOffer make_offer(const Running& running, std::size_t tokens) const;
  [[nodiscard]] std::string check_source(const std::string& url) const;
  void check_offer(const KvOffer& offer) const;

  Options options_;
  KvIdentity identity_;
  std::uint32_t vocab_size_;
  std::uint32_t positions_;
  std::shared_ptr<Scheduler> scheduler_;
  KvStore store_;
  std::map<std::string, const Running*> running_;
  std::uint64_t next_serial_ = 0;
  std::size_t sending_ = 0;
};

}  // namespace fo::refengine
