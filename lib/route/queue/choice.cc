#include "route/queue/choice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace fo::route {
namespace {

constexpr std::array<std::size_t, 5> kPrefixLengths{256, 1024, 4096, 16 * 1024, 64 * 1024};
// Number of workers that are drawn before all of them are considered.
constexpr int kMaxDraws = 16;

constexpr double kClassWidth = 1.2;
constexpr std::uint64_t kMinAnswers = 20;
constexpr std::uint64_t kMaxAnswers = 4096;

}  // namespace

std::vector<std::uint64_t> prefix_hashes(std::string_view prompt) {
  std::vector<std::uint64_t> hashes;
  std::size_t begin = 0;
  std::uint64_t hash = 0;
  for (const std::size_t length : kPrefixLengths) {
    if (prompt.size() < length) break;
    const std::uint64_t part = std::hash<std::string_view>{}(prompt.substr(begin, length - begin));
    // The multiplier of 64-bit golden-ratio hashing: the order of parts matters.
    hash = (hash ^ part) * 0x9e3779b97f4a7c15U;
    hashes.push_back(hash);
    begin = length;
  }
  return hashes;
}

std::optional<WorkerNumber> Choice::Prefixes::find(std::uint64_t hash) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  return found->second->second;
}

void Choice::Prefixes::set(std::uint64_t hash, WorkerNumber worker, std::uint64_t max) {
  const auto [found, is_new] = by_hash_.try_emplace(hash);
  if (!is_new) {
    found->second->second = worker;
    uses_.splice(uses_.begin(), uses_, found->second);
    return;
  }
  uses_.emplace_front(hash, worker);
  found->second = uses_.begin();
  while (uses_.size() > max) {
    by_hash_.erase(uses_.back().first);
    uses_.pop_back();
  }
}

Choice::Choice(Policy policy, std::uint64_t seed, const ChoiceSettings& settings)
    : policy_(policy),
      settings_(settings),
      random_(static_cast<std::minstd_rand::result_type>(seed)) {}

void Choice::set_policy(Policy policy, const ChoiceSettings& settings) {
  policy_ = policy;
  settings_ = settings;
}

void Choice::set_worker(WorkerNumber worker, const Room& room) {
  const auto [found, is_new] = places_.try_emplace(worker, workers_.size());
  if (is_new) {
    const auto left = left_.extract(worker);
    workers_.push_back(left ? left.mapped() : Worker{.number = worker});
  }
  // The dispatcher repeats the room of every worker after a change of one.
  const bool has_changed = std::exchange(workers_[found->second].room, room) != room;
  if (is_new || has_changed) update_totals();
}

void Choice::remove_worker(WorkerNumber worker) {
  const auto found = places_.find(worker);
  if (found == places_.end()) return;
  const Worker& removed = workers_[found->second];
  if (removed.requests > 0) left_.emplace(worker, removed);
  workers_[found->second] = workers_.back();
  places_[workers_.back().number] = found->second;
  workers_.pop_back();
  places_.erase(worker);
  update_totals();
}

void Choice::update_totals() {
  weights_ = 0;
  tokens_ = 0;
  largest_cache_ = 0;
  with_slot_ = 0;
  for (const Worker& worker : workers_) {
    if (worker.has_slot()) ++with_slot_;
    if (worker.room.weight <= 0) continue;
    weights_ += worker.room.weight;
    tokens_ += worker.tokens;
    // One unknown cache may be larger than any request.
    if (!worker.room.kv_tokens) largest_cache_.reset();
    if (largest_cache_) largest_cache_ = std::max(*largest_cache_, *worker.room.kv_tokens);
  }
}

bool Choice::has_room(const Worker& worker, const Candidate& request) const {
  const Room& room = worker.room;
  if (!worker.has_slot()) return false;
  const auto& excluded = request.excluded;
  if (std::find(excluded.begin(), excluded.end(), worker.number) != excluded.end()) return false;
  if (!room.kv_tokens) return true;
  if (is_oversized(request.tokens)) return worker.requests == 0;
  return worker.tokens + request.tokens <= *room.kv_tokens;
}

bool Choice::has_room(std::uint64_t tokens) const {
  const Candidate candidate{.tokens = tokens};
  return with_slot_ > 0 && std::ranges::any_of(workers_, [&](const Worker& worker) {
           return has_room(worker, candidate);
         });
}

std::optional<WorkerNumber> Choice::choose(const Candidate& request) {
  if (with_slot_ == 0) return std::nullopt;
  const Worker* chosen = nullptr;
  if (policy_ == Policy::kRoundRobin) chosen = find_next(request);
  if (policy_ == Policy::kPrefix) chosen = find_cached(request);
  if (chosen == nullptr && policy_ != Policy::kRoundRobin) chosen = find_least(request);
  if (chosen == nullptr) return std::nullopt;
  return chosen->number;
}

