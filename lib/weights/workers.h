// A few threads, each with its lane, that process a queue; created for one load or save.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/memory.h"
#include "weights/lane.h"

namespace fo::weights {

class Workers {
 public:
  using Task = std::function<void(Lane&)>;

  /// `context`, if any, is made current in every thread and must outlive the workers.
  Workers(const LaneConfig& config, const cuda::PrimaryContext& context);
  /// Drops queued tasks and waits for running ones.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Throws the exception of an earlier task; after that no further task starts. The tasks of a
  /// strand begin in the order of submission. Threads spread over the strands, because the tasks of
  /// one strand may wait for each other.
  void submit(Task task, std::size_t strand = 0);
  /// Waits until all tasks are done and all loaded bytes are in device memory; calls `tick` every
  /// 100 ms and at the end.
  /// Throws the exception of the first failed task.
  void wait(const std::function<void()>& tick = [] {});

 private:
  struct Strand {
    std::deque<Task> waiting;
    std::size_t running = 0;
  };
  using Strands = std::map<std::size_t, Strand>;

  void stop();
  /// The strand of the next task; end() if no task waits.
  Strands::iterator next_strand();
  void run(const LaneConfig& config, const cuda::PrimaryContext& context);
  void work_off(Lane& lane);

  std::mutex mutex_;  // guards everything except threads_
  std::condition_variable for_workers_;
  std::condition_variable for_owner_;
  Strands strands_;
  std::size_t unfinished_ = 0;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fo::weights
