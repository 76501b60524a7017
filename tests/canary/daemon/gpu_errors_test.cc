#include "canary/daemon/gpu_errors.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "canary/watched.h"

namespace fo::canary {
namespace {

using fleet::HealthState;
using std::chrono::seconds;

const std::string kOnTheGpu(32, '1');
const std::string kOnAnotherGpu(32, '2');
const std::string kOnAnotherHost(32, '3');

fleet::RegistryChange placed(const std::string& id, const std::string& host,
                             const std::vector<std::string>& gpus) {
  fleet::RegistryChange change = instance_change(id, "m");
  fleet::Instance instance = fleet::decode_instance(change.record);
  instance.host = host;
  instance.gpus = gpus;
  change.record.text = fleet::encode(instance);
  return change;
}

class GpuErrors : public testing::Test {
 protected:
  GpuErrors() {
    workers_.apply(placed(kOnTheGpu, "gpu-1", {"0000:2A:00.0", "00000000:3B:00.0"}), at_);
    workers_.apply(placed(kOnAnotherGpu, "gpu-1", {"0000:4b:00.0", "not an address"}), at_);
    workers_.apply(placed(kOnAnotherHost, "gpu-2", {"0000:3b:00.0"}), at_);
  }
  Worker& worker(const std::string& id) { return *workers_.all().at(id); }
  HealthState health(const std::string& id) { return worker(id).health.state(); }
  const std::string& reason(const std::string& id) { return worker(id).health.cause().reason; }
  std::size_t find(std::uint64_t code, const std::string& text = {}) {
    return find_xid(workers_, {.bus_id = "0000:3b:00.0", .code = code, .text = text}, "gpu-1", at_);
  }
  void find_slow(Worker& worker) {
    workers_.find(worker, Finding::kWeak, cause_of_slow(worker, {.reason = "slow: 9s"}, at_), at_);
  }

  Now at_{.steady = seconds(1000), .wall = text::WallTime(std::chrono::hours(24 * 365 * 50))};
  Workers workers_ = no_workers();
};

TEST_F(GpuErrors, AFatalOneConvictsTheWorkersOfItsHostOnTheGpu) {
  EXPECT_EQ(find(79), 1U);
  EXPECT_EQ(health(kOnTheGpu), HealthState::kConvicted);
  EXPECT_EQ(reason(kOnTheGpu), "Xid 79 of GPU 0000:3b:00.0: the GPU has fallen off the bus");
  EXPECT_EQ(health(kOnAnotherGpu), HealthState::kHealthy);
  EXPECT_EQ(health(kOnAnotherHost), HealthState::kHealthy);
}

TEST_F(GpuErrors, OthersConvictNobody) {
  for (const std::uint64_t code : {13U, 31U, 94U, 43U, 63U, 45U, 92U, 7777U}) {
    EXPECT_EQ(find(code), 1U);
  }
  find(145, "RLW_REMAP Nonfatal XC0 i0 Link 02");
  find(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)");
  for (const auto& id : {kOnTheGpu, kOnAnotherGpu, kOnAnotherHost}) {
    EXPECT_EQ(health(id), HealthState::kHealthy);
  }
}

TEST_F(GpuErrors, AfterAnAcquittalOnlyANewOneConvicts) {
  find(48);
  worker(kOnTheGpu).health.acquit(at_, 0);
  workers_.advance(worker(kOnTheGpu), at_);
  EXPECT_EQ(health(kOnTheGpu), HealthState::kProbation);
  find(48);
  EXPECT_EQ(health(kOnTheGpu), HealthState::kConvicted);
}

TEST_F(GpuErrors, AWorkerThatIsSlowAfterAnErrorOfALinkHasABadInterconnect) {
  find(145);
  at_.steady += kAtOnce;
  for (const auto& id : {kOnAnotherGpu, kOnAnotherHost}) {
    find_slow(worker(id));
    EXPECT_EQ(health(id), HealthState::kSuspicious);
  }
  EXPECT_EQ(reason(kOnAnotherGpu),
            "interconnect: all canaries were slow, and Xid 145 of GPU 0000:3b:00.0: NVLink error");
  EXPECT_EQ(reason(kOnAnotherHost), "slow: 9s");
}

TEST_F(GpuErrors, AWorkerThatWasSlowBeforeAnErrorOfALinkHasABadInterconnect) {
  find_slow(worker(kOnAnotherGpu));
  find(13);
  EXPECT_EQ(reason(kOnAnotherGpu), "slow: 9s");
  find(74);
  EXPECT_EQ(reason(kOnAnotherGpu),
            "interconnect: all canaries were slow, and Xid 74 of GPU 0000:3b:00.0: NVLink error");
  EXPECT_EQ(health(kOnAnotherGpu), HealthState::kSuspicious);
  EXPECT_EQ(health(kOnTheGpu), HealthState::kConvicted);
}

TEST_F(GpuErrors, AnErrorOfALinkLongBeforeOrAfterSlownessIsNoCause) {
  find(145);
  at_.steady += kAtOnce + seconds(1);
  find_slow(worker(kOnTheGpu));
  EXPECT_EQ(reason(kOnTheGpu), "slow: 9s");
  at_.steady += kAtOnce + seconds(1);
  find(145);
  EXPECT_EQ(reason(kOnTheGpu), "slow: 9s");
}

TEST_F(GpuErrors, AWorkerThatIsQuickAgainIsNotSlow) {
  find_slow(worker(kOnTheGpu));
  workers_.find(worker(kOnTheGpu), Finding::kPass, {}, at_);
  workers_.find(worker(kOnTheGpu), Finding::kPass, {}, at_);
  find(145);
  EXPECT_EQ(health(kOnTheGpu), HealthState::kHealthy);
}

}  // namespace
}  // namespace fo::canary
