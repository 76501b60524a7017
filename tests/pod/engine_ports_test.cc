#include "pod/engine_ports.h"

#include <gtest/gtest.h>

#include <string>

#include "pod/pod_fixture.h"

namespace fo::pod {
namespace {

using test::Generated;
using test::words;
using test::Worker;

constexpr const char* kArgs = "spec.services.Decode.extraPodSpec.mainContainer.args";

std::string with_args(const std::string& args) {
  return R"("command":["python3","-m","dynamo.vllm","--load-format","gms"],"args":)" + args;
}

std::string with_env(const std::string& env) {
  return R"("command":["python3","-m","dynamo.vllm"],"env":)" + env;
}

Generated generate(const std::string& main, PodLayout layout = PodLayout::kPlan) {
  Worker worker;
  worker.main = main;
  GenerateOptions options;
  options.layout = layout;
  return worker.generate(options);
}

std::string args_of(const Generated& made, int engine) {
  return words(made.container(engine_name(engine)).find("args"));
}

TEST(EnginePorts, VariablesThatAUserSetDiffer) {
  const Generated made = generate(with_env(
      R"([{"name":"VLLM_NIXL_SIDE_CHANNEL_PORT","value":"7000"},
          {"name":"MASTER_PORT","value":"29500"},{"name":"OTHER_PORT","value":"1"}])"));
  EXPECT_EQ(made.errors(), "");
  EXPECT_EQ(made.env("engine-0", "VLLM_NIXL_SIDE_CHANNEL_PORT"), "7000");
  EXPECT_EQ(made.env("engine-1", "VLLM_NIXL_SIDE_CHANNEL_PORT"), "7001");
  EXPECT_EQ(made.env("engine-1", "MASTER_PORT"), "29600");
  EXPECT_EQ(made.env("engine-1", "OTHER_PORT"), "1");
  EXPECT_EQ(made.env("engine-0", "DYN_VLLM_KV_EVENT_PORT"), "(none)");
}

TEST(EnginePorts, DynamosLayoutSetsThreeAndTakesTheUsersBase) {
  const Generated made = generate(with_env(
                                      R"([{"name":"VLLM_NIXL_SIDE_CHANNEL_PORT","value":"7000"},
          {"name":"DYN_FORWARDPASS_METRIC_PORT","value":"7500"}])"),
                                  PodLayout::kDynamo);
  EXPECT_EQ(made.errors(), "");
  EXPECT_EQ(made.env("engine-0", "VLLM_NIXL_SIDE_CHANNEL_PORT"), "7000");
  EXPECT_EQ(made.env("engine-1", "VLLM_NIXL_SIDE_CHANNEL_PORT"), "7001");
  EXPECT_EQ(made.env("engine-0", "DYN_FORWARDPASS_METRIC_PORT"), "20380");
  EXPECT_EQ(made.env("engine-1", "DYN_FORWARDPASS_METRIC_PORT"), "20381");
  EXPECT_EQ(made.env("engine-0", "DYN_VLLM_KV_EVENT_PORT"), "20080");
  EXPECT_EQ(made.env("engine-1", "DYN_VLLM_KV_EVENT_PORT"), "20081");
}

TEST(EnginePorts, ArgumentsThatAUserSetDiffer) {
  const Generated made = generate(with_args(
      R"(["--master-port","29500","--data-parallel-rpc-port=5","--dist-init-addr","h:50000"])"));
  EXPECT_EQ(made.errors(), "");
  EXPECT_EQ(args_of(made, 0),
            "--master-port|29500|--data-parallel-rpc-port=5|--dist-init-addr|h:50000");
  EXPECT_EQ(args_of(made, 1),
            "--master-port|29600|--data-parallel-rpc-port=6|--dist-init-addr|h:50100");
}

TEST(EnginePorts, DynamosLayoutGivesEngine1AMasterPort) {
  const Generated made = generate(with_args(R"(["--model","m"])"), PodLayout::kDynamo);
  EXPECT_EQ(args_of(made, 0), "--model|m");
  EXPECT_EQ(args_of(made, 1), "--model|m|--master-port|29600");
  const Generated sglang =
      generate(R"("command":["python3","-m","dynamo.sglang"])", PodLayout::kDynamo);
  EXPECT_EQ(args_of(sglang, 1), "none");
}

TEST(EnginePorts, EndpointsInJsonDiffer) {
  struct Case {
    std::string json;
    std::string engine_1;
  };
  const Case cases[] = {
      {R"({\"endpoint\": \"tcp://*:20080\", \"topic\":\"x\"})",
       R"({"endpoint":"tcp://*:20081","topic":"x"})"},
      {R"({\"replay_endpoint\":\"tcp://*:1\",\"endpoint\":\"tcp://*:5\"})",
       R"({"replay_endpoint":"tcp://*:2","endpoint":"tcp://*:6"})"},
      // vLLM's own default.
      {R"({\"enable_kv_cache_events\":true})",
       R"({"enable_kv_cache_events":true,"endpoint":"tcp://*:5558"})"},
      {R"({\"enable_kv_cache_events\":false})", R"({"enable_kv_cache_events":false})"},
      {R"({\"enable_kv_cache_events\":true,\"publisher\":\"null\"})",
       R"({"enable_kv_cache_events":true,"publisher":"null"})"},
      {R"({\"endpoint\":\"ipc:///tmp/x\"})", R"({"endpoint":"ipc:///tmp/x"})"},
      {R"({\"kv_port\":14579,\"x\":1.5})", R"({"kv_port":14580,"x":1.5})"},
      {R"({\"kv_port\":\"14579\"})", R"({"kv_port":"14580"})"},
  };
  for (const Case& one : cases) {
    const Generated made = generate(with_args(R"(["--kv-events-config",")" + one.json + R"("])"));
    EXPECT_EQ(made.errors(), "");
    EXPECT_EQ(args_of(made, 1), "--kv-events-config|" + one.engine_1);
  }
}

TEST(EnginePorts, AreChangedWithinAScript) {
  const std::string script =
      R"(exec python3 -m dynamo.vllm --load-format $M --kv-events-config '{\"endpoint\":\"tcp://*:5\"}')";
  const Generated made = generate(R"("command":["/bin/sh","-c"],"args":[")" + script + R"("])");
  EXPECT_EQ(made.errors(), "");
  EXPECT_EQ(
      args_of(made, 0),
      R"(exec python3 -m dynamo.vllm --load-format $M --kv-events-config '{"endpoint":"tcp://*:5"}')");
  EXPECT_EQ(
      args_of(made, 1),
      R"(exec python3 -m dynamo.vllm --load-format $M --kv-events-config '{"endpoint":"tcp://*:6"}')");
}

TEST(EnginePorts, WithNothingToChangeAScriptStaysAsItIs) {
  const std::string script = "for i in 1 2; do python3 -m dynamo.vllm | tee log; done";
  const Generated made = generate(R"("command":["sh","-c",")" + script + R"("])");
  EXPECT_EQ(made.errors(), "");
  for (int engine = 0; engine < 2; ++engine) {
    EXPECT_EQ(words(made.container(engine_name(engine)).find("command")), "sh|-c|" + script);
  }
}

TEST(EnginePorts, WhatCannotDifferIsRefused) {
  struct Case {
    std::string main;
    std::string error;
  };
  const std::string env = "spec.services.Decode.extraPodSpec.mainContainer.env";
  const Case cases[] = {
      {with_env(R"([{"name":"VLLM_PORT","valueFrom":{"fieldRef":{"fieldPath":"x"}}}])"),
       env + "[VLLM_PORT]: a port that is only known in the pod; give it as a number: engine 1 "
             "needs another one"},
      {with_env(R"j([{"name":"VLLM_PORT","value":"$(X)"}])j"),
       env + "[VLLM_PORT]: '$(X)': no port number, and engine 1 needs another one; give a number "
             "from 1 to 65535"},
      {with_env(R"([{"name":"VLLM_PORT","value":"65535"}])"),
       env + "[VLLM_PORT]: 65535: engine 1 would need a port over 65535; choose a lower one"},
      {with_args(R"j(["--master-port","$(P)"])j"),
       std::string(kArgs) +
           ": --master-port can't be changed for engine 1: a variable is in its value; give a "
           "plain number, in a list of arguments or a script of one command"},
      {with_args(R"(["--nccl-port=x"])"),
       std::string(kArgs) +
           ": --nccl-port can't be changed for engine 1: 'x' has no port; give a plain number, in "
           "a list of arguments or a script of one command"},
      {with_args(R"(["--kv-events-config","{"])"),
       std::string(kArgs) + ": --kv-events-config: no JSON object; correct it: engine 1 needs "
                            "other ports in it"},
      {R"("command":["sh","-c","python3 -m dynamo.vllm --master-port 1 | tee x"])",
       std::string(kArgs) +
           ": --master-port can't be changed for engine 1: the script has a pipe; give a plain "
           "number, in a list of arguments or a script of one command"},
      {R"("command":["sh","-c","VLLM_PORT=1 python3 -m dynamo.vllm"])",
       "spec.services.Decode.extraPodSpec.mainContainer.command: it sets VLLM_PORT, for both "
       "engines alike; leave that out, or set it in env"},
      {R"("command":["sh","-c","export DYN_SYSTEM_PORT=1; python3 -m dynamo.vllm"])",
       "spec.services.Decode.extraPodSpec.mainContainer.command: it sets DYN_SYSTEM_PORT, for "
       "both engines alike; leave that out, or set it in env"},
  };
  for (const Case& one : cases) EXPECT_EQ(generate(one.main).errors(), "f: " + one.error);
}

TEST(EnginePorts, DeepJsonIsRefused) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\\\"a\\\":";
  const Generated made = generate(with_args(R"(["--kv-events-config",")" + deep + R"("])"));
  EXPECT_NE(made.errors(), "");
}

TEST(EnginePorts, LongJsonIsRefused) {
  std::string json = "{\\\"endpoint\\\":\\\"tcp://*:5557\\\"";
  for (int i = 0; i < 200'000; ++i) json += ",\\\"a" + std::to_string(i) + "\\\":1";
  const Generated made = generate(with_args(R"(["--kv-events-config",")" + json + R"(}"])"));
  EXPECT_EQ(made.errors(),
            "f: spec.services.Decode.extraPodSpec.mainContainer.args: --kv-events-config: too long "
            "or too deep to be read; shorten it: engine 1 needs other ports in it");
}

TEST(EnginePorts, AScriptThatCannotTakeTheMasterPortIsRefused) {
  // The layout adds it; the plan does not.
  const std::string main = R"("command":["sh","-c","python3 -m dynamo.vllm \"$@\"","--","-m"])";
  EXPECT_EQ(generate(main).errors(), "");
  const std::string known =
      R"("command":["sh","-c","exec python3 -m dynamo.vllm --load-format gms >log"])";
  const Generated made = generate(known, PodLayout::kDynamo);
  EXPECT_EQ(words(made.container("engine-1").find("command")),
            "sh|-c|exec python3 -m dynamo.vllm --load-format gms --master-port 29600 >log");
}

}  // namespace
}  // namespace fo::pod
