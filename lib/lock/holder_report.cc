#include "lock/holder_report.h"

#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.h"
#include "lock/lock_status.h"
#include "os/log.h"
#include "os/process/thread.h"

namespace fo::lock {

base::Duration holder_query_timeout(const LockUri& lock) {
  return is_local(lock) ? kHolderQueryTimeout : std::chrono::seconds(1);
}

class HolderReport::State {
 public:
  State(std::vector<LockUri> locks, std::string id)
      : locks_(std::move(locks)), id_(std::move(id)), last_(locks_.size()) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (thread_.joinable()) thread_.join();
  }

  void start() noexcept {
    if (is_running_.exchange(true)) return;
    if (thread_.joinable()) thread_.join();
    try {
      thread_ = os::start_signal_masked_thread([this] {
        for (std::size_t i = 0; i < locks_.size(); ++i) report(locks_[i], last_[i]);
        is_running_ = false;
      });
    } catch (const std::exception& error) {
      os::log(os::LogLevel::kInfo, "waiting for lock {}: {}", base::quoted(names_of(locks_)),
              error.what());
      is_running_ = false;
    }
  }

 private:
  static void log_holder(const LockUri& lock, std::string text, std::string& last) {
    if (text == last) return;
    os::log(os::LogLevel::kWarning, "waiting for lock {}: {}", base::quoted(lock.path), text);
    last = std::move(text);
  }

  void report(const LockUri& lock, std::string& last) const noexcept {
    try {
      const LockStatus status = read_lock_status(lock, holder_query_timeout(lock));
      if (!status.held || (locks_.size() > 1 && status.holder == id_)) return;
      log_holder(lock, describe_holders(status), last);
    } catch (const base::Error& error) {
      // kBadData is logged as a warning: the wait does not end until an administrator repairs it.
      const bool is_bad = error.status() == base::ExitStatus::kBadData;
      if (is_bad) return log_holder(lock, error.what(), last);
      os::log(os::LogLevel::kInfo, "waiting for lock {}: {}", base::quoted(lock.path),
              error.what());
    } catch (const std::exception& error) {
      os::log(os::LogLevel::kInfo, "waiting for lock {}: {}", base::quoted(lock.path),
              error.what());
    }
  }

  const std::vector<LockUri> locks_;
  const std::string id_;
  // The last logged text, by lock.
  std::vector<std::string> last_;
  std::atomic<bool> is_running_ = false;
  std::thread thread_;
};

HolderReport::HolderReport(std::vector<LockUri> locks, std::string id)
    : state_(std::make_shared<State>(std::move(locks), std::move(id))) {}

void HolderReport::operator()() noexcept { state_->start(); }

}  // namespace fo::lock
