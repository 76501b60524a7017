#include "route/metrics.h"

#include <gmock/gmock.h>

#include "support/promtool.h"

namespace fo::test {
namespace {

using route::Metrics;
using testing::HasSubstr;
using testing::Not;

class RouteMetrics : public Promtool {
 protected:
  RouteMetrics() {
    const auto worker = std::make_shared<route::Worker>("w", fleet::Health{});
    worker->name = "a \"b\"";
    worker->model = "llama";
    worker->is_reachable = true;
    workers_.add(worker);
  }
  std::string text() { return to_text(metrics_, workers_, {{{"llama", ""}, {.requests = 3}}}, 2); }

  Metrics metrics_;
  route::Workers workers_;
};

TEST_F(RouteMetrics, ArePrometheusText) {
  metrics_.first_token.observe(std::chrono::milliseconds(3));
  metrics_.requests[{"llama", 200, "premium"}] = 7;
  EXPECT_EQ(complaints(text()), "");
}

TEST_F(RouteMetrics, SeriesExistBeforeTheirFirstEvent) {
  const std::string before = text();
  EXPECT_THAT(before,
              HasSubstr(R"(fo_route_requests_total{model="llama",code="503",tier="standard"} 0)"));
  for (const char* code : {"413", "422", "429", "500", "529"}) {
    EXPECT_THAT(before, HasSubstr(std::string(R"(model="llama",code=")") + code +
                                  R"(",tier="premium"} 0)"));
  }
  EXPECT_THAT(before, HasSubstr(R"(fo_route_requests_total{model="",code="401",tier=""} 0)"));
  EXPECT_THAT(before, HasSubstr(R"(fo_route_retries_total{reason="fault"} 0)"));
  EXPECT_THAT(before, HasSubstr(R"(fo_route_retries_total{reason="neutral"} 0)"));
  EXPECT_THAT(before, HasSubstr("fo_route_lost_total 0"));
  metrics_.requests[{"llama", 503, "standard"}] = 1;
  metrics_.requests[{"llama", 418, "standard"}] = 1;
  EXPECT_THAT(text(),
              HasSubstr(R"(fo_route_requests_total{model="llama",code="503",tier="standard"} 1)"));
  EXPECT_THAT(text(), HasSubstr(R"(code="418",tier="standard"} 1)"));
  EXPECT_THAT(text(), Not(HasSubstr(R"(code="418",tier="premium"})")));
}

TEST_F(RouteMetrics, AWorkersStateHasOneSeriesEach) {
  const route::WorkerPtr worker = workers_.find("w");
  EXPECT_THAT(text(),
              HasSubstr(R"(fo_route_worker_health{worker_id="a \"b\"",state="healthy"} 1)"));
  EXPECT_THAT(text(), HasSubstr(R"(dynamo_worker_status{worker_id="a \"b\"",tp_group=""} 0)"));
  worker->is_drained = true;
  EXPECT_THAT(text(), HasSubstr(R"(dynamo_worker_status{worker_id="a \"b\"",tp_group=""} 3)"));
  worker->is_drained = false;
  for (int i = 0; i < 3; ++i) {
    worker->health.apply(fleet::HealthEvent::kFault, std::chrono::seconds(1), 0.5);
  }
  EXPECT_THAT(text(),
              HasSubstr(R"(fo_route_worker_health{worker_id="a \"b\"",state="unhealthy"} 1)"));
  EXPECT_THAT(text(),
              HasSubstr(R"(fo_route_worker_health{worker_id="a \"b\"",state="healthy"} 0)"));
  EXPECT_THAT(text(), HasSubstr(R"(dynamo_circuit_breaker_state{worker_id="a \"b\""} 1)"));
  worker->is_reachable = false;
  EXPECT_THAT(text(), HasSubstr(R"(dynamo_worker_status{worker_id="a \"b\"",tp_group=""} 4)"));
}

TEST_F(RouteMetrics, AVerdictHasOneSeriesForEachState) {
  EXPECT_THAT(text(),
              HasSubstr(R"(fo_route_worker_verdict{worker_id="a \"b\"",state="unknown"} 1)"));
  EXPECT_THAT(text(),
              HasSubstr(R"(fo_route_worker_verdict{worker_id="a \"b\"",state="convicted"} 0)"));
  workers_.find("w")->verdict = {.health = fleet::HealthState::kConvicted, .weight = 0};
  EXPECT_THAT(text(),
              HasSubstr(R"(fo_route_worker_verdict{worker_id="a \"b\"",state="unknown"} 0)"));
  EXPECT_THAT(text(),
              HasSubstr(R"(fo_route_worker_verdict{worker_id="a \"b\"",state="convicted"} 1)"));
  EXPECT_THAT(text(), HasSubstr(R"(dynamo_worker_status{worker_id="a \"b\"",tp_group=""} 2)"));
  EXPECT_THAT(text(),
              HasSubstr(R"(fo_route_worker_health{worker_id="a \"b\"",state="healthy"} 1)"));
  EXPECT_EQ(complaints(text()), "");
}

TEST_F(RouteMetrics, EachSetHasItsWeight) {
  const auto other = std::make_shared<route::Worker>("v", fleet::Health{});
  other->model = "llama";
  other->card = "sha256:1";
  other->started_at = "2026";
  workers_.add(other);
  EXPECT_THAT(text(), HasSubstr(R"(fo_route_set_weight{model="llama",card=""} 1)"));
  EXPECT_THAT(text(), HasSubstr(R"(fo_route_set_weight{model="llama",card="sha256:1"} 0)"));
  workers_.set_weights("llama", route::CardWeights{{"sha256:1", 0.5}});
  EXPECT_THAT(text(), HasSubstr(R"(fo_route_set_weight{model="llama",card=""} 0)"));
  EXPECT_THAT(text(), HasSubstr(R"(fo_route_set_weight{model="llama",card="sha256:1"} 0.5)"));
  EXPECT_EQ(complaints(text()), "");
}

TEST_F(RouteMetrics, QueuesAndTheLevelAreShown) {
  EXPECT_THAT(text(), HasSubstr(R"(fo_route_queue_requests{model="llama",card=""} 3)"));
  EXPECT_THAT(text(), HasSubstr("fo_route_level 2"));
  EXPECT_THAT(text(), HasSubstr("dynamo_degradation_level 2"));
}

}  // namespace
}  // namespace fo::test
