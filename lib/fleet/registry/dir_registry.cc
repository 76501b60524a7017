#include "fleet/registry/dir_registry.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <list>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/unique_fd.h"
#include "fleet/record/instance.h"
#include "fleet/registry/dir_store.h"
#include "fleet/registry/dir_view.h"
#include "fleet/registry/key.h"
#include "fleet/registry/reports.h"
#include "loop/event.h"
#include "loop/pause.h"
#include "os/log.h"
#include "os/log_limit.h"

namespace fo::fleet {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;
using boost::asio::awaitable;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The interval in which a process checks its own record.
constexpr auto kMaintainInterval = std::chrono::seconds(1);
// The interval in which a watch checks that the folder was not replaced.
constexpr auto kCheckInterval = std::chrono::seconds(1);
// The interval of full comparisons, which notice changes that inotify did not report.
constexpr auto kComparisonInterval = std::chrono::seconds(5);
// The kernel reports the close of a lock's file before it releases the lock. So the lock is queried
// several times; each of these is the delay before one query.
constexpr std::array<milliseconds, 5> kQueryAfter{milliseconds(0), milliseconds(1), milliseconds(4),
                                                  milliseconds(16), milliseconds(64)};

awaitable<UniqueFd> lock_folder(DirStore& store, std::string key, Deadline deadline) {
  for (;;) {
    UniqueFd lock = store.try_lock_folder(key);
    if (lock) co_return lock;
    if (deadline.expired()) {
      throw Error(ExitStatus::kTryAgain, "registry " + base::quoted("dir:" + store.path()) +
                                             ": another process changes records");
    }
    co_await loop::pause_for(milliseconds(1));
  }
}

// Applies `edit` to a record, and returns its new text. A missing record is created if `creates`;
// otherwise the result is nullopt.
awaitable<std::optional<std::string>> edit_record(DirStore& store, std::string key, Edit edit,
                                                  Deadline deadline, bool creates = false) {
  const UniqueFd lock = co_await lock_folder(store, key, deadline);
  const std::optional<DirStore::Entry> entry = store.find(key);
  if (!entry && !creates) co_return std::nullopt;
  const std::string text = entry ? store.read(*entry, key) : std::string();
  Record record{key, edit(text)};
  if (record.text != text) {
    check(record, is_ephemeral(key));
    store.write(key, record.text);
  }
  co_return std::move(record.text);
}

class DirRecord final : public RegisteredRecord {
 public:
  DirRecord(std::shared_ptr<DirStore> store, Record record, UniqueFd record_lock)
      : store_(std::move(store)),
        record_(std::move(record)),
        record_lock_(std::move(record_lock)) {}

  awaitable<void> edit(Edit edit, Deadline deadline) override {
    std::optional<std::string> text = co_await edit_record(*store_, record_.key, edit, deadline);
    record_.text = text ? std::move(*text) : edit(record_.text);
  }

  awaitable<void> deregister(Deadline deadline) override {
    const Edit gone = [](const std::string& text) { return with_life(text, Life::kGone); };
    co_await edit(gone, deadline);
    record_lock_.reset();
  }

  awaitable<void> maintain() override {
    os::LogLimit log_limit;
    for (;;) {
      co_await loop::pause_for(kMaintainInterval);
      try {
        store_->reopen(true);
        const std::optional<DirStore::Entry> entry = store_->find(record_.key);
        const bool is_there = entry && store_->is_locked_by(record_lock_.get(), record_.key);
        if (is_there && entry->stamp != stamp_) {
          // Another process has changed the record. restore() writes this text, too, if the
          // registry is lost.
          record_.text = store_->read(*entry, record_.key);
          stamp_ = entry->stamp;
        }
        if (!is_there) {
          const Deadline deadline = Deadline::after(kMaintainInterval);
          co_await restore(deadline);
          os::log(os::LogLevel::kWarning, "registry {}: record {} was lost, and is written again",
                  base::quoted("dir:" + store_->path()), base::quoted(record_.key));
        }
      } catch (const Error& error) {
        log_limit.log(os::LogLevel::kWarning, error.what(), error.what());
      }
    }
  }

 private:
  awaitable<void> restore(Deadline deadline) {
    const UniqueFd lock = co_await lock_folder(*store_, record_.key, deadline);
    if (!store_->is_locked_by(record_lock_.get(), record_.key)) {
      UniqueFd record_lock = store_->try_lock_record(record_.key);
      if (!record_lock) {
        throw KeyInUse(record_.key);
      }
      record_lock_ = std::move(record_lock);
    }
    store_->write(record_.key, record_.text);
  }

