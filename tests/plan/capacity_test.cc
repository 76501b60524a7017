#include "plan/capacity.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "support/failure.h"

namespace fo::plan {
namespace {

using test::failure_of;

TEST(Capacity, ResidenceIsTheFirstTokenAndAllTokens) {
  EXPECT_DOUBLE_EQ(residence_time(Seconds(0.5), 200, Seconds(0.03)).count(), 6.5);
}

TEST(Capacity, ConcurrencyIsTheLeastOfItsLimits) {
  Replica replica{.kv_tokens = 100'000, .sequence_tokens = 2048, .slots = 256, .measured = {}};
  const Seconds limit(0.03);
  EXPECT_EQ(concurrency_of(replica, limit), 48u);  // 48.8 sequences fit into the cache
  replica.slots = 32;
  EXPECT_EQ(concurrency_of(replica, limit), 32u);
  replica.measured = {{1, Seconds(0.01)}, {16, Seconds(0.03)}, {64, Seconds(0.05)}};
  EXPECT_EQ(concurrency_of(replica, limit), 16u);
  EXPECT_EQ(concurrency_of(replica, Seconds(0.06)), 32u);
  EXPECT_EQ(concurrency_of(replica, Seconds(0.005)), 0u);
  replica.sequence_tokens = 200'000;
  EXPECT_EQ(concurrency_of(replica, limit), 0u);
}

TEST(Capacity, RateIsThatOfLittle) {
  EXPECT_DOUBLE_EQ(carried_rate(4, 48, Seconds(6)), 32);
  EXPECT_EQ(carried_rate(4, 0, Seconds(6)), 0);
  EXPECT_EQ(replicas_needed(32, 48, Seconds(6)), 4u);
  EXPECT_EQ(replicas_needed(32.1, 48, Seconds(6)), 5u);
  EXPECT_EQ(replicas_needed(0.001, 48, Seconds(6)), 1u);
  EXPECT_EQ(replicas_needed(32, 0, Seconds(6)), std::nullopt);
  EXPECT_EQ(replicas_needed(1e12, 1, Seconds(6)), std::nullopt);
  // 0.3 * 10 is a little more than 3 in binary.
  EXPECT_EQ(replicas_needed(10, 1, Seconds(0.1) * 3), 3u);
}

TEST(Capacity, NeededReplicasCarryTheRateAndOneLessDoesNot) {
  for (const double rate : {0.7, 5.0, 123.0, 9999.0}) {
    for (const std::uint64_t concurrency : {1u, 7u, 256u}) {
      for (const Seconds residence : {Seconds(0.2), Seconds(6.5), Seconds(100)}) {
        const std::uint64_t replicas = replicas_needed(rate, concurrency, residence).value();
        EXPECT_GE(carried_rate(replicas, concurrency, residence), rate * (1 - 1e-9));
        if (replicas > 1) {
          EXPECT_LT(carried_rate(replicas - 1, concurrency, residence), rate);
        }
        EXPECT_LE(replicas, replicas_needed(rate * 2, concurrency, residence));
        EXPECT_GE(replicas, replicas_needed(rate, concurrency * 2, residence));
      }
    }
  }
}

TEST(Capacity, RefusesArgumentsOutOfRange) {
  const Replica replica{.kv_tokens = 1000, .sequence_tokens = 10, .slots = 1, .measured = {}};
  const std::vector<std::function<void()>> wrong{
      [] { residence_time(Seconds(0), 10, Seconds(1)); },
      [] { residence_time(Seconds(1), 0, Seconds(1)); },
      [] { residence_time(Seconds(1), 10, Seconds(1e9)); },
      [] {
        concurrency_of({0, 10, 1, {}}, Seconds(1));
      },
      [] {
        concurrency_of({10, 0, 1, {}}, Seconds(1));
      },
      [] {
        concurrency_of({10, 10, 0, {}}, Seconds(1));
      },
      [] {
        concurrency_of({10, 10, 1, {{0, Seconds(1)}}}, Seconds(1));
      },
      [&] { concurrency_of(replica, Seconds(0)); },
      [] { carried_rate(0, 1, Seconds(1)); },
      [] { carried_rate(1, 1, Seconds(0)); },
      [] { replicas_needed(0, 1, Seconds(1)); }};
  for (const auto& call : wrong) {
    EXPECT_EQ(failure_of(call).status, base::ExitStatus::kUsage) << &call - wrong.data();
  }
}

struct Request {
  double arrival;
  double service;
};

// The requests of real traffic (requests.csv), `rounds` times one after the other, with a service
// time of ttft + tokens * tpot.
std::vector<Request> read_requests(int rounds, Seconds ttft, Seconds tpot, double* mean_tokens) {
  std::ifstream in(FO_SOURCE_DIR "/tests/plan/requests.csv");
  std::vector<Request> trace;
  double tokens = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] < '0' || line[0] > '9') continue;
    const std::size_t last = line.rfind(',');
    const double generated = std::stod(line.substr(last + 1));
    trace.push_back({std::stod(line) / 1000, (ttft + generated * tpot).count()});
    tokens += generated;
  }
  *mean_tokens = tokens / static_cast<double>(trace.size());
  std::vector<Request> all;
  for (int round = 0; round < rounds; ++round) {
    for (const Request& request : trace) {
      all.push_back({request.arrival + round * 120.0, request.service});
    }
  }
  return all;
}

