// The capacity of the workers as the router sees it over time: the level of degradation, and
// whether spares take requests.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "route/fleet.h"
#include "route/queue/demand.h"

namespace fo::test {
namespace {

class RouterLevel : public FdCounting {
 protected:
  /// By default no worker has the capacity for this demand.
  static route::RouterOptions with_demand(double rate = 1e30) {
    route::RouterOptions options = in_turns();
    options.slo_rate = rate;
    return options;
  }
  /// Sends as many requests as the capacity needs to be known.
  static void serve_enough(Fleet& fleet) {
    for (std::uint64_t i = 0; i < route::ServedMean::kMinRequests; ++i) {
      ASSERT_EQ(fleet.ask(chat(true))->status(), 200);
    }
  }
  /// Sends one request after the other until an answer has this status.
  static void run_until_status(Fleet& fleet, int status) {
    Client call = fleet.begin(chat(true));
    fleet.run_until([&] {
      if (!call->has_ended()) return false;
      if (call->status() == status) return true;
      call = fleet.begin(chat(true));
      return false;
    });
  }
  static int level(Fleet& fleet) {
    return nlohmann::json::parse(fleet.router().state())["level"].get<int>();
  }
};

TEST_F(RouterLevel, FollowsFromWorkersWhoseRecordsHaveAnyNumbers) {
  Fleet fleet(with_demand());
  fleet.add_engine({}, [](route::Worker& worker) {
    worker.slots = UINT64_MAX;
    worker.kv_tokens = UINT64_MAX;
  });
  serve_enough(fleet);
  fleet.run_until([&] { return level(fleet) == 4; });
}

TEST_F(RouterLevel, TheLastOneRefusesAllRequestsOnlyWhileThereIsNoCapacity) {
  Fleet fleet(1, with_demand(1e-6));
  serve_enough(fleet);
  fleet.router().pin_level(4);
  EXPECT_EQ(fleet.ask(chat(true))->status(), 200);
  fleet.worker(0).slots = 0;
  run_until_status(fleet, 503);
  fleet.worker(0).slots = 64;
  run_until_status(fleet, 200);
  EXPECT_EQ(level(fleet), 4);
}

TEST_F(RouterLevel, ASetThatGetsNoRequestsIsNoCapacity) {
  route::RouterOptions options = with_demand(1e-6);
  options.dispatch.takeover = std::chrono::milliseconds(1);
  Fleet fleet(std::move(options));
  fleet.add_engine({}, [](route::Worker& worker) { worker.slots = 0; });
  fleet.add_engine({}, [](route::Worker& worker) {
    worker.card = "another";
    worker.started_at = "later";
  });
  fleet.add_engine({}, [](route::Worker& worker) {
    worker.card = "decode";
    worker.role = route::Role::kDecode;
  });
  fleet.router().workers().set_weights("oracle", route::CardWeights{{"", 1}, {"decode", 1}});
  serve_enough(fleet);
  run_until_status(fleet, 503);
  EXPECT_EQ(level(fleet), 4);
  // The set of weight 0 takes over.
  fleet.kill(0);
  run_until_status(fleet, 200);
}

TEST_F(RouterLevel, ASpareTakesRequestsWhileTheCapacityIsLessThanTheDemand) {
  Fleet fleet(1, with_demand());
  fleet.add_engine({}, [](route::Worker& worker) { worker.life = fleet::Life::kSpare; });
  EXPECT_EQ(fleet.worker(1).weight, 0);
  serve_enough(fleet);
  fleet.run_until([&] { return fleet.worker(1).weight > 0; });
}

}  // namespace
}  // namespace fo::test
