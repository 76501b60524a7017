#include "weights/workers.h"

#include <chrono>
#include <utility>

namespace fo::weights {

Workers::Workers(const LaneConfig& config, const cuda::PrimaryContext& context) {
  try {
    for (std::size_t i = 0; i < config.threads; ++i) {
      threads_.emplace_back([this, config, &context] { run(config, context); });
    }
  } catch (...) {
    stop();
    throw;
  }
}

Workers::~Workers() { stop(); }

void Workers::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    for (auto& [number, strand] : strands_) strand.waiting.clear();
  }
  for_workers_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::submit(Task task, std::size_t strand) {
  {
    const std::scoped_lock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    strands_[strand].waiting.push_back(std::move(task));
    ++unfinished_;
  }
  for_workers_.notify_one();
}

Workers::Strands::iterator Workers::next_strand() {
  auto best = strands_.end();
  for (auto it = strands_.begin(); it != strands_.end(); ++it) {
    if (it->second.waiting.empty()) continue;
    if (best == strands_.end() || it->second.running < best->second.running) best = it;
    if (best->second.running == 0) break;
  }
  return best;
}

void Workers::wait(const std::function<void()>& tick) {
  constexpr auto kTick = std::chrono::milliseconds(100);
  std::unique_lock lock(mutex_);
  while (!for_owner_.wait_for(lock, kTick, [&] { return failure_ || unfinished_ == 0; })) {
    lock.unlock();
    tick();
    lock.lock();
  }
  if (failure_) std::rethrow_exception(failure_);
  lock.unlock();
  tick();
}

void Workers::run(const LaneConfig& config, const cuda::PrimaryContext& context) {
  try {
    if (context) context.make_current();
    Lane lane(config);
    work_off(lane);
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  for_owner_.notify_one();
  for_workers_.notify_all();
}

void Workers::work_off(Lane& lane) {
  std::size_t taken = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (taken > 0 && next_strand() == strands_.end()) {
      lock.unlock();
      lane.finish();
      lock.lock();
      unfinished_ -= std::exchange(taken, 0);
      for_owner_.notify_one();
    }
    for_workers_.wait(lock,
                      [&] { return stopping_ || failure_ || next_strand() != strands_.end(); });
    if (stopping_ || failure_) return;
    const auto strand = next_strand();
    const Task task = std::move(strand->second.waiting.front());
    strand->second.waiting.pop_front();
    ++strand->second.running;
    ++taken;
    lock.unlock();
    task(lane);
    lock.lock();
    --strand->second.running;
    if (strand->second.running == 0 && strand->second.waiting.empty()) strands_.erase(strand);
  }
}

}  // namespace fo::weights