const Choice::Worker* Choice::find_cached(const Candidate& request) const {
  for (auto hash = request.prefixes.rbegin(); hash != request.prefixes.rend(); ++hash) {
    const std::optional<WorkerNumber> number = prefixes_.find(*hash);
    if (!number) continue;
    const auto place = places_.find(*number);
    // The cache of a worker that is gone does not exist any more; another worker may have a shorter
    // prefix.
    if (place == places_.end()) continue;
    const Worker& worker = workers_[place->second];
    if (!has_room(worker, request)) continue;
    const double mean = static_cast<double>(tokens_ + request.tokens) / weights_;
    return worker.load() <= settings_.max_load * mean ? &worker : nullptr;
  }
  return nullptr;
}

const Choice::Worker* Choice::find_least(const Candidate& request) {
  if (workers_.empty()) return nullptr;
  const Worker* least = nullptr;
  // The load includes the request, because without it all idle workers have the same load, whatever
  // their weights.
  const auto load = [&](const Worker& worker) { return worker.load(request.tokens); };
  const auto consider = [&](const Worker& worker) {
    if (!has_room(worker, request)) return false;
    if (least == nullptr || load(worker) < load(*least)) least = &worker;
    return true;
  };
  std::uniform_int_distribution<std::size_t> place(0, workers_.size() - 1);
  if (workers_.size() > settings_.few_workers) {
    int found = 0;
    for (int draw = 0; draw < kMaxDraws && found < 2; ++draw) {
      const Worker& drawn = workers_[place(random_)];
      // The same worker twice would be no choice.
      if (&drawn != least && consider(drawn)) ++found;
    }
    if (found == 2) return least;
  }
  // A random beginning spreads requests over workers with the same load.
  const std::size_t first = place(random_);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    consider(workers_[(first + i) % workers_.size()]);
  }
  return least;
}

const Choice::Worker* Choice::find_next(const Candidate& request) {
  double max_weight = 0;
  for (const Worker& worker : workers_) {
    if (has_room(worker, request)) max_weight = std::max(max_weight, worker.room.weight);
  }
  // A worker of the largest weight is never passed over.
  std::uniform_real_distribution<double> draw(0, max_weight);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const std::size_t place = (next_ + i) % workers_.size();
    if (!has_room(workers_[place], request)) continue;
    if (draw(random_) > workers_[place].room.weight) continue;
    next_ = place + 1;
    return &workers_[place];
  }
  return nullptr;
}

void Choice::begin(WorkerNumber worker, const Candidate& request) {
  const auto place = places_.find(worker);
  if (place == places_.end()) return;
  Worker& chosen = workers_[place->second];
  const bool had_slot = chosen.has_slot();
  ++chosen.requests;
  if (had_slot && !chosen.has_slot()) --with_slot_;
  chosen.tokens += request.tokens;
  if (chosen.room.weight > 0) tokens_ += request.tokens;
  if (policy_ != Policy::kPrefix) return;
  for (const std::uint64_t hash : request.prefixes) {
    prefixes_.set(hash, worker, settings_.known_prefixes);
  }
}

void Choice::end(WorkerNumber worker, std::uint64_t tokens) {
  resize(worker, tokens, 0);
  if (const auto left = left_.find(worker); left != left_.end()) {
    if (--left->second.requests == 0) left_.erase(left);
  } else if (const auto place = places_.find(worker); place != places_.end()) {
    Worker& ended = workers_[place->second];
    const bool had_slot = ended.has_slot();
    --ended.requests;
    if (!had_slot && ended.has_slot()) ++with_slot_;
  }
}

void Choice::resize(WorkerNumber worker, std::uint64_t before, std::uint64_t after) {
  if (const auto left = left_.find(worker); left != left_.end()) {
    left->second.tokens += after - before;
    return;
  }
  const auto place = places_.find(worker);
  if (place == places_.end()) return;
  Worker& resized = workers_[place->second];
  resized.tokens += after - before;
  if (resized.room.weight > 0) tokens_ += after - before;
}

std::uint64_t Choice::requests_on(WorkerNumber worker) const {
  const auto place = places_.find(worker);
  return place == places_.end() ? 0 : workers_[place->second].requests;
}

void AnswerLengths::add(std::uint64_t tokens) {
  const double number =
      std::log(static_cast<double>(std::max<std::uint64_t>(tokens, 1))) / std::log(kClassWidth);
  const auto place = static_cast<std::size_t>(std::ceil(number - 1e-9));
  ++counts_[std::min(place, counts_.size() - 1)];
  if (++answers_ <= kMaxAnswers) return;
  answers_ = 0;
  for (std::uint64_t& count : counts_) {
    count /= 2;
    answers_ += count;
  }
}

std::uint64_t AnswerLengths::p95(std::uint64_t first) const {
  if (answers_ < kMinAnswers) return first;
  std::uint64_t above = answers_ / 20;
  std::size_t place = counts_.size() - 1;
  while (counts_[place] <= above) above -= counts_[place--];
  return static_cast<std::uint64_t>(std::ceil(std::pow(kClassWidth, static_cast<double>(place))));
}

}  // namespace fo::route
