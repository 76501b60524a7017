#include "fleet/registry/joined_registry.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "fleet/registry/follow.h"
#include "loop/backoff.h"
#include "loop/both.h"
#include "os/log.h"

namespace fo::fleet {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;

constexpr std::string_view kWorkers = "instances/";
constexpr std::string_view kCards = "cards/";

bool is_worker(std::string_view key) { return key.starts_with(kWorkers); }

// Whether a key that begins with `kind` may begin with `prefix`.
bool may_begin(std::string_view kind, std::string_view prefix) {
  return kind.starts_with(prefix) || prefix.starts_with(kind);
}
bool may_be_in_workers(std::string_view prefix) {
  return may_begin(kWorkers, prefix) || may_begin(kCards, prefix);
}

// One watch of two registries that may both have a record.
class JoinedWatch {
 public:
  explicit JoinedWatch(std::function<void(const RegistryChange&)> on_change)
      : on_change_(std::move(on_change)) {}

  /// Returns the receiver for the changes of one of the registries.
  std::function<void(const RegistryChange&)> receiver(std::size_t from) {
    return [this, from](const RegistryChange& change) { receive(from, change); };
  }

 private:
  void receive(std::size_t from, const RegistryChange& change) {
    if (change.kind == RegistryChange::Kind::kListed) {
      if (++listed_ == present_.size()) on_change_(change);
      return;
    }
    const std::string& key = change.record.key;
    if (change.kind == RegistryChange::Kind::kPut) {
      present_.at(from).insert(key);
    } else {
      present_.at(from).erase(key);
      if (present_.at(1 - from).contains(key)) return;
    }
    on_change_(change);
  }

  const std::function<void(const RegistryChange&)> on_change_;
  std::array<std::set<std::string>, 2> present_;
  std::size_t listed_ = 0;
};

class JoinedRegistry final : public Registry {
 public:
  JoinedRegistry(std::string uri, std::unique_ptr<RecordReader> workers,
                 std::unique_ptr<Registry> state)
      : uri_(std::move(uri)), workers_(std::move(workers)), state_(std::move(state)) {}

  awaitable<std::unique_ptr<RegisteredRecord>> register_record(Record record,
                                                               Deadline deadline) override {
    refuse_worker(record.key);
    return state_->register_record(std::move(record), deadline);
  }
  awaitable<void> put(Record record, Deadline deadline) override {
    return state_->put(std::move(record), deadline);
  }
  awaitable<bool> edit(std::string key, Edit edit, Deadline deadline) override {
    refuse_worker(key);
    return state_->edit(std::move(key), std::move(edit), deadline);
  }
  awaitable<void> edit_or_create(std::string key, Edit edit, Deadline deadline) override {
    return state_->edit_or_create(std::move(key), std::move(edit), deadline);
  }
  awaitable<bool> remove(std::string key, Deadline deadline) override {
    refuse_worker(key);
    return state_->remove(std::move(key), deadline);
  }

  awaitable<std::vector<Record>> list(std::string prefix, Deadline deadline) override {
    std::vector<Record> records;
    if (may_be_in_workers(prefix)) records = co_await workers_->list(prefix, deadline);
    if (is_worker(prefix)) co_return records;
    try {
      std::vector<Record> others = co_await state_->list(prefix, deadline);
      std::erase_if(others, [](const Record& record) { return is_worker(record.key); });
      std::move(others.begin(), others.end(), std::back_inserter(records));
    } catch (const Error& error) {
      if (!may_be_in_workers(prefix) || !loop::is_transient(error)) throw;
      os::log(os::LogLevel::kWarning, "{}: its records are left out", error.what());
    }
    // If both registries have a card, that of the workers' registry counts.
    std::stable_sort(records.begin(), records.end(),
                     [](const Record& a, const Record& b) { return a.key < b.key; });
    const auto end = std::unique(records.begin(), records.end(),
                                 [](const Record& a, const Record& b) { return a.key == b.key; });
    records.erase(end, records.end());
    co_return records;
  }

  awaitable<void> watch(std::string prefix,
                        std::function<void(const RegistryChange&)> on_change) override {
    if (is_worker(prefix)) return workers_->watch(std::move(prefix), std::move(on_change));
    if (!may_be_in_workers(prefix)) return state_->watch(std::move(prefix), std::move(on_change));
    return watch_both(std::move(prefix), std::move(on_change));
  }

 private:
  void refuse_worker(const std::string& key) const {
    if (!is_worker(key)) return;
    throw Error(ExitStatus::kNotPermitted,
                "registry " + base::quoted(uri_) + ": its workers are read-only");
  }

  awaitable<void> watch_both(std::string prefix,
                             std::function<void(const RegistryChange&)> on_change) {
    JoinedWatch joined(std::move(on_change));
    const auto receive = joined.receiver(1);
    const std::function<void(const RegistryChange&)> receive_others =
        [&](const RegistryChange& change) {
          if (!is_worker(change.record.key)) receive(change);
        };
    awaitable<void> workers = workers_->watch(prefix, joined.receiver(0));
    // A failure of this registry must not end the watch of the workers.
    awaitable<void> others = follow(*state_, prefix, receive_others);
    co_await loop::run_both(std::move(workers), std::move(others));
  }

  const std::string uri_;
  const std::unique_ptr<RecordReader> workers_;
  const std::unique_ptr<Registry> state_;
};

}  // namespace

std::unique_ptr<Registry> make_joined_registry(std::string uri,
                                               std::unique_ptr<RecordReader> workers,
                                               std::unique_ptr<Registry> state) {
  return std::make_unique<JoinedRegistry>(std::move(uri), std::move(workers), std::move(state));
}

}  // namespace fo::fleet
