#include "os/process/thread.h"

#include <pthread.h>

#include <csignal>
#include <exception>
#include <utility>

namespace fo::os {

std::thread start_signal_masked_thread(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  std::exception_ptr failure;
  try {
    thread = std::thread(std::move(body));
  } catch (...) {
    failure = std::current_exception();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure) std::rethrow_exception(failure);
  return thread;
}

}  // namespace fo::os
