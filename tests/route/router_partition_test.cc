// A network that drops every packet between the router and a worker, and heals: no connection ends.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "net/address.h"
#include "route/load.h"
#include "route/resume/disturbed.h"
#include "route/torture/relay.h"

namespace fo::test {
namespace {

using fleet::HealthState;

/// The parameter: what asks for a new connection is dropped, or else accepted by a machine between
/// the two.
class RouterPartition : public FdCounting, public testing::WithParamInterface<bool> {
 protected:
  static route::RouterOptions options() {
    route::RouterOptions options = in_turns();
    options.times.connect = std::chrono::milliseconds(500);
    options.times.first_token = options.times.stream = std::chrono::seconds(1);
    return options;
  }
  static std::uint16_t port_of(const std::string& url) { return net::parse_url(url).address.port; }
};

// Dynamo: network partitions between the frontend and a worker.
TEST_P(RouterPartition, StreamsGoOnElsewhereAndTheWorkerIsUsedAgainAfterIt) {
  Fleet fleet(options());
  fleet.health_rules.cool_down = std::chrono::milliseconds(100);
  fleet.add_engines(3, slow_engine());
  torture::Relay relay(fleet.executor());
  relay.lead_to(port_of(fleet.url(0)));
  const std::string url = "http://127.0.0.1:" + std::to_string(relay.port());
  route::Worker& worker = fleet.worker(0);
  worker.set_url(url, net::parse_url(url), std::nullopt);
  // One on each worker.
  const nlohmann::json long_stream = long_answer(true, {{"max_tokens", 500}});
  std::vector<Client> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(fleet.begin(long_stream));
  for (const Client& stream : streams) fleet.run_until([&] { return !stream->text().empty(); });

  relay.partition(GetParam());
  Load load(fleet, {.streams = 6, .whole = 3}, long_answer(true));
  const auto is_out = [&] { return !worker.is_reachable || worker.weight == 0; };
  // Its streams have left it.
  load.run_until([&] { return is_out() && worker.requests == 0; });
  const std::uint64_t requests = fleet.counts(0).requests;
  load.run(32);
  EXPECT_EQ(fleet.counts(0).requests, requests);
  EXPECT_TRUE(is_out());

  relay.heal();
  load.run_until([&] {
    return worker.is_reachable && worker.health.state() == HealthState::kHealthy &&
           fleet.counts(0).requests >= requests + 8;
  });
  load.run(16);
  load.end();
  int resumed = 0;
  for (const Client& stream : streams) {
    fleet.run_until([&] { return stream->has_ended(); });
    EXPECT_EQ(stream->text(), fleet.text_of(long_stream));
    EXPECT_EQ(stream->events().back(), "[DONE]");
    resumed += stream->body().find(": fo-route: resumed ") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(resumed, 1);
  // The engine has noticed that the partition has cut its connections.
  fleet.run_until([&] { return fleet.busy(0) == 0; });
}

INSTANTIATE_TEST_SUITE_P(, RouterPartition, testing::Bool(), [](const auto& drops_new) {
  return std::string(drops_new.param ? "DropsNewConnections" : "AcceptsNewConnections");
});

}  // namespace
}  // namespace fo::test
