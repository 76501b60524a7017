// The workers that a canary watches: their records, the findings of checks, and the verdicts that
// follow. No I/O except for the log.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "canary/check/attempt.h"
#include "canary/check/engine_client.h"
#include "canary/check/progress.h"
#include "canary/check/schedule.h"
#include "canary/file/canary_file.h"
#include "canary/judge/repetitions.h"
#include "canary/judge/state_file.h"
#include "canary/judge/vote.h"
#include "canary/judge/worker_health.h"
#include "fleet/record/endpoint_id.h"
#include "fleet/record/instance.h"
#include "fleet/record/worker_url.h"
#include "fleet/registry/registry.h"
#include "fleet/verdict.h"
#include "metrics/numbers.h"
#include "net/tls_files.h"

namespace fo::canary {

/// A file of canaries in use.
struct Canaries {
  CanaryFile file;
  /// True if the whole set differs from the file in the same way. Its mismatches then prove
  /// nothing, until a worker answers as expected again.
  bool is_stale = false;
  /// How many times `is_stale` has changed.
  std::uint64_t stale_changes = 0;

  /// Returns whether this is a change.
  bool set_stale(bool value);
};

/// A check that was done.
struct CheckRecord {
  text::WallTime at;
  Step step;
  Attempt attempt;
};
inline constexpr std::size_t kKeptChecks = 20;

inline constexpr std::array<base::Duration, 10> kCheckBounds{
    std::chrono::milliseconds(5),    std::chrono::milliseconds(25),  std::chrono::milliseconds(100),
    std::chrono::milliseconds(250),  std::chrono::milliseconds(500), std::chrono::seconds(1),
    std::chrono::milliseconds(2500), std::chrono::seconds(5),        std::chrono::seconds(10),
    std::chrono::seconds(30)};

/// The last error of a link between GPUs of a worker's host.
struct LinkError {
  base::Duration at{};
  std::string text;
};

struct Worker {
  explicit Worker(const Schedule& its_schedule) : schedule(its_schedule) {}

  std::string id;
  struct Record {
    std::string text;
    bool is_stale = false;
  };
  /// Its records, by key. It has several if it is, for example, a pod behind two Services.
  std::map<std::string, Record> records = {};
  /// Since when all its records are stale; nullopt if one is not.
  std::optional<base::Duration> stale_since = {};
  /// Since when its address refuses connections; nullopt if it does not.
  std::optional<base::Duration> refused_since = {};
  std::string url;
  std::string model;
  std::string card;
  fleet::Life life = fleet::Life::kStarting;
  std::string host;
  /// In the form of canonical_bus_id().
  std::vector<std::string> gpus;
  EngineAddress engine;
  /// The file for this worker; nullptr if there is none.
  Canaries* canaries = nullptr;
  /// Why this worker has no file; empty if it has one.
  std::string unchecked = {};

  Schedule schedule;
  ProgressWatch progress;
  std::optional<EngineLoad> load = {};
  Baselines baselines = {};
  WorkerHealth health = {};
  /// True if the last connection to it failed. It remains a member of its set, because if all
  /// members are down, this canary may be cut off.
  bool is_down = false;
  /// True after a question that ended with a fault, a weak finding or a conviction. Only a check of
  /// the content that passes clears it.
  bool owes_answer = false;
  /// True if one of these questions ran the sampler. The next checks of the content then run the
  /// sampler, too.
  bool owes_sampler = false;
  /// Whether its next check of the content runs the sampler, too: with the probability `part`, or
  /// always if it owes an answer of the sampler. `random` is uniform in [0, 1). Needs canaries.
  [[nodiscard]] bool runs_sampler(double part, double random) const;
  bool is_removed = false;
  /// The time when a whole check was slow; nullopt if a later one passed.
  std::optional<base::Duration> slow_at = {};
  std::optional<LinkError> link_error = {};
  std::deque<CheckRecord> checks = {};
  std::array<metrics::Histogram<kCheckBounds>, kSteps.size()> durations = {};
  metrics::Counter mismatches;
  metrics::Counter convictions;
  /// Weight without regard to its set, at its last change; 0 to 1.
  double own_weight = 1;
  /// Weight with regard to its set.
  double weight = 1;

  [[nodiscard]] bool is_checked() const {
    return life != fleet::Life::kStarting && life != fleet::Life::kGone;
  }
};
using WorkerPtr = std::shared_ptr<Worker>;

struct WorkersOptions {
  /// The name under which verdicts are written.
  std::string writer;
  /// Empty: all.
  std::vector<fleet::NamespacePattern> namespaces = {};
  fleet::AllowedWorkers allowed{fleet::kDefaultWorkers};
  std::optional<net::TlsFiles> tls = {};
  http::Fields headers = {};
  Intervals intervals = {};
  /// Time until a verdict expires.
  base::Duration lifetime = std::chrono::seconds(90);
  /// How long a stale worker may refuse connections before it has ended: the standby of its pair
  /// may take over.
  base::Duration takeover = std::chrono::seconds(10);
  /// How long a stale worker is checked at most.
  base::Duration stale = std::chrono::hours(1);
};

class Workers {
 public:
  struct Events {
    std::function<void(const WorkerPtr&)> on_new;
    std::function<void(const WorkerPtr&)> on_removed;
    /// The verdict on the worker must be written.
    std::function<void(const std::string& id)> on_verdict;
  };
  /// Throws kUsage if two files are for the same workers.
  Workers(WorkersOptions options, std::vector<CanaryFile> files, Events events);