  std::shared_ptr<DirStore> store_;
  Record record_;
  UniqueFd record_lock_;
  DirStore::Stamp stamp_;
};

// Reports changes of the folders of a registry as they happen.
class DirWatch {
 public:
  DirWatch(DirStore& store, std::string prefix,
           std::function<void(const RegistryChange&)> on_change)
      : store_(store),
        inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
        view_(store, std::move(prefix), std::move(on_change),
              [this](const std::string& folder) { add(folder); }) {
    if (!inotify_) warn(errno);
  }

  /// Reports the present records. Retries what may succeed later; throws kNotPermitted.
  awaitable<void> begin() {
    for (;;) {
      const std::optional<Error> failure = compare_all();
      if (!failure) co_return;
      if (failure->status() == ExitStatus::kNotPermitted) throw Error(*failure);
      co_await loop::pause_for(kCheckInterval);
    }
  }

  awaitable<void> run() {
    for (;;) {
      Clock::time_point at = std::min(next_comparison_, Clock::now() + kCheckInterval);
      if (!queries_.empty()) at = std::min(at, queries_.front().at);
      const Deadline until = Deadline::after(at - Clock::now());
      co_await loop::until_ready(inotify_.get(), POLLIN, until);
      read_events();
      query_locks();
      if (Clock::now() >= next_comparison_ || store_.is_replaced()) compare_all();
    }
  }

 private:
  // A record whose lock may have been released.
  struct Query {
    Clock::time_point at;
    std::string key;
    std::size_t step = 0;
  };

  void add(const std::string& folder) {
    constexpr std::uint32_t kEvents = IN_CREATE | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM |
                                      IN_MOVED_TO | IN_ONLYDIR | IN_EXCL_UNLINK;
    if (!inotify_) return;
    const std::string path = store_.watch_path(folder);
    const int watch = ::inotify_add_watch(inotify_.get(), path.c_str(), kEvents);
    if (watch >= 0) {
      folders_[watch] = folder;
    } else if (errno != ENOENT) {
      warn(errno);
    }
  }

  void warn(int err) {
    if (std::exchange(has_warned_, true)) return;
    os::log(os::LogLevel::kWarning, "registry {}: changes are noticed late, within {}: inotify: {}",
            base::quoted("dir:" + store_.path()), base::format_duration(kComparisonInterval),
            std::generic_category().message(err));
  }

  void read_events() {
    alignas(inotify_event) std::array<char, 16384> bytes;
    for (;;) {
      const ssize_t count = inotify_ ? ::read(inotify_.get(), bytes.data(), bytes.size()) : -1;
      if (count <= 0) return;
      for (std::size_t at = 0; at < static_cast<std::size_t>(count);) {
        inotify_event event{};
        std::memcpy(&event, bytes.data() + at, sizeof event);
        const std::string name = event.len > 0 ? bytes.data() + at + sizeof event : "";
        at += sizeof event + event.len;
        handle(event, name);
      }
    }
  }

  void handle(const inotify_event& event, const std::string& name) {
    if ((event.mask & IN_Q_OVERFLOW) != 0) next_comparison_ = Clock::now();
    const auto folder = folders_.find(event.wd);
    if (folder == folders_.end()) return;
    if ((event.mask & IN_IGNORED) != 0) {
      folders_.erase(folder);
      return;
    }
    const std::string begin = folder->second.empty() ? "" : folder->second + "/";
    if ((event.mask & IN_ISDIR) != 0) {
      next_comparison_ = Clock::now();
      return;
    }
    const std::string_view record = DirStore::record_of(name);
    if (!record.empty()) {
      if ((event.mask & IN_CLOSE_WRITE) != 0) query(begin + std::string(record), 0);
    } else if (!name.starts_with('.') && (event.mask & IN_CREATE) == 0) {
      view_.refresh(begin + name);
    }
  }

  void query(std::string key, std::size_t step) {
    const Query query{Clock::now() + kQueryAfter[step], std::move(key), step};
    const auto later = std::find_if(queries_.begin(), queries_.end(),
                                    [&](const Query& one) { return one.at > query.at; });
    queries_.insert(later, query);
  }

  void query_locks() {
    // If the registry's folder was replaced, a process writes its record into the new folder and
    // releases its lock in the old one, although it lives.
    if (!queries_.empty() && store_.is_replaced()) queries_.clear();
    while (!queries_.empty() && queries_.front().at <= Clock::now()) {
      const Query query = std::move(queries_.front());
      queries_.pop_front();
      const bool is_alive = view_.refresh(query.key);
      if (is_alive && query.step + 1 < kQueryAfter.size()) this->query(query.key, query.step + 1);
    }
  }

