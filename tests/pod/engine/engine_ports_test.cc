#include "pod/engine/engine_ports.h"

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
  Worker worker{.main = main};
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
}

TEST(EnginePorts, ThoseWithADefaultDifferUntold) {
  struct Case {
    std::string main;
    std::string variable;
    std::string ports;
  };
  const std::string vllm = R"("command":["vllm","serve","m"])";
  const std::string dynamo = R"("command":["python3","-m","dynamo.vllm"])";
  const auto with = [](const std::string& command, const std::string& name,
                       const std::string& value) {
    return command + R"(,"env":[{"name":")" + name + R"(","value":")" + value + R"("}])";
  };
  const Case cases[] = {
      {vllm, "VLLM_NIXL_SIDE_CHANNEL_PORT", "5600 5601"},
      {dynamo, "VLLM_NIXL_SIDE_CHANNEL_PORT", "5600 5601"},
      {R"("command":["python3","-m","dynamo.sglang"])", "VLLM_NIXL_SIDE_CHANNEL_PORT",
       "(none) (none)"},
      {vllm, "DYN_VLLM_KV_EVENT_PORT", "(none) (none)"},
      {dynamo, "DYN_VLLM_KV_EVENT_PORT", "20080 20081"},
      {dynamo, "DYN_FORWARDPASS_METRIC_PORT", "20380 20381"},
      {dynamo, "NIXL_TELEMETRY_PROMETHEUS_PORT", "19090 19091"},
      {dynamo, "DYN_HTTP_RPC_PORT", "(none) (none)"},
      {with(dynamo, "DYN_REQUEST_PLANE", "http"), "DYN_HTTP_RPC_PORT", "8888 8889"},
      {dynamo, "DYN_KVBM_LEADER_ZMQ_PUB_PORT", "(none) (none)"},
      {with(dynamo, "DYN_KVBM_CPU_CACHE_GB", "20"), "DYN_KVBM_LEADER_ZMQ_PUB_PORT", "56001 56011"},
      {with(dynamo, "DYN_KVBM_CPU_CACHE_GB", "20"), "DYN_KVBM_LEADER_ZMQ_ACK_PORT", "56002 56012"},
      {with(dynamo, "DYN_KVBM_CPU_CACHE_GB", "20"), "DYN_KVBM_METRICS_PORT", "6880 6881"},
      {vllm, "VLLM_MOONCAKE_BOOTSTRAP_PORT", "(none) (none)"},
      {vllm + R"(,"args":["--kv-transfer-config","{\"kv_connector\":\"MooncakeConnector\"}"])",
       "VLLM_MOONCAKE_BOOTSTRAP_PORT", "8998 8999"},
      // An empty value disables it.
      {with(dynamo, "DYN_FORWARDPASS_METRIC_PORT", ""), "DYN_FORWARDPASS_METRIC_PORT", " "},
      {R"("command":["fo-refengine","serve"])", "VLLM_NIXL_SIDE_CHANNEL_PORT", "(none) (none)"},
  };
  for (const Case& one : cases) {
    const Worker worker{.main = one.main};
    GenerateOptions options;
    options.supervise = true;
    const Generated made = worker.generate(options);
    EXPECT_EQ(made.errors(), "");
    EXPECT_EQ(made.env("engine-0", one.variable) + " " + made.env("engine-1", one.variable),
              one.ports)
        << one.main << " " << one.variable;
  }
}

TEST(EnginePorts, AreSeenThroughVariables) {
  const std::string env =
      R"("env":[{"name":"P","value":"7000"},{"name":"KV","valueFrom":{"configMapKeyRef":{
         "name":"c","key":"kv"}}},{"name":"VLLM_PORT","valueFrom":{"configMapKeyRef":{
         "name":"c","key":"port"}}},{"name":"S","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}])";
  const auto made = [&](const std::string& command) {
    Worker worker{.main = R"("command":)" + command + "," + env,
                  .inputs = R"({"kind":"ConfigMap","metadata":{"name":"c"},"data":{
      "kv":"{\"kv_connector\":\"x\",\"kv_port\":\"14579\"}","none":"{\"a\":1}","port":"6000"}})"};
    return worker.generate();
  };
  const Generated list = made(
      R"j(["python3","-m","dynamo.vllm","--master-port","$(P)","--kv-transfer-config","$(KV)"])j");
  EXPECT_EQ(list.errors(), "");
  EXPECT_EQ(words(list.container("engine-0").find("command")),
            "python3|-m|dynamo.vllm|--master-port|$(P)|--kv-transfer-config|$(KV)");
  EXPECT_EQ(words(list.container("engine-1").find("command")),
            R"(python3|-m|dynamo.vllm|--master-port|7100|--kv-transfer-config|)"
            R"({"kv_connector":"x","kv_port":"14580"})");
  EXPECT_EQ(list.env("engine-1", "VLLM_PORT"), "6001");
  const Generated script = made(
      R"(["sh","-c","exec python3 -m dynamo.vllm --master-port $P --kv-transfer-config \"$KV\""])");
  EXPECT_EQ(words(script.container("engine-1").find("command")),
            R"(sh|-c|exec python3 -m dynamo.vllm --master-port 7100 --kv-transfer-config )"
            R"('{"kv_connector":"x","kv_port":"14580"}' --load-format gms)");
  // Unknown values are unchanged, with a warning.
  const Generated unseen =
      made(R"j(["python3","-m","dynamo.vllm","--kv-transfer-config","$(S)","--master-port=1"])j");
  EXPECT_EQ(unseen.errors(), "");
  EXPECT_NE(unseen.warnings().find("--kv-transfer-config can't be changed for engine 1"),
            std::string::npos);
}

