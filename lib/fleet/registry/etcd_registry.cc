#include "fleet/registry/etcd_registry.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "fleet/registry/key.h"
#include "fleet/registry/reports.h"
#include "loop/backoff.h"
#include "loop/pause.h"
#include "os/file/random.h"
#include "os/log.h"
#include "os/log_limit.h"

namespace fo::fleet {
namespace {

using base::Deadline;
using base::Duration;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;
using Target = etcd::Compare::Target;

constexpr Duration kFirstPause = std::chrono::milliseconds(50);
constexpr Duration kMaxPause = std::chrono::seconds(1);
// The timeout of the requests of a watch.
constexpr Duration kListTimeout = std::chrono::seconds(10);
// The time of one connection of a watch. A dead connection may not report an error.
constexpr Duration kWatchTime = std::chrono::seconds(30);

// The cluster, and where the registry is in it.
struct Cluster {
  explicit Cluster(EtcdRegistryConfig from) : config(std::move(from)), client(config.etcd) {}

  [[nodiscard]] std::string path(const std::string& key) const { return config.prefix + "/" + key; }
  /// The key of a record, from its path.
  [[nodiscard]] std::string key_of(const std::string& path) const {
    return path.substr(config.prefix.size() + 1);
  }
  /// nullopt if the key does not exist.
  awaitable<std::optional<etcd::KeyValue>> get(std::string key, Deadline deadline) {
    const etcd::Range range{{path(key)}};
    etcd::Found found = co_await client.range(range, deadline);
    if (found.keys.empty()) co_return std::nullopt;
    co_return std::move(found.keys.front());
  }

  EtcdRegistryConfig config;
  etcd::Client client;
};
using ClusterPtr = std::shared_ptr<Cluster>;

// Applies `edit` to a record, and returns its new text. A missing record is created if `creates`;
// otherwise the result is nullopt.
awaitable<std::optional<std::string>> edit_record(Cluster& cluster, std::string key, Edit edit,
                                                  Deadline deadline, bool creates = false) {
  for (;;) {
    const std::optional<etcd::KeyValue> got = co_await cluster.get(key, deadline);
    if (!got && !creates) co_return std::nullopt;
    // A key that does not exist was last changed at revision 0.
    const etcd::KeyValue found =
        got.value_or(etcd::KeyValue{.key = cluster.path(key), .value = {}});
    Record record{key, edit(found.value)};
    if (record.text == found.value) co_return std::move(record.text);
    check(record, is_ephemeral(key));
    etcd::Transaction change;
    change.compares.push_back(
        {{found.key}, Target::kModified, etcd::Compare::Relation::kEqual, found.modified});
    change.then.emplace_back(etcd::Put{found.key, record.text, found.lease});
    const etcd::Outcome outcome = co_await cluster.client.commit(change, deadline);
    if (outcome.succeeded) co_return std::move(record.text);
  }
}

// True if a key was written with this lease by a transaction whose other branch reads the key. If
// the answer is late, the client repeats the transaction, which then finds what it wrote before.
bool has_written(const etcd::Outcome& outcome, etcd::LeaseId lease) {
  if (outcome.succeeded) return true;
  const std::vector<etcd::KeyValue>& found = etcd::keys_in(outcome, 0);
  return !found.empty() && found.front().lease == lease;
}

class EtcdRecord final : public RegisteredRecord {
 public:
  EtcdRecord(ClusterPtr cluster, Record record)
      : cluster_(std::move(cluster)), record_(std::move(record)) {}

