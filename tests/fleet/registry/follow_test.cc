#include "fleet/registry/follow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>

#include "loop/spawn.h"
#include "support/soon.h"
#include "support/stderr_text.h"

namespace fo::fleet {
namespace {

using boost::asio::awaitable;

/// A registry each of whose watches fails: after its listing, or, if it is `away`, before.
struct FailingReader final : RecordReader {
  awaitable<std::vector<Record>> list(std::string, base::Deadline) override {
    co_return std::vector<Record>{};
  }
  awaitable<void> watch(std::string,
                        std::function<void(const RegistryChange&)> on_change) override {
    ++watches;
    if (!away) on_change({RegistryChange::Kind::kListed});
    throw base::Error(base::ExitStatus::kUnavailable, "away");
    co_return;
  }
  bool away = false;
  int watches = 0;
};

TEST(Follow, PausesAreShortAgainAfterAListing) {
  FailingReader registry;
  boost::asio::io_context loop(1);
  loop::spawn(loop, follow(
                        registry, "instances/", [](const RegistryChange&) {},
                        loop::Backoff(std::chrono::milliseconds(1), std::chrono::hours(1))));
  // Pauses that double 40 times would take years.
  const base::Deadline deadline = test::soon();
  while (registry.watches < 40 && !deadline.expired()) {
    loop.run_one_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(registry.watches, 40);
}

TEST(Follow, AFailureThatRepeatsIsLoggedAFewTimes) {
  const test::StderrText log;
  FailingReader registry;
  registry.away = true;
  boost::asio::io_context loop(1);
  loop::spawn(loop, follow(
                        registry, "instances/", [](const RegistryChange&) {},
                        loop::Backoff(std::chrono::microseconds(1), std::chrono::microseconds(2))));
  while (registry.watches < 100) loop.run_one();
  const std::string text = log.text();
  EXPECT_TRUE(text.find("registry: away; trying again") != text.npos) << text;
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 50);
}

}  // namespace
}  // namespace fo::fleet
