#include "engine/drivers/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "support/failure.h"

namespace fo::engine {
namespace {

using base::ExitStatus;
using test::failure_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Words = std::vector<std::string>;

const Words kVllm{"vllm",
                  "serve",
                  "m",
                  "--load-format",
                  "gms",
                  "--enable-sleep-mode",
                  "--worker-cls",
                  "gpu_memory_service.integrations.vllm.worker.GMSWorker"};

class RecipeTest : public testing::Test {
 protected:
  RecipeTest() {
    recipe_.command = kVllm;
    recipe_.has_gms = true;
    recipe_.variable = [this](const char* name) { return variables_[name]; };
    variables_ = {{"VLLM_SERVER_DEV_MODE", "1"}, {"DYN_GMS_SCRATCH_KV_ENABLED", "1"}};
  }
  std::vector<std::string> warnings() { return check_recipe(recipe_); }
  void without(const std::string& word) { std::erase(recipe_.command, word); }

  Recipe recipe_;
  std::map<std::string, std::string> variables_;
};

TEST_F(RecipeTest, ACompleteOneIsFine) {
  EXPECT_THAT(warnings(), IsEmpty());
  variables_["ENGINE_ID"] = "1";
  recipe_.command.insert(recipe_.command.end(),
                         {"--model_loader_extra_config={\"gms_read_only\": true}"});
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(RecipeTest, EachThingThatVllmLacksIsNamed) {
  without("--enable-sleep-mode");
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("without --enable-sleep-mode")));
  recipe_.command = kVllm;
  variables_.erase("VLLM_SERVER_DEV_MODE");
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("VLLM_SERVER_DEV_MODE=1")));
  variables_["VLLM_SERVER_DEV_MODE"] = "1";
  without("--worker-cls");
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("--worker-cls")));
  recipe_.command = kVllm;
  variables_.erase("DYN_GMS_SCRATCH_KV_ENABLED");
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("kv_cache lock")));
  recipe_.kind = EngineKind::kCold;
  EXPECT_THAT(warnings(), IsEmpty()) << "it starts when the other one has ended";
}

TEST_F(RecipeTest, AnEngineThatOnlyReadsHasToSaySo) {
  variables_["ENGINE_ID"] = "1";
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("gms_read_only")));
  recipe_.command.push_back(R"(--model-loader-extra-config={"gms_read_only":false})");
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("gms_read_only")));
  recipe_.command.back() = R"("{\"gms_read_only\": $(is_standby)}")";
  EXPECT_THAT(warnings(), IsEmpty());
  recipe_.command.pop_back();
  recipe_.kind = EngineKind::kCold;
  EXPECT_THAT(warnings(), IsEmpty()) << "one starts when the other has ended";
  recipe_.kind = EngineKind::kVllm;
  variables_["ENGINE_ID"] = "0";
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(RecipeTest, ScriptsAreReadToo) {
  recipe_.command = {"sh", "-c", "exec /opt/bin/vllm serve m --load-format=gms;"};
  variables_.clear();
  EXPECT_THAT(warnings(),
              ElementsAre(HasSubstr("--enable-sleep-mode"), HasSubstr("VLLM_SERVER_DEV_MODE"),
                          HasSubstr("--worker-cls"), HasSubstr("kv_cache lock")));
}

TEST_F(RecipeTest, SglangBesideAnAwakeEngineWaitsWithoutLimit) {
  recipe_.command = {"python3", "-m", "sglang.launch_server", "--load-format", "gms"};
  recipe_.kind = EngineKind::kSglang;
  const auto is_unknown = HasSubstr("SGLang by itself does not know");
  EXPECT_THAT(warnings(), ElementsAre(is_unknown, HasSubstr("--engine cold")));
  recipe_.kind = EngineKind::kCold;
  EXPECT_THAT(warnings(), ElementsAre(is_unknown));
}

TEST_F(RecipeTest, AServerOfKvMemoryThatIsNotThereIsNamed) {
  recipe_.missing_kv_sockets = {"/s/gms_0_kv_cache.sock"};
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("/s/gms_0_kv_cache.sock")));
  recipe_.command = {"my-engine"};
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(RecipeTest, WeightsOfItsOwnAreWarnedOf) {
  recipe_.command = {"vllm", "serve", "m", "--enable-sleep-mode"};
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("weights of its own")));
  recipe_.has_gms = false;
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(RecipeTest, TwoWhoWantTheSameLockAreRefused) {
  recipe_.command = {"python3", "-m", "dynamo.vllm", "--gms-shadow-mode"};
  auto failure = failure_of([&] { warnings(); });
  EXPECT_EQ(failure.status, ExitStatus::kUsage);
  EXPECT_THAT(failure.message, testing::StartsWith("--gms-shadow-mode: "));
  recipe_.command = {"sh", "-c", "exec python3 -m dynamo.vllm --gms_shadow_mode"};
  EXPECT_EQ(failure_of([&] { warnings(); }).status, ExitStatus::kUsage);
  recipe_.command = {"python3", "-m", "dynamo.vllm"};
  for (const char* const on : {"1", "true", "TRUE", "yes", "On"}) {
    variables_["DYN_VLLM_GMS_SHADOW_MODE"] = on;
    failure = failure_of([&] { warnings(); });
    EXPECT_EQ(failure.status, ExitStatus::kConfig) << on;
    EXPECT_THAT(failure.message, testing::StartsWith("DYN_VLLM_GMS_SHADOW_MODE="));
  }
  recipe_.failover = false;
  EXPECT_NO_THROW(warnings());
  recipe_.failover = true;
  for (const char* const off : {"", "0", "false", "Off", "n", "F", "2"}) {
    variables_["DYN_VLLM_GMS_SHADOW_MODE"] = off;
    EXPECT_NO_THROW(warnings()) << off;
  }
}

TEST_F(RecipeTest, LevelTwoIsRefusedWithAGms) {
  recipe_.sleep_level = 2;
  EXPECT_EQ(failure_of([&] { warnings(); }).status, ExitStatus::kUsage);
  recipe_.has_gms = false;
  EXPECT_EQ(failure_of([&] { warnings(); }).status, ExitStatus::kUsage);
  recipe_.command = {"vllm", "serve", "m", "--enable-sleep-mode"};
  EXPECT_THAT(warnings(), IsEmpty());
}

}  // namespace
}  // namespace fo::engine
