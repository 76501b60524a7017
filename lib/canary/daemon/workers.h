// The workers that a canary watches: who they are, what was found, and the verdicts that follow. No
// I/O; time and randomness are arguments.
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
  /// The whole set differs from the file in the same way: its mismatches say nothing until a worker
  /// answers as expected again.
  bool is_stale = false;
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
  std::string key;
  std::string url;
  std::string model;
  std::string card;
  fleet::Life life = fleet::Life::kStarting;
  std::string host;
  /// In the form of canonical_bus_id().
  std::vector<std::string> gpus;
  EngineAddress engine;
  /// nullptr if no file is for it.
  Canaries* canaries = nullptr;
  /// The reason why no file is for it; else empty.
  std::string unchecked = {};

  Schedule schedule;
  ProgressWatch progress;
  std::optional<EngineLoad> load = {};
  Baselines baselines = {};
  WorkerHealth health = {};
  /// Whether it refused the last connection. It is a member of its set all the same: if all of them
  /// are down, it may be this canary that is cut off.
  bool is_down = false;
  /// The last question that was answered was not answered as expected, or the worker failed at it.
  /// Only a check of the content that passes makes up for that.
  bool owes_answer = false;
  /// A question that ran the sampler was among those since the last check of the content that
  /// passed. The next check that passes runs the sampler, too.
  bool owes_sampler = false;
  /// Whether its next check of the content runs the sampler, too: with the probability `part`, or
  /// always if it owes such an answer. `random` is uniform in [0, 1).
  [[nodiscard]] bool runs_sampler(double part, double random) const;
  bool is_removed = false;
  /// When a whole check was slow, unless a later one passed.
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
};

class Workers {
 public:
  struct Events {
    std::function<void(const WorkerPtr&)> on_new;
    std::function<void(const WorkerPtr&)> on_removed;
    /// The verdict on the worker is to be written.
    std::function<void(const std::string& id)> on_verdict;
  };
  /// Throws kUsage if two files are for the same workers.
  Workers(WorkersOptions options, std::vector<CanaryFile> files, Events events);

  /// Applies a change of an instance or of a verdict. Throws nothing: an invalid record is logged,
  /// and changes nothing.
  void apply(const fleet::RegistryChange& change, const Now& at);

  /// All verdicts that were in the registry at the start have been applied. Until then none is to
  /// be written, because a conviction of an earlier run would be lost.
  void on_verdicts_listed() { are_verdicts_listed_ = true; }
  [[nodiscard]] bool are_verdicts_listed() const { return are_verdicts_listed_; }

  /// Adds the result of a check to the worker's list, its histogram and the counts.
  void note(Worker& worker, Step step, const Attempt& attempt, const Now& at);
  /// Applies the finding of a check to the worker, and writes its verdict if it has changed.
  void find(Worker& worker, Finding finding, Cause cause, const Now& at);
  /// Applies the conclusion of a question with its repetitions. After a pass the canaries are not
  /// stale.
  void find_answer(Worker& worker, const Conclusion& conclusion, const Now& at);
  /// Applies that a check without a question saw the worker give tokens. This is a pass unless the
  /// worker owes an answer, so that a worker that is never idle, or can't be asked, becomes healthy
  /// again.
  void find_tokens(Worker& worker, const Now& at);
  /// Time passes for the worker.
  void advance(Worker& worker, const Now& at);

  /// Returns up to `count` other workers of its set that can be asked, drawn at random. Workers
  /// that are convicted by this canary, or by at least half of all canaries, are left out, and of
  /// those with one URL all but one.
  [[nodiscard]] std::vector<WorkerPtr> jurors_of(const Worker& worker, std::size_t count,
                                                 const Now& at) const;
  void decided(Decision decision) { ++decisions_[decision]; }

  /// The record of the worker's verdict; nullopt if the worker is unknown.
  [[nodiscard]] std::optional<fleet::Record> verdict_of(const std::string& id, const Now& at) const;
  [[nodiscard]] bool is_convicted(const std::string& id) const;

  [[nodiscard]] const std::map<std::string, WorkerPtr>& all() const { return workers_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Canaries>>& files() const { return files_; }

  /// Returns the state that a restart keeps, without workers that are gone for too long.
  [[nodiscard]] SavedWorkers save(const Now& at);
  /// To be called before any worker is known.
  void load(SavedWorkers saved, const Now& at);

  using CheckCounts = std::map<std::pair<Step, Outcome>, std::uint64_t>;
  [[nodiscard]] const CheckCounts& check_counts() const { return counts_; }
  [[nodiscard]] std::uint64_t decisions(Decision decision) const;
  /// Workers that stay in because over half of their set is suspected.
  [[nodiscard]] std::size_t kept_in() const { return kept_in_; }

 private:
  /// Returns the file that is for a worker; nullptr, with the reason, if there is none.
  Canaries* canaries_for(const fleet::Instance& instance, std::string& reason) const;
  void put_instance(const fleet::Record& record, const Now& at);
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
  /// State of workers that are not known now: from the last run, and of convicted workers that are
  /// gone. Within the limits of forget_gone().
  SavedWorkers saved_;
  /// Verdicts of all canaries in the registry.
  fleet::Verdicts verdicts_;
  bool are_verdicts_listed_ = false;
  CheckCounts counts_;
  std::map<Decision, std::uint64_t> decisions_;
  std::size_t kept_in_ = 0;
};

}  // namespace fo::canary
