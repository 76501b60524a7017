// The choice of a worker of a set for a request: which workers have room, which of them has a part
// of the prompt in its cache, and which has the least to do. Pure: randomness comes from a seed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fo::route {

enum class Policy {
  kRoundRobin,  // one after the other; a lower weight is passed over now and then
  kLeast,       // the least tokens in relation to the weight; with many workers, of two random ones
  kPrefix,      // the worker that last had the longest known beginning of the prompt, else kLeast
};

/// The caller's number of a worker, which must not be used again for another worker.
using WorkerNumber = std::uint64_t;

struct ChoiceSettings {
  /// Known beginnings of prompts, for kPrefix.
  std::uint64_t known_prefixes = 100'000;
  /// A worker whose cache has a part of the prompt gets the request if its load is at most this
  /// multiple of the mean. The mean includes the request itself, as in consistent hashing with
  /// bounded loads (V. Mirrokni and others, SODA 2018); otherwise the first request of a worker
  /// would overload it.
  double max_load = 1.25;
  /// With more workers than this, the less loaded of two is nearly as good as the least loaded.
  std::uint64_t few_workers = 16;
};

struct Room {
  /// Requests at a time.
  std::uint64_t slots = 256;
  /// Tokens that fit into the KV cache; nullopt if unknown.
  std::optional<std::uint64_t> kv_tokens = {};
  /// The worker's part of requests; with 0 it gets none.
  double weight = 1;

  bool operator==(const Room&) const = default;
};

/// Hashes of the first 256 B, 1, 4, 16 and 64 KiB of a prompt, as far as it is that long. Those of
/// different processes must not be compared.
std::vector<std::uint64_t> prefix_hashes(std::string_view prompt);

struct Candidate {
  /// Tokens of the prompt and of the expected answer.
  std::uint64_t tokens = 0;
  std::span<const std::uint64_t> prefixes = {};
  /// Workers that must not get the request.
  std::span<const WorkerNumber> excluded = {};
};

class Choice {
 public:
  Choice(Policy policy, std::uint64_t seed, const ChoiceSettings& settings = {});

  /// Sets the policy and the settings of the next choices.
  void set_policy(Policy policy, const ChoiceSettings& settings);

  /// Adds a worker, or changes its room. The requests that run on it stay counted, also while it is
  /// removed.
  void set_worker(WorkerNumber worker, const Room& room);
  void remove_worker(WorkerNumber worker);

  /// Whether a request of so many tokens is larger than the cache of each worker.
  [[nodiscard]] bool is_oversized(std::uint64_t tokens) const {
    return largest_cache_ && tokens > *largest_cache_;
  }
  /// Whether a worker has room for a request of so many tokens.
  [[nodiscard]] bool has_room(std::uint64_t tokens) const;
  /// Returns a worker with room for the request: with a free slot, and as many free tokens as the
  /// request needs. For a request that is larger than every cache, it is a worker without requests.
  /// nullopt if there is none.
  std::optional<WorkerNumber> choose(const Candidate& request);

  /// Counts a request that begins on the worker, whose cache will have the request's prefixes.
  void begin(WorkerNumber worker, const Candidate& request);
  /// Removes a request that has ended. `tokens` is its number of tokens after the last resize().
  void end(WorkerNumber worker, std::uint64_t tokens);
  /// A request on the worker has `after` tokens instead of `before`.
  void resize(WorkerNumber worker, std::uint64_t before, std::uint64_t after);

  [[nodiscard]] std::size_t workers() const { return workers_.size(); }
  /// 0 for a worker that is not known.
  [[nodiscard]] std::uint64_t requests_on(WorkerNumber worker) const;

 private:
  struct Worker {
    WorkerNumber number;
    Room room = {};
    std::uint64_t requests = 0;
    std::uint64_t tokens = 0;

    /// Returns the load with `more` tokens than are in flight.
    [[nodiscard]] double load(std::uint64_t more = 0) const {
      return static_cast<double>(tokens + more) / room.weight;
    }
    [[nodiscard]] bool has_slot() const { return room.weight > 0 && requests < room.slots; }
  };

  // The worker that last had a prompt with each prefix. Prefixes that were not used for longest are
  // forgotten.
  class Prefixes {
   public:
    [[nodiscard]] std::optional<WorkerNumber> find(std::uint64_t hash) const;
    /// Keeps at most `max` of them.
    void set(std::uint64_t hash, WorkerNumber worker, std::uint64_t max);

   private:
    using Uses = std::list<std::pair<std::uint64_t, WorkerNumber>>;
    Uses uses_;
    std::unordered_map<std::uint64_t, Uses::iterator> by_hash_;
  };

  [[nodiscard]] bool has_room(const Worker& worker, const Candidate& request) const;
  [[nodiscard]] const Worker* find_cached(const Candidate& request) const;
  [[nodiscard]] const Worker* find_least(const Candidate& request);
  [[nodiscard]] const Worker* find_next(const Candidate& request);
  void update_totals();

  Policy policy_;
  ChoiceSettings settings_;
  std::minstd_rand random_;
  std::vector<Worker> workers_;
  std::unordered_map<WorkerNumber, std::size_t> places_;
  /// Workers that were removed while requests ran on them. They are kept until these have ended,
  /// because they may be added again.
  std::unordered_map<WorkerNumber, Worker> left_;
  Prefixes prefixes_;
  /// For round robin: the place after that of the last choice.
  std::size_t next_ = 0;
  /// Over the workers with a weight: the sum of the weights and tokens, and the largest cache.
  double weights_ = 0;
  std::uint64_t tokens_ = 0;
  std::optional<std::uint64_t> largest_cache_;
  /// The number of workers with a free slot. In a busy set there is mostly none, and then choose()
  /// looks at no worker.
  std::size_t with_slot_ = 0;
};

/// The 95th percentile of the answers' lengths in tokens, from a histogram in which each class is a
/// fifth wider than the one before; older answers count less.
class AnswerLengths {
 public:
  void add(std::uint64_t tokens);
  /// `first` until there have been enough answers.
  [[nodiscard]] std::uint64_t p95(std::uint64_t first = kFirst) const;
  static constexpr std::uint64_t kFirst = 1024;

 private:
  std::array<std::uint64_t, 96> counts_{};
  std::uint64_t answers_ = 0;
};

}  // namespace fo::route