struct Simulated {
  /// The time integral of the number of requests in service, divided by the time.
  double mean_in_service = 0;
  double mean_service = 0;
  /// Per second, until the last request arrived.
  double completion_rate = 0;
  /// Of requests that waited when the last one arrived.
  std::size_t backlog = 0;
};

// Requests are served in the order of arrival, at most `slots` at a time.
Simulated simulate(const std::vector<Request>& requests, std::size_t slots) {
  std::priority_queue<double, std::vector<double>, std::greater<>> ends;
  std::queue<double> waiting;
  Simulated result;
  double now = 0;
  double integral = 0;
  std::size_t completed = 0;
  const auto advance = [&](double to) {
    integral += static_cast<double>(ends.size()) * (to - now);
    now = to;
  };
  const auto complete_until = [&](double time) {
    while (!ends.empty() && ends.top() <= time) {
      advance(ends.top());
      ends.pop();
      ++completed;
      if (waiting.empty()) continue;
      ends.push(now + waiting.front());
      waiting.pop();
    }
  };
  for (const Request& request : requests) {
    complete_until(request.arrival);
    advance(request.arrival);
    if (ends.size() < slots) {
      ends.push(now + request.service);
    } else {
      waiting.push(request.service);
    }
    result.mean_service += request.service / static_cast<double>(requests.size());
  }
  result.backlog = waiting.size();
  result.completion_rate = static_cast<double>(completed) / now;
  complete_until(1e9);
  result.mean_in_service = integral / now;
  return result;
}

class LittlesLaw : public testing::Test {
 protected:
  static constexpr Seconds kTtft{0.5};
  static constexpr Seconds kTpot{0.03};
  static constexpr std::uint64_t kConcurrency = 6;
  double mean_tokens_ = 0;
  const std::vector<Request> requests_ = read_requests(30, kTtft, kTpot, &mean_tokens_);
  const Seconds residence_ = residence_time(kTtft, mean_tokens_, kTpot);
  const double rate_ = static_cast<double>(requests_.size()) / requests_.back().arrival;
};

TEST_F(LittlesLaw, HoldsForRealTraffic) {
  const Simulated all = simulate(requests_, 1'000'000);
  EXPECT_NEAR(all.mean_service, residence_.count(), 1e-6);
  EXPECT_NEAR(all.mean_in_service, rate_ * residence_.count(), 0.02 * all.mean_in_service);
}

TEST_F(LittlesLaw, ReplicasCarryTheComputedRateUnderOverload) {
  for (const std::uint64_t replicas : {1u, 2u, 3u}) {
    const Simulated result = simulate(requests_, replicas * kConcurrency);
    const double carried = carried_rate(replicas, kConcurrency, residence_);
    ASSERT_LT(carried, rate_);
    EXPECT_NEAR(result.completion_rate, carried, 0.03 * carried);
    EXPECT_NEAR(static_cast<double>(result.backlog), (rate_ - carried) * requests_.back().arrival,
                0.05 * static_cast<double>(requests_.size()));
  }
}

TEST_F(LittlesLaw, NeededReplicasLeaveNoBacklogAndOneLessDoes) {
  const std::uint64_t replicas = replicas_needed(rate_, kConcurrency, residence_).value();
  const Simulated enough = simulate(requests_, replicas * kConcurrency);
  EXPECT_NEAR(enough.completion_rate, rate_, 0.02 * rate_);
  const Simulated fewer = simulate(requests_, (replicas - 1) * kConcurrency);
  EXPECT_LT(enough.backlog, 100u);
  EXPECT_GT(fewer.backlog, 500u);
}

}  // namespace
}  // namespace fo::plan
