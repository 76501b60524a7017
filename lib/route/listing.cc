#include "route/listing.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "fleet/record/listing.h"
#include "json/object.h"
#include "route/metrics.h"

namespace fo::route {
namespace {

using nlohmann::json;

constexpr int kListingVersion = 1;
constexpr base::ByteCount kMaxListingBytes = 64 * base::kMiB;

constexpr std::array<fleet::Column, 10> kWorkerColumns{{{"name"},
                                                        {"model"},
                                                        {"life"},
                                                        {"reachable"},
                                                        {"health"},
                                                        {"verdict"},
                                                        {"requests", 'r'},
                                                        {"slots", 'r'},
                                                        {"tokens", 'r'},
                                                        {"url"}}};
constexpr std::array<fleet::Column, 8> kRequestColumns{{{"id"},
                                                        {"model"},
                                                        {"tier"},
                                                        {"worker"},
                                                        {"age_s", 'r'},
                                                        {"attempts", 'r'},
                                                        {"prompt_tokens", 'r'},
                                                        {"sent_bytes", 'r'}}};

bool is_healthy(const Worker& worker) {
  return worker.is_available() && worker.health.state() == fleet::HealthState::kHealthy &&
         !worker.verdict.is_adverse();
}

}  // namespace

std::string state_json(const Workers& workers, std::size_t level) {
  json list = json::array();
  std::size_t healthy = 0;
  for (const auto& [id, worker] : workers.all()) {
    if (is_healthy(*worker)) ++healthy;
    list.push_back({{"id", id},
                    {"name", worker->name},
                    {"url", worker->url},
                    {"model", worker->model},
                    {"card", worker->card},
                    {"life", worker->is_drained ? "draining" : fleet::to_string(worker->life)},
                    {"reachable", worker->is_reachable},
                    {"stale", worker->is_stale},
                    {"health", fleet::to_string(worker->health.state())},
                    {"verdict", fleet::to_string(worker->verdict)},
                    {"verdict_reason", worker->verdict.reason},
                    {"weight", worker->weight},
                    {"slots", worker->slots},
                    {"requests", worker->requests},
                    {"tokens", worker->tokens}});
  }
  const std::size_t total = list.size();
  return fo::json::dump({{"version", kListingVersion},
                         {"level", level},
                         {"total", total},
                         {"healthy", healthy},
                         {"workers", std::move(list)}});
}

std::string requests_json(const std::map<std::string, Job*>& jobs, TimePoint now) {
  std::vector<const Job*> order;
  for (const auto& [id, job] : jobs) order.push_back(job);
  std::ranges::sort(order, {}, &Job::received);
  json list = json::array();
  for (const Job* job : order) {
    const std::chrono::duration<double> age = now - job->received;
    list.push_back({{"id", job->id},
                    {"model", job->model},
                    {"tier", kTierNames.at(job->tier)},
                    {"worker", job->worker ? json(job->worker->name) : json()},
                    {"age_s", std::round(age.count() * 1000) / 1000},
                    {"attempts", job->attempts},
                    {"prompt_tokens", job->prompt_tokens},
                    {"body_bytes", job->request.body.size()},
                    {"sent_bytes", job->bytes_sent}});
  }
  return fo::json::dump({{"version", kListingVersion}, {"requests", std::move(list)}});
}

std::string to_table(std::string_view page, const std::string& answer) {
  const auto what = [&] { return "the answer of the router"; };
  return fo::json::read_object(answer, kMaxListingBytes, what, [&](const json& object) {
    const bool is_state = page == "state";
    return is_state ? fleet::table_of(object.at("workers"), kWorkerColumns)
                    : fleet::table_of(object.at("requests"), kRequestColumns);
  });
}

}  // namespace fo::route
