// A failover pair of real processes, for tests: memory servers of a simulated device folder, the
// loaded weights, the lock, and two fo-shadow processes, each with a fo-refengine or the stand-in
// for vLLM. Reports the state as seen from outside; expectations are left to the tests. Only one
// pair at a time, because the programs are configured by this process's environment. Processes are
// started from its first thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/strong.h"
#include "base/unique_fd.h"
#include "lock/lock_uri.h"
#include "os/process/process.h"
#include "support/ports.h"
#include "support/temp_dir.h"

namespace fo::test {

inline constexpr base::Duration kPairTimeout = std::chrono::seconds(30);

/// Memory of each device of a Pair, and of one rank's KV cache: two do not fit.
inline constexpr base::ByteCount kPairVram = 64 * base::kMiB;
inline constexpr base::ByteCount kPairKv = 32 * base::kMiB;

/// Polls until `is_true` returns true. Throws Error(kTryAgain) with `what` after `timeout`.
void wait_until(const std::string& what, const std::function<bool()>& is_true,
                base::Duration timeout = kPairTimeout);

/// Ends this process with a message that says what wait_until() waits for, unless it ends by
/// itself, or this is called again, within `time`; 0: no limit. Its children die with it.
void limit_run(std::chrono::seconds time);

/// Names and values.
using Settings = std::map<std::string, std::string>;

struct PairOptions {
  bool lockd = false;
  /// The engines are tests/support/stand_in_worker.cc as vLLM, with one rank and the KV cache in
  /// the GMS, too.
  bool vllm = false;
  /// Number of ranks of each engine, and of devices.
  int ranks = 2;
  /// One gms-serve for each device, instead of one for all.
  bool gms_per_device = false;
  /// Options of fo-shadow, in place of the short limits here.
  Settings shadow_options = {};
};

/// How one engine starts.
struct Start {
  Settings environment = {};
  Settings shadow_options = {};
  /// Empty: engine_command().
  std::vector<std::string> command = {};
};

/// The status that an engine reports.
struct EngineStatus {
  std::string state;
  /// 0 if the engine does not run.
  pid_t engine = 0;
  std::uint64_t generation = 0;
};

class Pair {
 public:
  explicit Pair(const PairOptions& options = {});
  /// Kills the remaining processes.
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // --- The parts of the pair. Starting a part again forgets the previous process. Throw Error if a
  // part cannot be started, or is not ready in time.

  void start_lockd();
  /// Returns when the server is ready.
  void start_gms(int device = 0);
  /// Publishes the weights if none are published.
  void load();
  /// Starts fo-shadow and its engine, on its way to standby.
  void start(int engine, const Start& how = {});
  [[nodiscard]] std::vector<std::string> engine_command(int engine) const;

  [[nodiscard]] const os::Child& lockd() const { return *lockd_; }
  [[nodiscard]] const os::Child& gms(int device = 0) const { return *gms_.at(device); }
  [[nodiscard]] const os::Child& shadow(int engine) const { return *shadows_.at(engine); }
  [[nodiscard]] bool runs(int engine) const { return shadows_.contains(engine); }
  /// Starts a program that allocates `size` of device 0.
  std::unique_ptr<os::Child> fill(base::ByteCount size) const;

  /// Waits for the end of a fo-shadow, forgets it, and returns its status. Throws after `timeout`.
  int await_end(int engine, base::Duration timeout = kPairTimeout);
  /// The same for a fo-shadow that may have ended.
  std::optional<int> ended(int engine);

  // --- Queries. They wait for nothing but an answer.

  /// nullopt if there is no answer.
  [[nodiscard]] std::optional<EngineStatus> status(int engine,
                                                   base::Duration limit = kPairTimeout) const;
  [[nodiscard]] std::string state(int engine) const;
  /// Queries the engine itself.
  [[nodiscard]] std::optional<bool> is_awake(int engine, base::Duration limit = kPairTimeout) const;
  /// Whether two of the stand-ins served at the same time, according to their records.
  [[nodiscard]] bool two_served() const;
  /// The engine that reports that it is active; nullopt if there is none.
  [[nodiscard]] std::optional<int> active() const;
  /// The tokens that the published address generates, as JSON; empty if it fails.
  [[nodiscard]] std::string tokens(base::Duration limit = kPairTimeout) const;
  /// The holder of the lock.
  [[nodiscard]] std::optional<std::string> holder() const;
  /// The free memory of a device.
  [[nodiscard]] base::ByteCount free_memory(int device) const;
  [[nodiscard]] std::vector<base::ByteCount> free_memory() const;
  /// Processes of this pair that are not descendants of the parts, with their commands.
  [[nodiscard]] std::vector<std::string> orphans() const;
  /// All running processes of this pair.
  [[nodiscard]] std::vector<pid_t> processes() const;
  static std::vector<pid_t> children_of(pid_t pid);
  /// The child of gms() that serves the weights of its first device; nullopt if there is none.
  [[nodiscard]] std::optional<pid_t> weights_server() const;
  /// The generations of grants, in the order in which the engines reported them.
  [[nodiscard]] std::vector<std::uint64_t> generations() const;

  /// Opens a connection to the published address, requests many tokens, and closes it.
  void cut_a_client() const;

  [[nodiscard]] std::string file(const std::string& name) const { return folder_.path(name); }
  [[nodiscard]] std::string model() const { return file("model"); }
  [[nodiscard]] const lock::LockUri& lock() const { return lock_; }
  [[nodiscard]] std::string gms_socket(int device) const;
  [[nodiscard]] std::string status_socket(int engine) const;
  [[nodiscard]] int devices() const { return options_.ranks; }
  [[nodiscard]] int port(int engine) const { return ports_.at(engine).number(); }

  /// The end of the programs' output on stderr.
  [[nodiscard]] std::string logs() const;

  /// Starts fo-shadow switchover.
  [[nodiscard]] std::unique_ptr<os::Child> switch_over() const;

  /// Ends all parts in order. Returns descriptions of what is wrong then: a status, memory, a
  /// process, a lock.
  std::vector<std::string> finish();

 private:
  [[nodiscard]] std::unique_ptr<os::Child> run(const std::vector<std::string>& argv,
                                               const Settings& environment = {},
                                               const std::string& log = "log") const;
  // Throws if the program does not end with status 0.
  void run_to_end(const std::vector<std::string>& argv) const;
  void end(std::unique_ptr<os::Child>& part, const std::string& name,
           std::vector<std::string>& wrong) const;

  PairOptions options_;
  test::TempDir folder_;
  test::TempDir sim_;
  lock::LockUri lock_;
  std::map<int, ReservedPort> ports_;
  ReservedPort published_;
  base::UniqueFd null_;
  base::UniqueFd events_;
  std::unique_ptr<os::Child> lockd_;
  std::map<int, std::unique_ptr<os::Child>> gms_;
  std::map<int, std::unique_ptr<os::Child>> shadows_;
  std::vector<base::ByteCount> free_before_;
};

}  // namespace fo::test