  // Compares the whole registry. While that fails, the workers are stale; the failure is logged
  // once, and returned.
  std::optional<Error> compare_all() {
    try {
      next_comparison_ = Clock::now() + kComparisonInterval;
      if (store_.is_replaced()) {
        store_.reopen(true);
        folders_.clear();
      }
      view_.compare_all();
      failure_.clear();
      return std::nullopt;
    } catch (const Error& error) {
      next_comparison_ = Clock::now() + kCheckInterval;
      view_.set_unreachable();
      if (std::exchange(failure_, error.what()) != error.what()) {
        os::log(os::LogLevel::kWarning, "{}", error.what());
      }
      return error;
    }
  }

  DirStore& store_;
  UniqueFd inotify_;
  // The folders by their watch.
  std::map<int, std::string> folders_;
  // Queries in the order of time.
  std::list<Query> queries_;
  Clock::time_point next_comparison_;
  bool has_warned_ = false;
  // The message of the last comparison's failure; empty after a success.
  std::string failure_;
  DirView view_;
};

class DirRegistry final : public Registry {
 public:
  explicit DirRegistry(std::string path) : path_(std::move(path)) {}

  awaitable<std::unique_ptr<RegisteredRecord>> register_record(Record record,
                                                               Deadline deadline) override {
    check(record, true);
    const std::shared_ptr<DirStore> store = open(true);
    const UniqueFd lock = co_await lock_folder(*store, record.key, deadline);
    UniqueFd record_lock = store->try_lock_record(record.key);
    if (!record_lock) {
      throw KeyInUse(record.key);
    }
    store->clean(record.key);
    store->write(record.key, record.text);
    co_return std::make_unique<DirRecord>(store, std::move(record), std::move(record_lock));
  }

  awaitable<void> put(Record record, Deadline deadline) override {
    check(record, false);
    const std::shared_ptr<DirStore> store = open(true);
    const UniqueFd lock = co_await lock_folder(*store, record.key, deadline);
    store->write(record.key, record.text);
  }

  awaitable<bool> edit(std::string key, Edit edit, Deadline deadline) override {
    const std::shared_ptr<DirStore> store = open(false);
    if (!is_key(key)) co_return false;
    const std::optional<DirStore::Entry> entry = store->find(key);
    if (!entry || !entry->is_alive) co_return false;
    const std::optional<std::string> text = co_await edit_record(*store, key, edit, deadline);
    co_return text.has_value();
  }

  awaitable<void> edit_or_create(std::string key, Edit edit, Deadline deadline) override {
    check_key(key, false);
    const std::shared_ptr<DirStore> store = open(true);
    co_await edit_record(*store, key, edit, deadline, true);
  }

  awaitable<bool> remove(std::string key, Deadline deadline) override {
    const std::shared_ptr<DirStore> store = open(false);
    if (!is_key(key)) co_return false;
    check_key(key, false);
    if (!store->find(key)) co_return false;
    const UniqueFd lock = co_await lock_folder(*store, key, deadline);
    co_return store->remove(key);
  }

  awaitable<std::vector<Record>> list(std::string prefix, Deadline) override {
    const std::shared_ptr<DirStore> store = open(false);
    const std::string registry = "dir:" + path_;
    std::vector<Record> records;
    const auto add = [&](const DirStore::RecordPath& record_path) {
      try {
        const std::optional<DirStore::Entry> entry = store->find(record_path);
        if (!entry || !entry->is_alive) return;
        Record record{std::string(record_path.key), store->read(*entry, record_path.key)};
        if (counts(record, registry) == true) records.push_back(std::move(record));
      } catch (const Error& error) {
        os::log(os::LogLevel::kWarning, "{}", error.what());
      }
    };
    store->walk(
        "", prefix, [](const std::string&) {}, add);
    std::sort(records.begin(), records.end(),
              [](const Record& a, const Record& b) { return a.key < b.key; });
    co_return records;
  }

  awaitable<void> watch(std::string prefix,
                        std::function<void(const RegistryChange&)> on_change) override {
    const std::shared_ptr<DirStore> store = open(true);
    DirWatch watch(*store, std::move(prefix), on_change);
    co_await watch.begin();
    on_change({RegistryChange::Kind::kListed});
    co_await watch.run();
  }

 private:
  std::shared_ptr<DirStore> open(bool create) {
    if (store_) {
      store_->reopen(create);
    } else {
      store_ = std::make_shared<DirStore>(path_, create);
    }
    return store_;
  }

  const std::string path_;
  std::shared_ptr<DirStore> store_;
};

}  // namespace

std::unique_ptr<Registry> make_dir_registry(std::string path) {
  return std::make_unique<DirRegistry>(std::move(path));
}

}  // namespace fo::fleet
