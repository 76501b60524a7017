// A few threads, each with its lane, that work off a queue; made for one load or save.
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

  /// `context` is made current in every thread where there is one; it must outlive the workers.
  Workers(const LaneConfig& config, const cuda::PrimaryContext& context);
  /// Drops what is queued and waits for what runs.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Throws what a task threw before; nothing runs any more after that but what runs already.
  /// The tasks of a strand begin in the order in which they were submitted. Threads spread over
  /// the strands: for tasks of which those of one strand wait for each other.
  void submit(Task task, std::size_t strand = 0);
  /// Waits until everything submitted is done and in device memory, and calls `tick` every 100 ms
  /// and at the end. Throws what the first task to fail threw.
  void wait(const std::function<void()>& tick = [] {});

 private:
  struct Strand {
    std::deque<Task> waiting;
    std::size_t running = 0;
  };
  using Strands = std::map<std::size_t, Strand>;

  void stop();
  /// Where a thread had best take its next task from; end: nothing waits.
  Strands::iterator next_strand();
  void run(const LaneConfig& config, const cuda::PrimaryContext& context);
  void work_off(Lane& lane);

  std::mutex mutex_;  // guards all but threads_
  std::condition_variable for_workers_;
  std::condition_variable for_owner_;
  Strands strands_;
  std::size_t unfinished_ = 0;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fo::weights
