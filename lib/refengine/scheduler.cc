#include "refengine/scheduler.h"

#include <utility>

namespace fo::refengine {

using boost::asio::awaitable;

Scheduler::Turn::Turn(std::shared_ptr<Scheduler> scheduler,
                      std::shared_ptr<const KvSnapshot> snapshot)
    : scheduler_(std::move(scheduler)),
      place_(scheduler_->queue_.insert(scheduler_->queue_.end(), this)),
      kv_epoch_(scheduler_->kv_epoch_),
      snapshot_(std::move(snapshot)) {}

Scheduler::Turn::~Turn() {
  scheduler_->queue_.erase(place_);
  scheduler_->changed_.notify();
}

// Serialises sleeps and wakes, in no particular order.
class Scheduler::AdminPlace {
 public:
  static awaitable<void> wait(Scheduler& scheduler) {
    while (scheduler.administered_) co_await scheduler.changed_.wait();
    scheduler.administered_ = true;
  }
  explicit AdminPlace(Scheduler& scheduler) : scheduler_(scheduler) {}
  AdminPlace(const AdminPlace&) = delete;
  AdminPlace& operator=(const AdminPlace&) = delete;
  ~AdminPlace() {
    scheduler_.administered_ = false;
    scheduler_.changed_.notify();
  }

 private:
  Scheduler& scheduler_;
};

Scheduler::Admission Scheduler::admission() const {
  if (phase_ != Phase::kAwake) return Admission::kNotAwake;
  return queue_.size() < kMaxRequests ? Admission::kAdmitted : Admission::kBusy;
}

Scheduler::Load Scheduler::load() const {
  const std::size_t running = !queue_.empty() && (stepping_ || runs()) ? 1 : 0;
  return {running, queue_.size() - running, prompt_tokens_, generated_tokens_};
}

bool Scheduler::runs() const {
  return phase_ == Phase::kAwake || (phase_ == Phase::kFallingAsleep && mode_ == SleepMode::kWait);
}

bool Scheduler::may_run(const Turn& turn) const {
  return !stepping_ && readers_ == 0 && queue_.front() == &turn && runs();
}

void Scheduler::accept(Generation& generation, StepResult result) {
  const std::size_t before = generation.output().size();
  const bool has_token = result.token.has_value();
  generation.accept(std::move(result));
  if (before == 0 && (has_token || generation.finished())) {
    prompt_tokens_ += generation.prompt_tokens();
  }
  generated_tokens_ += generation.output().size() - before;
}

awaitable<Scheduler::Outcome> Scheduler::advance(Turn& turn, Generation& generation) {
  const auto self = shared_from_this();
  const std::size_t before = generation.output().size();
  while (!generation.finished()) {
    while (!turn.aborted_ && !may_run(turn)) co_await changed_.wait();
    if (turn.aborted_) co_return Outcome::kAborted;
    if (std::exchange(turn.kv_epoch_, kv_epoch_) != kv_epoch_) generation.rewind();
    if (turn.snapshot_) {
      const std::shared_ptr<const KvSnapshot> snapshot = std::exchange(turn.snapshot_, nullptr);
      stepping_ = true;
      co_await restore(*snapshot);
      stepping_ = false;
      changed_.notify();
      generation.skip(snapshot->offer.tokens.size());
      continue;
    }
    Generation::Step step = generation.next();
    stepping_ = true;
    StepResult result = co_await model_.step(std::move(step));
    stepping_ = false;
    changed_.notify();
    if (turn.aborted_) co_return Outcome::kAborted;
    accept(generation, std::move(result));
    if (generation.output().size() > before) co_return Outcome::kToken;
  }
  co_return Outcome::kFinished;
}

awaitable<void> Scheduler::restore(const KvSnapshot& snapshot) {
  KvRange range{0, 0};
  for (const std::string& block : snapshot.blocks) {
    range.count = tokens_in_block(snapshot.offer.tokens.size(), range.position / kBlockTokens);
    std::string bytes = block;
    co_await model_.write_kv(range, std::move(bytes));
    range.position += range.count;
  }
}

// The KV cache belongs to the first turn in the queue, from its first step on.
bool Scheduler::has_kv(const Turn& turn) const {
  return !queue_.empty() && queue_.front() == &turn && turn.kv_epoch_ == kv_epoch_ && runs();
}

awaitable<std::optional<std::vector<std::string>>> Scheduler::read_kv(
    std::function<const Turn*()> find, std::vector<KvRange> ranges) {
  const auto self = shared_from_this();
  std::optional<std::vector<std::string>> read;
  ++readers_;
  while (stepping_) co_await changed_.wait();
  --readers_;
  const Turn* turn = find();
  if (turn != nullptr && has_kv(*turn)) {
    read.emplace();
    stepping_ = true;
    for (const KvRange& range : ranges) {
      std::string bytes = co_await model_.read_kv(range);
      read->push_back(std::move(bytes));
    }
    stepping_ = false;
  }
  changed_.notify();
  co_return read;
}

awaitable<void> Scheduler::sleep(SleepMode mode) {
  const auto self = shared_from_this();
  co_await AdminPlace::wait(*this);
  const AdminPlace place(*this);
  if (asleep_.weights && asleep_.kv_cache) co_return;
  phase_ = Phase::kFallingAsleep;
  mode_ = mode;
  if (mode == SleepMode::kAbort) {
    for (Turn* turn : queue_) turn->aborted_ = true;
  }
  changed_.notify();
  while (stepping_ || (mode == SleepMode::kWait && !queue_.empty())) co_await changed_.wait();
  co_await model_.sleep();
  ++kv_epoch_;
  asleep_ = {true, true};
  phase_ = Phase::kAsleep;
}

awaitable<void> Scheduler::wake(WakeTags tags) {
  const auto self = shared_from_this();
  co_await AdminPlace::wait(*this);
  const AdminPlace place(*this);
  const WakeTags wanted{tags.weights && asleep_.weights, tags.kv_cache && asleep_.kv_cache};
  if (!wanted.any()) co_return;
  co_await model_.wake(wanted);
  asleep_ = {asleep_.weights && !wanted.weights, asleep_.kv_cache && !wanted.kv_cache};
  if (!asleep_.any()) phase_ = Phase::kAwake;
}

}  // namespace fo::refengine