  // Writes the record with a lease. False if another process keeps the key.
  awaitable<bool> write(Deadline deadline) {
    const etcd::LeaseId before = lease_;
    lease_ = std::max<etcd::LeaseId>(os::random_bits() >> 1, 1);
    std::optional<Duration> ttl =
        co_await cluster_->client.grant_lease(lease_, cluster_->config.ttl, deadline);
    // If the first answer was late, the client has requested the lease again.
    if (!ttl) ttl = co_await cluster_->client.keep_alive(lease_, deadline);
    if (!ttl) throw Error(ExitStatus::kTryAgain, "etcd: the lease's id is in use");
    const std::string path = cluster_->path(record_.key);
    etcd::Transaction change;
    change.compares.push_back({{path}, Target::kCreated});
    const etcd::Operation put = etcd::Put{path, record_.text, lease_};
    change.then.push_back(put);
    const etcd::Operation read = etcd::Range{{path}};
    change.otherwise.push_back(read);
    etcd::Outcome outcome = co_await cluster_->client.commit(change, deadline);
    bool is_written = has_written(outcome, lease_);
    if (!is_written && before != 0) {
      // If the key has the record that this object wrote with its last lease, that is replaced.
      change.compares = {{{path}, Target::kLease, etcd::Compare::Relation::kEqual, before}};
      outcome = co_await cluster_->client.commit(change, deadline);
      is_written = has_written(outcome, lease_);
    }
    if (!is_written) co_await cluster_->client.revoke_lease(lease_, deadline);
    co_return is_written;
  }

  awaitable<void> edit(Edit edit, Deadline deadline) override {
    std::optional<std::string> text = co_await edit_record(*cluster_, record_.key, edit, deadline);
    record_.text = text ? std::move(*text) : edit(record_.text);
  }

  awaitable<void> deregister(Deadline deadline) override {
    const Edit gone = [](const std::string& text) { return with_life(text, Life::kGone); };
    co_await edit_record(*cluster_, record_.key, gone, deadline);
    co_await cluster_->client.revoke_lease(lease_, deadline);
  }

  awaitable<void> maintain() override {
    const Duration interval = cluster_->config.ttl / 3;
    os::LogLimit log_limit;
    loop::Backoff backoff(kFirstPause, std::min<Duration>(kMaxPause, interval));
    Duration pause = interval;
    for (;;) {
      co_await loop::pause_for(pause);
      try {
        const Deadline deadline = Deadline::after(interval);
        co_await renew(deadline);
        backoff.reset();
        pause = interval;
      } catch (const Error& error) {
        log_limit.log(os::LogLevel::kWarning, error.what(), error.what());
        pause = backoff.next();
      }
    }
  }

 private:
  awaitable<void> renew(Deadline deadline) {
    const auto left = co_await cluster_->client.keep_alive(lease_, deadline);
    std::optional<etcd::KeyValue> found;
    if (left) found = co_await cluster_->get(record_.key, deadline);
    if (!found || found->lease != lease_) {
      co_await restore(deadline);
      os::log(os::LogLevel::kWarning, "registry {}: record {} was lost, and is written again",
              base::quoted(cluster_->config.uri), base::quoted(record_.key));
    } else {
      // Another process may have changed the record. restore() writes this text if the registry is
      // lost.
      record_.text = std::move(found->value);
    }
  }

  awaitable<void> restore(Deadline deadline) {
    const bool is_written = co_await write(deadline);
    if (!is_written) {
      throw KeyInUse(record_.key);
    }
  }

  ClusterPtr cluster_;
  Record record_;
  etcd::LeaseId lease_ = 0;
};

class EtcdRegistry final : public Registry {
 public:
  explicit EtcdRegistry(EtcdRegistryConfig config)
      : cluster_(std::make_shared<Cluster>(std::move(config))) {}

  awaitable<std::unique_ptr<RegisteredRecord>> register_record(Record record,
                                                               Deadline deadline) override {
    check(record, true);
    const std::string key = record.key;
    auto registered = std::make_unique<EtcdRecord>(cluster_, std::move(record));
    const bool is_written = co_await registered->write(deadline);
    if (!is_written) {
      throw KeyInUse(key);
    }
    co_return registered;
  }

  awaitable<void> put(Record record, Deadline deadline) override {
    check(record, false);
    const etcd::Put put{cluster_->path(record.key), record.text};
    co_await cluster_->client.put(put, deadline);
  }

  awaitable<bool> edit(std::string key, Edit edit, Deadline deadline) override {
    if (!is_key(key)) co_return false;
    const auto text = co_await edit_record(*cluster_, key, edit, deadline);
    co_return text.has_value();
  }

