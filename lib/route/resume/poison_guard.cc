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

void Suspects::assign(std::uint64_t suspect, WorkerNumber worker) {
  Request& request = requests_.at(suspect);
  request.worker = worker;
  request.is_sent = false;
}

void Suspects::begin(std::uint64_t request, WorkerNumber worker) {
  Request& begun = requests_[request];
  begun.worker = worker;
  begun.is_sent = true;
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
    if (request.worker != worker || !request.is_sent) continue;
    request.worker.reset();
    ++request.deaths;
    suspects_.insert(number);
  }
}

unsigned Suspects::deaths(std::uint64_t request) const {
  const auto found = requests_.find(request);
  return found == requests_.end() ? 0 : found->second.deaths;
}

bool Suspects::is_poison(std::uint64_t request) const {
  return deaths(request) >= settings_.deaths;
}

std::vector<WorkerNumber> Suspects::occupied() const {
  std::vector<WorkerNumber> workers;
  for (const std::uint64_t suspect : suspects_) {
    const std::optional<WorkerNumber>& worker = requests_.at(suspect).worker;
    if (worker) workers.push_back(*worker);
  }
  return workers;
}

PoisonBodies::Watch::Watch(PoisonBodies& bodies, std::string_view key, std::string_view body)
    : bodies_(bodies),
      entry_(bodies.entries_.try_emplace(digest_of(key, body)).first),
      began_at_(entry_->second.ended_well) {
  ++entry_->second.watches;
}

PoisonBodies::Watch::~Watch() {
  --entry_->second.watches;
  if (!entry_->second.refused_at) bodies_.permit(entry_);
}

void PoisonBodies::permit(Entries::iterator entry) {
  entry->second.refused_at.reset();
  if (entry->second.watches == 0) entries_.erase(entry);
}

void PoisonBodies::add(std::string_view key, std::string_view body, base::Duration now) {
  std::size_t refused = 0;
  for (auto at = entries_.begin(); at != entries_.end();) {
    const auto entry = at++;
    if (!entry->second.refused_at) continue;
    if (now - *entry->second.refused_at >= settings_.time) {
      permit(entry);
    } else {
      ++refused;
    }
  }
  Entry& added = entries_[digest_of(key, body)];
  if (refused >= max_bodies_ && !added.refused_at) {
    permit(std::ranges::min_element(entries_, {}, [](const auto& one) {
      return one.second.refused_at.value_or(base::Duration::max());
    }));
  }
  added.refused_at = now;
  added.ended_well_before = added.ended_well;
}

void PoisonBodies::on_success(std::string_view key, std::string_view body) {
  // Most routers never keep a body, and need no hash.
  if (entries_.empty()) return;
  const auto found = entries_.find(digest_of(key, body));
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  ++entry.ended_well;
  if (entry.refused_at && entry.ended_well >= entry.ended_well_before + kAcquittals) permit(found);
}

bool PoisonBodies::contains(std::string_view key, std::string_view body, base::Duration now) const {
  if (entries_.empty()) return false;
  const auto found = entries_.find(digest_of(key, body));
  return found != entries_.end() && found->second.refused_at &&
         now - *found->second.refused_at < settings_.time;
}

PoisonBodies::Ages PoisonBodies::ages(base::Duration now) const {
  Ages ages;
  for (const auto& [hash, entry] : entries_) {
    if (!entry.refused_at || now - *entry.refused_at >= settings_.time) continue;
    ages[hash] = std::chrono::duration_cast<std::chrono::milliseconds>(now - *entry.refused_at);
  }
  return ages;
}

void PoisonBodies::add(const Ages& ages, base::Duration now) {
  for (const auto& [hash, age] : ages) {
    if (entries_.size() >= max_bodies_) return;
    Entry& entry = entries_[hash];
    entry.refused_at = now - age;
    entry.ended_well_before = entry.ended_well;
  }
}

}  // namespace fo::route
