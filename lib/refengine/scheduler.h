// Schedules the model: requests one after another in order of arrival, with sleep and wake between
// them. Independent of HTTP and processes: its actions are callbacks.
//
//             sleep(abort | wait | keep)                 done
//   kAwake ------------------------------> kFallingAsleep ----> kAsleep
//     ^                                                            |
//     +------------------- wake, until every tag is awake ---------+
//
// Runs on one loop's thread. Waiting coroutines keep it alive.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loop/event.h"
#include "refengine/frame.h"
#include "refengine/kv/kv_snapshot.h"
#include "refengine/model/generation.h"

namespace fo::refengine {

/// The treatment of requests in flight when the engine goes to sleep: they are aborted, finished
/// first, or continued after the wake, with a recomputed KV cache.
enum class SleepMode { kAbort, kWait, kKeep };

class Scheduler : public std::enable_shared_from_this<Scheduler> {
 public:
  enum class Phase { kAwake, kFallingAsleep, kAsleep };
  enum class Outcome { kToken, kFinished, kAborted };
  enum class Admission { kAdmitted, kNotAwake, kBusy };

  /// Maximum number of requests; more are refused.
  static constexpr std::size_t kMaxRequests = 256;

  struct Model {
    std::function<boost::asio::awaitable<StepResult>(Generation::Step)> step;
    std::function<boost::asio::awaitable<std::string>(KvRange)> read_kv;
    std::function<boost::asio::awaitable<void>(KvRange, std::string)> write_kv;
    std::function<boost::asio::awaitable<void>()> sleep;
    std::function<boost::asio::awaitable<void>(WakeTags)> wake;
  };

  Scheduler(const boost::asio::any_io_executor& executor, Model model, bool asleep = false)
      : model_(std::move(model)),
        changed_(executor),
        phase_(asleep ? Phase::kAsleep : Phase::kAwake),
        asleep_{asleep, asleep} {}

  /// Current and past load.
  struct Load {
    std::size_t running = 0;
    std::size_t waiting = 0;
    /// The prompt tokens of requests that have produced their first token.
    std::uint64_t prompt_tokens = 0;
    std::uint64_t generated_tokens = 0;
  };
  [[nodiscard]] Load load() const;

  /// Whether a Turn can be taken now.
  [[nodiscard]] Admission admission() const;
  /// True from the end of a sleep until the last tag is awake.
  [[nodiscard]] bool is_sleeping() const { return asleep_.any(); }

  /// One request's place in the queue, from its admission to its end.
  class Turn {
   public:
    /// With a snapshot, its tokens are the beginning of the prompt, and are not processed.
    explicit Turn(std::shared_ptr<Scheduler> scheduler,
                  std::shared_ptr<const KvSnapshot> snapshot = nullptr);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    friend class Scheduler;
    std::shared_ptr<Scheduler> scheduler_;
    std::list<Turn*>::iterator place_;
    std::uint64_t kv_epoch_;
    std::shared_ptr<const KvSnapshot> snapshot_;
    bool aborted_ = false;
  };

  /// Waits for its turn and runs the model until there is one more token.
  boost::asio::awaitable<Outcome> advance(Turn& turn, Generation& generation);

  /// Whether the KV cache is that of this turn's request.
  [[nodiscard]] bool has_kv(const Turn& turn) const;
  /// Reads ranges of the KV cache between two steps of the model. `find` is called then, and
  /// returns the turn whose cache is read, or nullptr. nullopt without a turn, or if the cache is
  /// not that of the turn's request.
  boost::asio::awaitable<std::optional<std::vector<std::string>>> read_kv(
      std::function<const Turn*()> find, std::vector<KvRange> ranges);

  /// Returns when weights and KV cache are released; at once if they are already.
  boost::asio::awaitable<void> sleep(SleepMode mode);
  /// Returns when the resources are restored. Tags that are awake already are unchanged.
  boost::asio::awaitable<void> wake(WakeTags tags);

 private:
  class AdminPlace;
  [[nodiscard]] bool runs() const;
  [[nodiscard]] bool may_run(const Turn& turn) const;
  void accept(Generation& generation, StepResult result);
  boost::asio::awaitable<void> restore(const KvSnapshot& snapshot);

  Model model_;
  loop::Event changed_;
  std::list<Turn*> queue_;
  Phase phase_;
  SleepMode mode_ = SleepMode::kAbort;
  WakeTags asleep_;
  /// Incremented when the KV cache is lost.
  std::uint64_t kv_epoch_ = 0;
  std::uint64_t prompt_tokens_ = 0;
  std::uint64_t generated_tokens_ = 0;
  // True while the model runs a step, or its KV cache is read or written.
  bool stepping_ = false;
  // The number of coroutines that wait to read the KV cache; they precede the next step.
  std::size_t readers_ = 0;
  bool administered_ = false;
};

}  // namespace fo::refengine
