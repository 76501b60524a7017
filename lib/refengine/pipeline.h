// Starts, feeds and ends the rank processes of the engine. If a rank dies, the engine must end:
// pending calls never return, and `on_death` is called once.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "refengine/frame.h"
#include "refengine/model/generation.h"

namespace fo::refengine {

class Pipeline : public std::enable_shared_from_this<Pipeline> {
 public:
  /// Called for an event of a rank, with "rank" added.
  using OnEvent = std::function<void(const nlohmann::json& event)>;
  using OnDeath = std::function<void(const base::Error& why)>;

  /// Starts one process for each of `ranks`, by running this program again, and sends it its
  /// set-up. Call it on the main thread: the ranks get SIGKILL when the thread ends. Use create().
  static std::shared_ptr<Pipeline> create(const boost::asio::any_io_executor& executor,
                                          const std::vector<RankOptions>& ranks, OnEvent on_event,
                                          OnDeath on_death);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Waits until every rank has its weights and its KV cache.
  boost::asio::awaitable<void> wait_until_ready();
  /// Runs one step through all ranks.
  boost::asio::awaitable<StepResult> step(Generation::Step step);
  /// Read and write the keys and values of some positions; those of the first layer come first.
  boost::asio::awaitable<std::string> read_kv(KvRange range);
  boost::asio::awaitable<void> write_kv(KvRange range, std::string bytes);
  boost::asio::awaitable<void> sleep();
  boost::asio::awaitable<void> wake(WakeTags tags);

  /// Ends the ranks by closing their sockets; kills those that still run at `deadline`. All are
  /// reaped when it returns. Blocks.
  void stop(const base::Deadline& deadline);

 private:
  struct RankProcess;

  Pipeline(OnEvent on_event, OnDeath on_death);
  void start(const boost::asio::any_io_executor& executor, const RankOptions& options);
  static boost::asio::awaitable<void> read_frames(std::shared_ptr<Pipeline> self, std::size_t rank);
  boost::asio::awaitable<Frame> receive(std::size_t rank);
  boost::asio::awaitable<void> send(std::size_t rank, FrameKind kind, std::string payload);
  boost::asio::awaitable<void> send_all(FrameKind kind, std::string payload);
  void handle_event(std::size_t rank, const std::string& payload);
  void die(std::size_t rank, const base::Error& why);
  [[nodiscard]] base::Error describe_end(std::size_t rank) const;

  OnEvent on_event_;
  OnDeath on_death_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  bool over_ = false;
};

}  // namespace fo::refengine
