// The workers of a registry: follows the records of instances, verdicts, weights and routers, and
// keeps the router's view of them up to date. A worker whose record vanishes without a
// deregistration is stale, and is used as long as it answers. Coroutines of one loop.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "fleet/health.h"
#include "fleet/record/endpoint_id.h"
#include "fleet/record/worker_url.h"
#include "fleet/registry/registry.h"
#include "fleet/verdict.h"
#include "net/tls_files.h"
#include "route/worker/workers.h"

namespace fo::route {

struct SourceOptions {
  /// The namespaces whose workers the router uses.
  std::vector<fleet::NamespacePattern> namespaces = {};
  fleet::AllowedWorkers allowed{fleet::kDefaultWorkers};
  /// TLS files for https; nullopt refuses such workers.
  std::optional<net::TlsFiles> tls = {};
  /// The slots of a worker whose record has none.
  std::uint64_t slots = 256;
  fleet::HealthRules health = {};
  /// The number of routers that share the workers; nullopt: as many as are registered.
  std::optional<std::uint64_t> routers = {};
};

/// Sets the weight of one set in the record of its model, for all routers; a new record gets all of
/// `weights`. Returns the weights of the record. Throws what Registry::edit_or_create throws.
boost::asio::awaitable<CardWeights> write_weight(fleet::Registry& registry, std::string model,
                                                 std::string card, CardWeights weights,
                                                 base::Deadline deadline);

class RegistrySource {
 public:
  struct Events {
    std::function<void(const WorkerPtr&)> on_new;
    /// Called after a change of known workers, and when a kind of records was listed.
    std::function<void()> on_change;
    std::function<void(const WorkerPtr&)> on_removed;
  };

  RegistrySource(SourceOptions options, Workers& workers, Events events);

  /// Sets the options for all workers, and checks all records again: a worker that may not be used
  /// any more is removed. The health of the others keeps its state.
  void set_options(SourceOptions options);

  /// Applies a change of a record. Throws nothing: an invalid record is logged, and changes
  /// nothing.
  void apply(const fleet::RegistryChange& change);
  /// Applies what changes no record: verdicts expire at their wall time, and routers that have
  /// vanished for long enough, by a clock that cannot be set, are forgotten.
  void on_tick(text::WallTime now, TimePoint steady);
  /// Calls on_tick() twice a second until it is cancelled.
  boost::asio::awaitable<void> run_periodic_tasks();

  /// The kinds of records that are followed.
  static constexpr std::array<std::string_view, 5> kPrefixes{"instances/", "weights/", "routers/",
                                                             "verdicts/", "cards/"};
  /// Follows the records of one kind until it is cancelled, and logs when the registry cannot be
  /// reached.
  boost::asio::awaitable<void> follow(fleet::Registry& registry, std::string prefix);
  /// False until every kind of record was listed once.
  [[nodiscard]] bool is_listed() const { return listed_ >= kPrefixes.size(); }

  /// Adds a worker that has no record, and shares its slots like those of the others.
  void add(const WorkerPtr& worker);
  /// Removes a worker that has ended, or is not used any more. Its record does not matter.
  void remove(const std::string& id);

  /// Returns the listing as text, for a start while the registry is unreachable. Of the verdicts,
  /// it contains only the convictions, because others expire.
  [[nodiscard]] std::string save() const;
  /// Applies such a text; all its workers are stale. Throws kBadData if it is not a listing.
  void load(const std::string& text);
  static constexpr base::ByteCount kMaxSavedBytes = 256 * base::kMiB;
  /// Calls load() with a file's text (--state). A missing file changes nothing; neither does one
  /// that cannot be read or is not a listing, which is logged.
  void load_file(const std::string& path);
  /// Writes the listing into the file, once it is complete, within a second after each change until
  /// it is cancelled. Logs what fails, and tries again.
  boost::asio::awaitable<void> save_periodically(std::string path) const;
  /// A number that grows with each change of the text that save() returns.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

 private:
  void put_instance(const fleet::Record& record);
  [[nodiscard]] bool is_ours(const std::string& name_space) const;
  [[nodiscard]] bool may_use(const fleet::Record& record) const;
  /// Ends the record of a worker. If it has another one, as a pod behind two Services has, that
  /// counts from now on.
  void end_instance(const std::string& key);
  /// After the end of a record of the worker.
  void use_other_record(const std::string& id);
  void put_weights(const fleet::Record& record);
  void remove_weights(const std::string& key);
  void put_card(const fleet::Record& record);
  void put_verdict(const fleet::Record& record);
  void remove_verdict(const std::string& key);
  void on_verdict(const std::string& worker_id);
  /// The records of a kind have been listed: those that load() has read and that are not among them
  /// are gone.
  void forget_unlisted(const std::string& prefix);
  void save_record(std::map<std::string, std::string>& saved, const fleet::Record& record);
  bool update_verdict(Worker& worker, text::WallTime now);
  void put_router(const std::string& id);
  void forget_routers(TimePoint now);
  void share_slots();
  void update_slots();

  SourceOptions options_;
  Workers& workers_;
  Events events_;
  /// Texts of instances by key.
  std::map<std::string, std::string> instances_;
  /// Records of instances that are not used, by key: they have another namespace, or are invalid
  /// under the present options.
  struct Unused {
    std::string text;
    bool is_stale = false;
  };
  std::map<std::string, Unused> unused_;
  /// Cards by checksum. They are never removed, because a checksum identifies one card.
  std::map<std::string, std::shared_ptr<const fleet::Card>> cards_;
  /// Their texts by key.
  std::map<std::string, std::string> card_texts_;
  fleet::Verdicts verdicts_;
  /// Texts of convictions by key.
  std::map<std::string, std::string> convictions_;
  /// Texts of weights by key.
  std::map<std::string, std::string> weights_;
  /// Keys of convictions and weights that load() has read, and that the registry has not reported
  /// yet.
  std::set<std::string> unlisted_;
  std::uint64_t changes_ = 0;
  std::map<std::string, std::optional<std::uint64_t>> slots_of_record_;
  /// The routers, and since when those that have vanished are stale.
  std::map<std::string, std::optional<TimePoint>> routers_;
  std::size_t listed_ = 0;
};

}  // namespace fo::route