TEST(EnginePorts, AreSeenInWhatAConfigMapSets) {
  Worker worker{.inputs = R"({"kind":"ConfigMap","metadata":{"name":"c"},"data":{
      "VLLM_NIXL_SIDE_CHANNEL_PORT":"7777","VLLM_PORT":"6000","MASTER_PORT":"29000",
      "DYN_KVBM_CPU_CACHE_GB":"4"}})"};
  worker.main += R"(,"envFrom":[{"configMapRef":{"name":"c"}}])";
  const Generated made = worker.generate();
  EXPECT_EQ(made.errors(), "");
  EXPECT_EQ(made.env("engine-0", "VLLM_NIXL_SIDE_CHANNEL_PORT"), "7777");
  EXPECT_EQ(made.env("engine-1", "VLLM_NIXL_SIDE_CHANNEL_PORT"), "7778");
  EXPECT_EQ(made.env("engine-1", "VLLM_PORT"), "6001");
  EXPECT_EQ(made.env("engine-1", "MASTER_PORT"), "29100");
  EXPECT_EQ(made.env("engine-1", "DYN_KVBM_METRICS_PORT"), "6881");
}

TEST(EnginePorts, AreWrittenAsKubernetesAndAShellReadThem) {
  Worker worker{.main = R"j("command":["python3","-m","dynamo.vllm","--kv-transfer-config",
      "{\"kv_port\":5,\"k\":\"a$$$$b\"}"])j"};
  EXPECT_EQ(words(worker.generate().container("engine-1").find("command")),
            R"j(python3|-m|dynamo.vllm|--kv-transfer-config|{"kv_port":6,"k":"a$$$b"})j");
  // "29600>log" would be parsed as a descriptor.
  worker.main = R"("command":["sh","-c","exec python3 -m dynamo.vllm --load-format gms>log 2>&1"])";
  EXPECT_EQ(words(worker.generate().container("engine-1").find("command")),
            "sh|-c|exec python3 -m dynamo.vllm --load-format gms --master-port 29600 >log 2>&1");
}

TEST(EnginePorts, OfSglangsPrefillWorkersAreGivenToEach) {
  const Worker worker{
      .main = R"("command":["python3","-m","dynamo.sglang","--disaggregation-mode","prefill"])"};
  GenerateOptions options;
  options.supervise = true;
  const Generated made = worker.generate(options);
  EXPECT_EQ(made.errors(), "");
  EXPECT_NE(
      words(made.container("engine-1").find("args")).find("--disaggregation-bootstrap-port|8999"),
      std::string::npos);
  EXPECT_EQ(words(made.container("engine-0").find("args")).find("bootstrap-port"),
            std::string::npos);
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

TEST(EnginePorts, Engine1OfDynamosVllmGetsAMasterPort) {
  for (const PodLayout layout : {PodLayout::kPlan, PodLayout::kDynamo}) {
    const Generated own = generate(with_args(R"(["--model","m"])"), layout);
    EXPECT_EQ(args_of(own, 1), "--model|m|--master-port|29600");
  }
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
    EXPECT_EQ(args_of(made, 1), "--kv-events-config|" + one.engine_1 + "|--master-port|29600");
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
      R"(exec python3 -m dynamo.vllm --load-format $M --kv-events-config '{"endpoint":"tcp://*:6"}' --master-port 29600)");
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
       env + "[VLLM_PORT]: a port that is only known inside the pod; use a number: engine 1 needs "
             "another port"},
      {with_env(R"([{"name":"VLLM_PORT","value":"x"}])"),
       env + "[VLLM_PORT]: 'x': not a port number, and engine 1 needs another port; use a number "
             "from 1 to 65535"},
      {with_env(R"([{"name":"VLLM_PORT","value":"65535"}])"),
       env + "[VLLM_PORT]: 65535: engine 1 would need a port over 65535; choose a lower one"},
      {with_args(R"(["--kv-events-config","{"])"),
       std::string(kArgs) + ": --kv-events-config: not a JSON object; correct it: engine 1 needs "
                            "other ports in it"},
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
            "f: spec.services.Decode.extraPodSpec.mainContainer.args: --kv-events-config: too "
            "long, or nested too deeply; shorten it: engine 1 needs other ports in it");
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
