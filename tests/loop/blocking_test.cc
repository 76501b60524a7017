#include "loop/blocking.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <functional>
#include <system_error>

#include "base/error.h"
#include "loop/test_loop.h"

namespace fo::loop {
namespace {

/// During its life, no thread can be started, because its stack would have no room.
class NoThreads {
 public:
  NoThreads() {
    EXPECT_EQ(::pthread_getattr_default_np(&before_), 0);
    pthread_attr_t huge;
    EXPECT_EQ(::pthread_attr_init(&huge), 0);
    EXPECT_EQ(::pthread_attr_setstacksize(&huge, std::size_t{1} << 55), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&huge), 0);
    ::pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    EXPECT_EQ(::pthread_setattr_default_np(&before_), 0);
    ::pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST(RunBlocking, AThreadThatCannotBeStartedIsATransientError) {
  test::TestLoop loop;
  const std::function<int()> body = [] { return 7; };
  try {
    const NoThreads none;
    loop.run(run_blocking(body));
    ADD_FAILURE() << "a thread was started";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.status(), base::ExitStatus::kTryAgain);
    EXPECT_EQ(error.code(), std::errc::resource_unavailable_try_again);
  }
  EXPECT_EQ(loop.run(run_blocking(body)), 7);
}

}  // namespace
}  // namespace fo::loop
