#include "route/resume/poison_guard.h"

#include <algorithm>

#include "fleet/card/digest.h"

namespace fo::route {
namespace {

std::string digest_of(std::string_view key, std::string_view body) {
  fleet::FieldHash hash;
  hash.add(key);
  hash.add(body);
  return hash.finish();
}

}  // namespace

void Suspects::begin(std::uint64_t request, WorkerNumber worker) {
  requests_[request].worker = worker;
}

bool Suspects::on_token(std::uint64_t request) {
  const auto found = requests_.find(request);
  return found != requests_.end() && found->second.worker && suspects_.erase(request) > 0;
}

void Suspects::on_progress(std::uint64_t request) {
  const auto found = requests_.find(request);
  if (found != requests_.end()) found->second.deaths = 0;
}

bool Suspects::end_attempt(std::uint64_t request) {
  const auto found = requests_.find(request);
  if (found == requests_.end() || !found->second.worker) return false;
  found->second.worker.reset();
  return is_suspect(request);
}

bool Suspects::remove(std::uint64_t request) {
  const bool is_free = end_attempt(request);
  requests_.erase(request);
  suspects_.erase(request);
  return is_free;
}

void Suspects::on_death(WorkerNumber worker) {
  for (auto& [number, request] : requests_) {
    if (request.worker != worker) continue;
    request.worker.reset();
    ++request.deaths;
    suspects_.insert(number);
  }
}

bool Suspects::is_poison(std::uint64_t request) const {
  const auto found = requests_.find(request);
  return found != requests_.end() && found->second.deaths >= kDeaths;
}

std::vector<WorkerNumber> Suspects::occupied() const {
  std::vector<WorkerNumber> workers;
  for (const std::uint64_t suspect : suspects_) {
    const std::optional<WorkerNumber>& worker = requests_.at(suspect).worker;
    if (worker) workers.push_back(*worker);
  }
  return workers;
}

void PoisonBodies::add(std::string_view key, std::string_view body, base::Duration now) {
  std::erase_if(added_, [&](const auto& one) { return now - one.second >= kTime; });
  const std::string digest = digest_of(key, body);
  if (added_.size() >= max_bodies_ && !added_.contains(digest)) {
    added_.erase(std::ranges::min_element(added_, {}, [](const auto& one) { return one.second; }));
  }
  added_[digest] = now;
}

bool PoisonBodies::contains(std::string_view key, std::string_view body, base::Duration now) const {
  // Most routers never keep a body, and need no hash.
  if (added_.empty()) return false;
  const auto found = added_.find(digest_of(key, body));
  return found != added_.end() && now - found->second < kTime;
}

}  // namespace fo::route
