// Workers as a canary watches them, for tests of what is shown of them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "canary/daemon/workers.h"
#include "fleet/record/instance.h"
#include "fleet/registry/key.h"

namespace fo::canary {

/// A worker that is registered.
inline fleet::RegistryChange instance_change(const std::string& id, const std::string& model,
                                             fleet::Life life = fleet::Life::kReady,
                                             const std::string& card = "sha256:00",
                                             const std::string& url = "http://127.0.0.1:1") {
  const fleet::Instance instance{.id = id, .url = url, .model = model, .card = card, .life = life};
  return {.record = {.key = fleet::instance_key({"dynamo", "worker", "generate"}, id),
                     .text = fleet::encode(instance)}};
}

inline fleet::RegistryChange gone_change(const std::string& id) {
  return {.kind = fleet::RegistryChange::Kind::kGone,
          .record = {.key = fleet::instance_key({"dynamo", "worker", "generate"}, id), .text = ""}};
}

inline fleet::RegistryChange stale_change(const std::string& id) {
  fleet::RegistryChange change = gone_change(id);
  change.kind = fleet::RegistryChange::Kind::kStale;
  return change;
}

/// None yet.
inline Workers workers_with(
    std::vector<CanaryFile> files,
    std::function<void(const std::string& id)> on_verdict = [](const std::string&) {}) {
  return {{.writer = "test"},
          std::move(files),
          {.on_new = [](const WorkerPtr&) {},
           .on_removed = [](const WorkerPtr&) {},
           .on_verdict = std::move(on_verdict)}};
}

/// None yet; their canaries are those of the card "sha256:00".
inline Workers no_workers(std::function<void(const std::string& id)> on_verdict =
                              [](const std::string&) {}) {
  return workers_with({{.model = "m", .card = "sha256:00"}}, std::move(on_verdict));
}

}  // namespace fo::canary