  awaitable<void> edit_or_create(std::string key, Edit edit, Deadline deadline) override {
    check_key(key, false);
    co_await edit_record(*cluster_, key, edit, deadline, true);
  }

  awaitable<bool> remove(std::string key, Deadline deadline) override {
    if (!is_key(key)) co_return false;
    check_key(key, false);
    const etcd::KeyRange keys{cluster_->path(key)};
    const std::uint64_t count = co_await cluster_->client.erase(keys, deadline);
    co_return count > 0;
  }

  awaitable<std::vector<Record>> list(std::string prefix, Deadline deadline) override {
    std::vector<Record> records;
    const std::string path = cluster_->path(prefix);
    etcd::Found found = co_await cluster_->client.list(etcd::keys_with_prefix(path), deadline);
    for (etcd::KeyValue& one : found.keys) {
      Record record{cluster_->key_of(one.key), std::move(one.value)};
      if (is_key(record.key) && counts(record, cluster_->config.uri) == true) {
        records.push_back(std::move(record));
      }
    }
    co_return records;
  }

  awaitable<void> watch(std::string prefix,
                        std::function<void(const RegistryChange&)> on_change) override {
    RecordReports reports(cluster_->config.uri, on_change);
    const etcd::KeyRange keys = etcd::keys_with_prefix(cluster_->path(prefix));
    os::LogLimit log_limit;
    loop::Backoff backoff(kFirstPause, kMaxPause);
    bool is_listed = false;
    bool is_reached = false;
    for (;;) {
      try {
        is_reached = false;
        const etcd::Revision revision = co_await list_all(reports, keys);
        is_reached = true;
        if (!std::exchange(is_listed, true)) on_change({RegistryChange::Kind::kListed});
        co_await follow(reports, keys, revision + 1, backoff);
      } catch (const Error& error) {
        if (!is_listed && !loop::is_transient(error)) throw;
        if (!is_reached) reports.set_unreachable();
        log_limit.log(os::LogLevel::kWarning, error.what(), error.what());
      }
      co_await loop::pause_for(backoff.next());
    }
  }

 private:
  void report(RecordReports& reports, etcd::KeyValue found) const {
    const std::string key = cluster_->key_of(found.key);
    if (is_key(key)) reports.put({key, std::move(found.value)});
  }

  // Reports all present keys, and those that have vanished since the last listing. Returns the
  // revision of the listing.
  awaitable<etcd::Revision> list_all(RecordReports& reports, etcd::KeyRange keys) {
    const Deadline deadline = Deadline::after(kListTimeout);
    etcd::Found found = co_await cluster_->client.list(keys, deadline);
    RecordReports::Reported vanished = reports.reported();
    for (etcd::KeyValue& one : found.keys) {
      vanished.erase(cluster_->key_of(one.key));
      report(reports, std::move(one));
    }
    for (const auto& [key, hash] : vanished) reports.vanish(key);
    co_return found.revision;
  }

  // Reports changes from `revision` on, over one connection, and resets `backoff` when it is made.
  // After its end the keys must be listed again: etcd may have compacted some changes, may have an
  // older revision, or may have lost its data, and its revision may have grown past the old one
  // since.
  awaitable<void> follow(RecordReports& reports, etcd::KeyRange keys, etcd::Revision revision,
                         loop::Backoff& backoff) {
    etcd::WatchStream stream({keys, revision});
    const auto on_message = [&](const etcd::WatchMessage& message) {
      if (message.is_created && message.revision + 1 < stream.next_revision()) return false;
      backoff.reset();
      for (const etcd::Event& event : message.events) {
        if (event.kind == etcd::Event::Kind::kPut) {
          report(reports, event.key);
        } else {
          reports.vanish(cluster_->key_of(event.key.key));
        }
      }
      return true;
    };
    const Deadline deadline = Deadline::after(kWatchTime);
    co_await cluster_->client.watch_once(stream, deadline, on_message);
  }

  ClusterPtr cluster_;
};

}  // namespace

std::unique_ptr<Registry> make_etcd_registry(EtcdRegistryConfig config) {
  return std::make_unique<EtcdRegistry>(std::move(config));
}

}  // namespace fo::fleet