  /// Applies a change of an instance or of a verdict. Throws nothing: an invalid record is logged,
  /// and changes nothing.
  void apply(const fleet::RegistryChange& change, const Now& at);

  /// To be called when all verdicts that were in the registry at the start have been applied. No
  /// verdict may be written before, because a conviction of an earlier run would be lost.
  void on_verdicts_listed() { are_verdicts_listed_ = true; }
  [[nodiscard]] bool are_verdicts_listed() const { return are_verdicts_listed_; }

  /// Adds the result of a check to the worker's list, its histogram and the counts.
  void note(Worker& worker, Step step, const Attempt& attempt, const Now& at);
  /// Applies the finding of a check to the worker, and reports its verdict with on_verdict if that
  /// has changed.
  void find(Worker& worker, Finding finding, Cause cause, const Now& at);
  /// Applies the conclusion of a question with its repetitions. A pass ends the stale state of the
  /// canaries.
  void find_answer(Worker& worker, const Conclusion& conclusion, const Now& at);
  /// Applies that a check without a question saw the worker produce tokens. This is a pass unless
  /// the worker owes an answer. Because of it, a worker that is never idle, or can't be asked, can
  /// become healthy again.
  void find_tokens(Worker& worker, const Now& at);
  /// Applies the time that has passed to the worker's health.
  void advance(Worker& worker, const Now& at);
  /// Removes the worker if it is stale and has ended, or has been stale for too long. A registry
  /// may never report more of a worker that crashed.
  void remove_ended(const Worker& worker, const Now& at);

  /// Returns up to `count` other workers of its set that can be asked, drawn at random. Workers
  /// that are convicted by this canary, or by at least half of all canaries, are left out. Of
  /// several workers with one URL at most one is drawn, and none with the URL of `worker`.
  [[nodiscard]] std::vector<WorkerPtr> jurors_of(const Worker& worker, std::size_t count,
                                                 const Now& at) const;
  void decided(Decision decision) { ++decisions_[decision]; }

  /// The record of the worker's verdict; nullopt if the worker is unknown.
  [[nodiscard]] std::optional<fleet::Record> verdict_of(const std::string& id, const Now& at) const;
  [[nodiscard]] bool is_convicted(const std::string& id) const;

  [[nodiscard]] const std::map<std::string, WorkerPtr>& all() const { return workers_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Canaries>>& files() const { return files_; }

  /// Returns the state to keep over a restart, without workers that have been gone for too long.
  [[nodiscard]] SavedWorkers save(const Now& at);
  /// To be called before any worker is known.
  void load(SavedWorkers saved, const Now& at);

  using CheckCounts = std::map<std::pair<Step, Outcome>, std::uint64_t>;
  [[nodiscard]] const CheckCounts& check_counts() const { return counts_; }
  [[nodiscard]] std::uint64_t decisions(Decision decision) const;
  /// The number of workers that stay in because over half of their set is suspected.
  [[nodiscard]] std::size_t kept_in() const { return kept_in_; }

 private:
  /// Returns the file for a worker; nullptr, with the reason, if there is none.
  Canaries* canaries_for(const fleet::Instance& instance, std::string& reason) const;
  void put_instance(const fleet::Record& record, const Now& at);
  /// Ends a record of a worker. Another one that it has counts from now on; without one, the worker
  /// is removed.
  void end_instance(const std::string& key, const Now& at);
  void set_stale(const std::string& key, const Now& at);
  void remove(const std::string& id);
  void remember(const std::string& id, SavedWorker saved, const Now& at);
  void put_verdict(const fleet::Record& record, const Now& at);
  void weigh_sets(const Now& at);
  template <typename Change>
  void change(Worker& worker, const Now& at, const Change& change);

  WorkersOptions options_;
  std::vector<std::unique_ptr<Canaries>> files_;
  Events events_;
  std::map<std::string, WorkerPtr> workers_;
  /// The state of workers that are not registered: those of the last run, and convicted ones that
  /// are gone. forget_gone() limits it.
  SavedWorkers saved_;
  /// Verdicts of all canaries in the registry.
  fleet::Verdicts verdicts_;
  bool are_verdicts_listed_ = false;
  CheckCounts counts_;
  std::map<Decision, std::uint64_t> decisions_;
  std::size_t kept_in_ = 0;
};

}  // namespace fo::canary
