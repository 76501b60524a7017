#include "pod/engine/engine_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "pod/pod_fixture.h"

namespace fo::pod {
namespace {

using test::Generated;
using test::kMainPath;
using test::kReadOnly;
using test::words;
using test::Worker;

Generated supervised(const std::string& main, const std::string& engine = "", int gpus = 1) {
  Worker worker;
  worker.main = main;
  worker.service.gpus = gpus;
  worker.service.wants_no_shared_memory = true;
  GenerateOptions options;
  options.supervise = true;
  options.engine = engine;
  return worker.generate(options);
}

// Warnings without their common path.
std::string warnings(const Generated& made) {
  std::string text = made.warnings();
  for (std::size_t at = 0; (at = text.find(kMainPath, at)) != std::string::npos;) {
    text.erase(at, kMainPath.size());
  }
  return text;
}

std::string args(const Generated& made, int engine) {
  return words(made.container(engine_name(engine)).find("args"));
}

std::string vllm(const std::string& options, const std::string& env = "") {
  return R"("command":["vllm","serve","m"],"args":[)" + options + R"(],"env":[)" + env + "]";
}

const std::string kWorker =
    "--worker-cls|gpu_memory_service.integrations.vllm.worker.GMSWorker|--enable-sleep-mode";

TEST(EngineNeeds, VllmSleepsWithItsMemoryInTheGms) {
  const Generated made = supervised(vllm(""));
  EXPECT_EQ(made.errors(), "");
  EXPECT_EQ(warnings(made), "");
  EXPECT_EQ(args(made, 0), "--load-format|gms|" + kWorker + "|--host|127.0.0.1|--port|8001");
  EXPECT_EQ(args(made, 1),
            "--load-format|gms|" + kWorker + kReadOnly + "|--host|127.0.0.1|--port|8002");
  for (const char* const engine : {"engine-0", "engine-1"}) {
    EXPECT_EQ(made.env(engine, "VLLM_SERVER_DEV_MODE"), "1");
    EXPECT_EQ(made.env(engine, "DYN_GMS_SCRATCH_KV_ENABLED"), "1");
    EXPECT_EQ(made.env(engine, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
  }
  EXPECT_EQ(made.env("gms-weights", "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
}

TEST(EngineNeeds, WhatIsNeverPutToSleepNeedsLess) {
  const Generated cold = supervised(vllm(""), "cold");
  EXPECT_EQ(args(cold, 1), "--load-format|gms|" + kWorker + "|--host|127.0.0.1|--port|8002");
  EXPECT_EQ(cold.env("engine-1", "VLLM_SERVER_DEV_MODE"), "(none)");
  EXPECT_EQ(cold.env("engine-1", "DYN_GMS_SCRATCH_KV_ENABLED"), "(none)");
  Worker worker;
  const Generated shadow = worker.generate();
  EXPECT_EQ(args(shadow, 1), "--model|m|--load-format|gms|--master-port|29600");
  EXPECT_EQ(shadow.env("engine-1", "DYN_GMS_SCRATCH_KV_ENABLED"), "(none)");
}

TEST(EngineNeeds, TheReferenceEngineNeedsNothing) {
  const Generated made = supervised(R"("command":["fo-refengine","serve"])");
  EXPECT_EQ(args(made, 1), "--host|127.0.0.1|--port|8002");
  for (const char* const name :
       {"VLLM_SERVER_DEV_MODE", "DYN_GMS_SCRATCH_KV_ENABLED", "CUDA_DEVICE_ORDER"}) {
    EXPECT_EQ(made.env("engine-1", name), "(none)");
    EXPECT_EQ(made.env("gms-weights", name), "(none)");
  }
}

TEST(EngineNeeds, WhatTheUserSaysIsKept) {
  const Generated whole = supervised(vllm(
      R"("--load_format=gms","--worker-cls","gpu_memory_service.integrations.vllm.worker.GMSWorker",
         "--enable-sleep-mode")",
      R"({"name":"VLLM_SERVER_DEV_MODE","value":"2"},{"name":"DYN_GMS_SCRATCH_KV_ENABLED","value":"yes"},
         {"name":"CUDA_DEVICE_ORDER","value":"PCI_BUS_ID"})"));
  EXPECT_EQ(warnings(whole), "");
  EXPECT_EQ(args(whole, 0), "--load_format=gms|" + kWorker + "|--host|127.0.0.1|--port|8001");
  EXPECT_EQ(whole.env("engine-0", "VLLM_SERVER_DEV_MODE"), "2");
  EXPECT_EQ(whole.env("engine-0", "DYN_GMS_SCRATCH_KV_ENABLED"), "yes");

  const Generated format = supervised(vllm(R"("--load-format","auto")"));
  EXPECT_EQ(warnings(format),
            "args: 'auto': without --load-format gms each engine loads its own weights into the "
            "GPUs; set it to gms, or leave it out");
  EXPECT_EQ(args(format, 1), "--load-format|auto|--enable-sleep-mode|--host|127.0.0.1|--port|8002");
  EXPECT_EQ(format.env("engine-1", "DYN_GMS_SCRATCH_KV_ENABLED"), "(none)");

  const Generated worker = supervised(vllm(R"("--worker-cls=my.Worker")"));
  EXPECT_EQ(warnings(worker),
            "args: 'my.Worker': with --load-format gms vLLM needs "
            "gpu_memory_service.integrations.vllm.worker.GMSWorker, or one derived from it; leave "
            "--worker-cls out, or make sure that it is one");
  EXPECT_EQ(args(worker, 0),
            "--worker-cls=my.Worker|--load-format|gms|--enable-sleep-mode|--host|127.0.0.1|--port|"
            "8001");
}

TEST(EngineNeeds, VariablesThatSayNoAreKeptAndWarnedOf) {
  const Generated made = supervised(vllm("", R"({"name":"VLLM_SERVER_DEV_MODE","value":"0"},
             {"name":"DYN_GMS_SCRATCH_KV_ENABLED","value":"0"})"));
  EXPECT_EQ(warnings(made),
            "env[VLLM_SERVER_DEV_MODE]: '0': so vLLM has no endpoint /sleep; set it to 1\n"
            "env[DYN_GMS_SCRATCH_KV_ENABLED]: '0': with Dynamo's releases of mid-2026, whose "
            "variable this is, the standby waits for the lock of kv_cache without limit; later "
            "ones have KV pools of the GMS in place of it; set it to 1");
  EXPECT_EQ(made.env("engine-1", "DYN_GMS_SCRATCH_KV_ENABLED"), "0");
  // Values that a script or a Secret sets are not checked.
  const Generated script = supervised(
      R"("command":["sh","-c","VLLM_SERVER_DEV_MODE=0 vllm serve m"],
         "env":[{"name":"DYN_GMS_SCRATCH_KV_ENABLED","valueFrom":{"secretKeyRef":{"key":"k"}}}])");
  EXPECT_EQ(warnings(script), "");
  EXPECT_EQ(script.env("engine-1", "VLLM_SERVER_DEV_MODE"), "(none)");
}

TEST(EngineNeeds, ReadOnlyIsMergedIntoWhatTheUserGave) {
  struct Case {
    std::string given;
    std::string merged;
  };
  const Case cases[] = {
      {"{}", R"({"gms_read_only":true})"},
      {R"({\"b\": [1, 2.5], \"a\": \"x\"})", R"({"b":[1,2.5],"a":"x","gms_read_only":true})"},
      {R"({\"gms_read_only\": false, \"z\": 1})", R"({"gms_read_only":true,"z":1})"},
  };
  const std::string option = "--model-loader-extra-config";
  for (const Case& one : cases) {
    const Generated made = supervised(
        vllm("\"" + option + "\",\"" + one.given +
             R"(","--load-format","gms","--worker-cls","x.GMSWorker","--enable-sleep-mode")"));
    EXPECT_TRUE(args(made, 1).starts_with(option + "|" + one.merged + "|")) << args(made, 1);
    // Unchanged.
    EXPECT_EQ(args(made, 0).find(R"(gms_read_only":true)"), std::string::npos) << args(made, 0);
  }
  const Generated script = supervised(
      R"("command":["bash","-c","exec vllm serve m --model-loader-extra-config '{\"k\": \"it'\\''s\"}'"])");
  EXPECT_EQ(warnings(script), "");
  const std::string text = script.container("engine-1").find("command")->items().back().text();
  EXPECT_NE(text.find(R"( '{"k":"it'\''s","gms_read_only":true}' )"), std::string::npos) << text;
}

TEST(EngineNeeds, WhatReadOnlyCannotBeMergedIntoIsWarnedOf) {
  const auto warned = [](const std::string& given) {
    return warnings(supervised(vllm("\"--model-loader-extra-config\"," + given)));
  };
  const std::string start =
      "args: engine 1 needs --model-loader-extra-config '{\"gms_read_only\": true}', which cannot "
      "be added: ";
  const std::string end = "; make sure that engine 1 has it, and engine 0 does not";
  EXPECT_EQ(warned(R"("{\"a\"")"), start + "'{\"a\"' is not a JSON object" + end);
  EXPECT_EQ(warned(R"("[1]")"), start + "'[1]' is not a JSON object" + end);
  EXPECT_EQ(warned(R"j("$(CONFIG)")j"), start + "a variable is in its value" + end);
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += "{\\\"a\\\":";
  EXPECT_NE(warned("\"" + deep + "\""), "");
}

TEST(EngineNeeds, WhatCannotBeAddedIsNamed) {
  // Another shell may run it and interpret its words differently.
  const std::string piped =
      R"("command":["sh","-c","python3 -m dynamo.vllm --model m | next"],
         "env":[{"name":"DYN_NAMESPACE","value":"n"}])";
  Worker worker{.main = piped};
  const std::string port =
      "--master-port can't be changed for engine 1, which needs other ports than engine 0: the "
      "script has a pipe; make sure that it has no port, or use a list of arguments";
  EXPECT_EQ(warnings(worker.generate()),
            "args: the engine needs --load-format gms, which cannot be added: the script has a "
            "pipe; make sure that it has them\nf: spec.services.Decode: " +
                port);
  EXPECT_NE(
      warnings(supervised(piped, "dynamo"))
          .find("args: the engine needs --load-format gms and --enable-sleep-mode, which cannot be "
                "added: the script has a pipe; make sure that it has them\nargs: engine 1 needs "
                "--model-loader-extra-config '{\"gms_read_only\": true}', which cannot be added: "
                "the script has a pipe; make sure that engine 1 has it, and engine 0 does not"),
      std::string::npos);
  // Present settings are not reported as missing.
  worker.main =
      R"("command":["sh","-c","python3 -m dynamo.vllm --load-format gms | next"],
         "env":[{"name":"DYN_NAMESPACE","value":"n"}])";
  EXPECT_EQ(warnings(worker.generate()), "f: spec.services.Decode: " + port);
}

TEST(EngineNeeds, AnUnknownProgramIsGivenVariablesAlone) {
  const Generated made = supervised(R"("command":["/run.sh"])", "vllm");
  EXPECT_EQ(made.errors(), "");
  EXPECT_EQ(
      warnings(made),
      "command: --host and --port are added to it: it has to pass them on to the engine; run the "
      "engine itself, or make sure that it does\nargs: the engine needs --load-format gms, "
      "--worker-cls gpu_memory_service.integrations.vllm.worker.GMSWorker and --enable-sleep-mode, "
      "which cannot be added: the program is unknown; make sure that it has them\nargs: engine 1 "
      "needs --model-loader-extra-config '{\"gms_read_only\": true}', which cannot be added: the "
      "program is unknown; make sure that engine 1 has it, and engine 0 does not");
  EXPECT_EQ(args(made, 1), "--host|127.0.0.1|--port|8002");
  EXPECT_EQ(made.env("engine-1", "VLLM_SERVER_DEV_MODE"), "1");
  EXPECT_EQ(made.env("engine-1", "DYN_GMS_SCRATCH_KV_ENABLED"), "1");
}

// Plain SGLang refuses the format: the loader comes with Dynamo's worker, or a launcher like it.
TEST(EngineNeeds, SglangIsNotGivenALoadFormatThatItDoesNotKnow) {
  const std::string sglang = R"("command":["sglang","serve","m"])";
  EXPECT_EQ(args(supervised(sglang), 1), "--enable-memory-saver|--host|127.0.0.1|--port|30002");
  const std::string gms = R"("command":["sglang","serve","m"],"args":["--load-format","gms"])";
  const Generated warm = supervised(gms, "sglang");
  EXPECT_EQ(args(warm, 0), "--load-format|gms|--enable-memory-saver|--host|127.0.0.1|--port|30001");
  EXPECT_EQ(args(warm, 1), "--load-format|gms|--enable-memory-saver" + kReadOnly +
                               "|--host|127.0.0.1|--port|30002");
  EXPECT_THAT(warnings(warm), testing::HasSubstr("SGLang by itself does not know"));
  EXPECT_EQ(warm.env("engine-1", "DYN_GMS_SCRATCH_KV_ENABLED"), "(none)");
}

TEST(EngineNeeds, EverybodyCountsDevicesAlike) {
  Worker worker;
  worker.main = R"("command":["python3","-m","dynamo.vllm"],
    "env":[{"name":"DYN_NAMESPACE","value":"n"},{"name":"CUDA_DEVICE_ORDER","value":"FASTEST_FIRST"}])";
  worker.others = R"({"name":"loader","image":"l"})";
  worker.service.gms_clients = {"loader"};
  worker.service.gpus = 2;
  worker.service.wants_no_shared_memory = true;
  Generated made = worker.generate();
  EXPECT_EQ(warnings(made),
            "env[CUDA_DEVICE_ORDER]: 'FASTEST_FIRST': engines find the GMS's sockets by NVML's "
            "device order; set it to PCI_BUS_ID, or leave it out");
  for (const char* const name : {"engine-0", "engine-1", "gms-weights", "loader"}) {
    EXPECT_EQ(made.env(name, "CUDA_DEVICE_ORDER"), "FASTEST_FIRST");
  }
  // One device has no order.
  worker.service.gpus = 1;
  EXPECT_EQ(warnings(worker.generate()), "");
  worker.main = R"("command":["sh","-c","export CUDA_DEVICE_ORDER=X\npython3 -m dynamo.vllm"])";
  EXPECT_EQ(worker.generate().env("gms-weights", "CUDA_DEVICE_ORDER"), "X");
}

}  // namespace
}  // namespace fo::pod
