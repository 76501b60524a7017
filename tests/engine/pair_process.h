// A failover pair of real processes, for tests: memory servers of a simulated device folder, the
// weights loaded, the lock, and two fo-shadow processes with a fo-refengine each, or the stand-in
// for vLLM. Says what is seen of it from outside; what should be seen is the test's business. One
// at a time: the settings of its programs are this process's environment. Processes are started
// from its first thread.
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
#include "os/process.h"
#include "support/ports.h"

namespace fo::test {

inline constexpr base::Duration kPatience = std::chrono::seconds(30);

/// Of a device of a Pair, and of one rank's KV cache: two do not fit.
inline constexpr base::ByteCount kPairVram = 64 * base::kMiB;
inline constexpr base::ByteCount kPairKv = 32 * base::kMiB;

/// Polls until `is_true` says yes. Throws Error(kTryAgain) with `what` when that takes too long.
void wait_until(const std::string& what, const std::function<bool()>& is_true,
                base::Duration patience = kPatience);

/// Ends this process with a message that says what wait_until() waits for, unless it ends by
/// itself, or this is called again, within `time`; 0: no limit. What it started dies with it.
void limit_run(std::chrono::seconds time);

/// Names and values.
using Settings = std::map<std::string, std::string>;

struct PairOptions {
  bool lockd = false;
  /// The engines are tests/support/stand_in_worker.cc as vLLM, whose KV cache is in the GMS, too.
  /// It has one rank.
  bool vllm = false;
  /// Of each engine, and as many devices.
  int ranks = 2;
  /// A gms-serve for each device, instead of one for all.
  bool gms_per_device = false;
  /// Of fo-shadow, in place of the short limits that it has here.
  Settings shadow_options = {};
};

/// How one engine starts.
struct Start {
  Settings environment = {};
  Settings shadow_options = {};
  /// Empty: engine_command().
  std::vector<std::string> command = {};
};

/// What an engine tells of itself.
struct EngineStatus {
  std::string state;
  /// 0 when it does not run.
  pid_t engine = 0;
  std::uint64_t generation = 0;
};

class Pair {
 public:
  explicit Pair(const PairOptions& options = {});
  /// Kills what is left.
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // --- What it consists of. A part that was started before is forgotten. Throw Error when a part
  // can't be started, or is not ready in time.

  void start_lockd();
  /// Ready when this returns.
  void start_gms(int device = 0);
  /// Publishes the weights where none are published.
  void load();
  /// fo-shadow and its engine, on its way to standby.
  void start(int engine, const Start& how = {});
  [[nodiscard]] std::vector<std::string> engine_command(int engine) const;

  [[nodiscard]] const os::Child& lockd() const { return *lockd_; }
  [[nodiscard]] const os::Child& gms(int device = 0) const { return *gms_.at(device); }
  [[nodiscard]] const os::Child& shadow(int engine) const { return *shadows_.at(engine); }
  [[nodiscard]] bool runs(int engine) const { return shadows_.contains(engine); }
  /// Starts a program that keeps so much of device 0.
  std::unique_ptr<os::Child> fill(base::ByteCount size) const;

  /// The status of a fo-shadow that has to end within `patience`. It is forgotten then.
  int await_end(int engine, base::Duration patience = kPatience);
  /// The same for one that may have ended.
  std::optional<int> ended(int engine);

  // --- What is seen. No wait in it but for an answer.

  /// nullopt: no answer.
  [[nodiscard]] std::optional<EngineStatus> status(int engine,
                                                   base::Duration limit = kPatience) const;
  [[nodiscard]] std::string state(int engine) const;
  /// Of the engine itself.
  [[nodiscard]] std::optional<bool> is_awake(int engine, base::Duration limit = kPatience) const;
  /// Whether two of the stand-in's engines served at one moment, by what they tell.
  [[nodiscard]] bool two_served() const;
  /// Whichever says that it is active; nullopt where none does.
  [[nodiscard]] std::optional<int> active() const;
  /// What the published address generates, as JSON; empty when nothing does.
  [[nodiscard]] std::string tokens(base::Duration limit = kPatience) const;
  /// Who has the lock.
  [[nodiscard]] std::optional<std::string> holder() const;
  /// What a device has free.
  [[nodiscard]] base::ByteCount free_memory(int device) const;
  [[nodiscard]] std::vector<base::ByteCount> free_memory() const;
  /// Processes of this pair whose ancestors are none of those above, with their commands.
  [[nodiscard]] std::vector<std::string> orphans() const;
  /// All of its processes that run.
  [[nodiscard]] std::vector<pid_t> processes() const;
  static std::vector<pid_t> children_of(pid_t pid);
  /// The child of gms() that serves the weights of its first device; nullopt: none does.
  [[nodiscard]] std::optional<pid_t> weights_server() const;
  /// The generations granted, in the order in which the engines told.
  [[nodiscard]] std::vector<std::uint64_t> generations() const;

  /// Opens a connection to the published address, asks for many tokens, and closes it.
  void cut_a_client() const;

  [[nodiscard]] std::string file(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::string model() const { return file("model"); }
  [[nodiscard]] const lock::LockUri& lock() const { return lock_; }
  [[nodiscard]] std::string gms_socket(int device) const;
  [[nodiscard]] std::string status_socket(int engine) const;
  [[nodiscard]] int devices() const { return options_.ranks; }
  [[nodiscard]] int port(int engine) const { return ports_.at(engine).number(); }

  /// What its programs said on stderr, the last of it.
  [[nodiscard]] std::string logs() const;

  /// Starts fo-shadow switchover.
  [[nodiscard]] std::unique_ptr<os::Child> switch_over() const;

  /// Ends all in order. Returns what is wrong then, in words: a status, memory, a process, a lock.
  std::vector<std::string> finish();

 private:
  [[nodiscard]] std::unique_ptr<os::Child> run(const std::vector<std::string>& argv,
                                               const Settings& environment = {},
                                               const std::string& log = "log") const;
  // Throws when it does not end with 0.
  void run_to_end(const std::vector<std::string>& argv) const;
  void end(std::unique_ptr<os::Child>& part, const std::string& name,
           std::vector<std::string>& wrong) const;

  PairOptions options_;
  std::string folder_;
  std::string sim_;
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
