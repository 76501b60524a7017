// Engines that are in a registry, which the router of a fleet follows as "fo-route serve" does.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "fleet/registry/registry.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "route/fleet.h"
#include "route/load.h"
#include "route/worker/registry_source.h"
#include "support/soon.h"

namespace fo::test {

/// An engine, and its record.
struct Registered {
  explicit Registered(const boost::asio::any_io_executor& executor)
      : engine(std::make_unique<oracle::Engine>(executor, slow_engine())) {}

  /// nullptr: it has ended.
  std::unique_ptr<oracle::Engine> engine;
  fleet::Record record;
  std::string id;
  std::unique_ptr<fleet::RegisteredRecord> kept;
  boost::asio::cancellation_signal stop;

  [[nodiscard]] std::uint64_t requests() const { return engine->counts().requests; }
};
using RegisteredPtr = std::shared_ptr<Registered>;

class RegisteredFleet : public Fleet {
 public:
  explicit RegisteredFleet(std::shared_ptr<fleet::Registry> registry)
      : registry_(std::move(registry)), source_(source_options(), router().workers(), events()) {
    for (const std::string_view prefix : route::RegistrySource::kPrefixes) {
      spawn(source_.follow(*registry_, std::string(prefix)));
    }
  }

  /// Starts an engine, and registers it. The router can use it when this returns.
  RegisteredPtr add(const std::string& component, const std::string& name_space = "oracle") {
    RegisteredPtr added = begin_add(component, name_space);
    run_until([&] { return is_reachable(added); });
    return added;
  }
  /// The same while clients ask.
  RegisteredPtr add(Load& load, const std::string& component,
                    const std::string& name_space = "oracle") {
    RegisteredPtr added = begin_add(component, name_space);
    load.run_until([&] { return is_reachable(added); });
    return added;
  }
  /// Drains a worker as an operator does, and waits for the end of its requests.
  void drain(Load& load, const RegisteredPtr& worker) {
    spawn(edit(registry_, worker->record.key));
    load.run_until([&] {
      const route::WorkerPtr known = find(worker);
      const oracle::Counts counts = worker->engine->counts();
      return known->is_leaving() && known->requests == 0 && counts.running + counts.waiting == 0;
    });
  }
  /// Deregisters a worker. Its engine runs as long as the test has it.
  void begin_leave(const RegisteredPtr& worker) {
    worker->stop.emit(boost::asio::cancellation_type::terminal);
    spawn(leave(worker));
  }
  void leave(Load& load, const RegisteredPtr& worker) {
    begin_leave(worker);
    load.run_until([&] { return find(worker) == nullptr; });
  }

  /// nullptr if the router does not know it.
  route::WorkerPtr find(const RegisteredPtr& worker) { return router().workers().find(worker->id); }
  bool is_reachable(const RegisteredPtr& worker) {
    const route::WorkerPtr known = find(worker);
    return known && known->is_reachable;
  }

 private:
  static route::SourceOptions source_options() {
    route::SourceOptions options;
    options.namespaces = {*fleet::NamespacePattern::parse(fleet::kGlobalNamespace)};
    return options;
  }
  route::RegistrySource::Events events() {
    return {.on_new = [this](const route::WorkerPtr& worker) { monitor().watch(worker); },
            .on_change = [this] { router().on_change(); },
            .on_removed = [this](const route::WorkerPtr& worker) { monitor().on_removed(worker); }};
  }

  // The registry outlives what is under way when the loop is destroyed.
  void spawn(boost::asio::awaitable<void> body) {
    loop::spawn(executor(), std::move(body), [registry = registry_](const std::exception_ptr&) {});
  }

  RegisteredPtr begin_add(const std::string& component, const std::string& name_space) {
    const auto added = std::make_shared<Registered>(executor());
    const std::uint16_t port = added->engine->listen("127.0.0.1:0");
    added->id = fleet::make_instance_id();
    const fleet::Instance instance{.id = added->id,
                                   .url = "http://127.0.0.1:" + std::to_string(port),
                                   .model = "oracle",
                                   .kv_abi = "nixl/fp8",
                                   .life = fleet::Life::kReady};
    added->record = {fleet::instance_key({name_space, component, "generate"}, added->id),
                     fleet::encode(instance)};
    loop::spawn(
        executor(), keep(registry_, added), [added](const std::exception_ptr&) {},
        added->stop.slot());
    return added;
  }

  // A registry may refuse requests for a moment, such as an etcd without a leader.
  static boost::asio::awaitable<void> keep(std::shared_ptr<fleet::Registry> registry,
                                           RegisteredPtr worker) {
    const base::Deadline deadline = soon();
    while (!worker->kept && !deadline.expired()) {
      try {
        worker->kept = co_await registry->register_record(worker->record, deadline);
      } catch (const base::Error&) {
      }
      if (!worker->kept) co_await loop::pause_for(std::chrono::milliseconds(10));
    }
    if (worker->kept) co_await worker->kept->maintain();
  }
  static boost::asio::awaitable<void> edit(std::shared_ptr<fleet::Registry> registry,
                                           std::string key) {
    const base::Deadline deadline = soon();
    co_await registry->edit(key, fleet::drained, deadline);
  }
  static boost::asio::awaitable<void> leave(RegisteredPtr worker) {
    const base::Deadline deadline = soon();
    for (;;) {
      try {
        co_await worker->kept->deregister(deadline);
        co_return;
      } catch (const base::Error&) {
        if (deadline.expired()) throw;
      }
      co_await loop::pause_for(std::chrono::milliseconds(10));
    }
  }

  std::shared_ptr<fleet::Registry> registry_;
  route::RegistrySource source_;
};

}  // namespace fo::test
