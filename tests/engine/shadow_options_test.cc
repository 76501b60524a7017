#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "cli/app.h"
#include "fo-shadow/options.h"
#include "os/socket/unix_socket.h"
#include "support/environment.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::fo_shadow {
namespace {

using namespace std::chrono_literals;
using base::ExitStatus;
using cli::ParseResult;
using engine::EngineKind;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

class ShadowOptionsTest : public testing::Test {
 protected:
  void set(const char* name, const std::string& value) { environment_.set(name, value); }

  static ParseResult parse(Options& options, Words words) {
    const cli::Tool tool{
        .name = "fo-shadow", .summary = "s", .version = "1", .takes_command = true};
    return cli::parse(
        tool, options.common, [&](CLI::App& app) { declare(app, options); }, std::move(words));
  }
  /// The options for these words and an engine.
  static engine::ShadowOptions read(Words words) {
    words.insert(words.end(), {"--", "engine", "--port", "1"});
    Options options;
    const ParseResult result = parse(options, std::move(words));
    EXPECT_EQ(result.kind, ParseResult::Kind::kRun) << result.text;
    return to_shadow_options(options);
  }
  static test::Failure refusal(const Words& words) {
    return test::failure_of([&] { read(words); });
  }
  static bool is_usage_error(const Words& words) {
    Options options;
    return parse(options, words).kind == ParseResult::Kind::kUsageError;
  }

  test::Environment environment_{"ENGINE_ID", "FAILOVER_LOCK_PATH", "GMS_SOCKET_DIR",
                                 "DYN_SYSTEM_PORT", "GMS_REMAP_TIMEOUT_MS"};
};

TEST_F(ShadowOptionsTest, DefaultsAreTheDocumentedOnes) {
  const engine::ShadowOptions shadow = read({});
  EXPECT_THAT(shadow.command, ElementsAre("engine", "--port", "1"));
  EXPECT_EQ(shadow.driver.kind, EngineKind::kVllm);
  EXPECT_EQ(shadow.driver.url, "http://127.0.0.1:8000");
  EXPECT_EQ(shadow.driver.system_url, "http://127.0.0.1:9190");
  EXPECT_EQ(shadow.driver.sleep_level, 1);
  EXPECT_TRUE(shadow.failover);
  EXPECT_EQ(shadow.lock.path, "/shared/failover.lock");
  EXPECT_EQ(shadow.id, "engine-0");
  EXPECT_TRUE(shadow.gms.empty());
  EXPECT_THAT(shadow.devices, ElementsAre(base::DeviceOrdinal(0)));
  EXPECT_FALSE(shadow.gpu_free);
  EXPECT_EQ(shadow.host, "0.0.0.0");
  EXPECT_EQ(shadow.port, 9090);
  EXPECT_EQ(shadow.engine_port, 9190);
  EXPECT_EQ(shadow.start_timeout, 2h);
  EXPECT_EQ(shadow.sleep_timeout, 1min);
  EXPECT_EQ(shadow.wake_timeout, 2min);
  EXPECT_EQ(shadow.remap_timeout, 30s);
  EXPECT_EQ(shadow.prove_timeout, 30s);
  EXPECT_EQ(shadow.register_timeout, 10s);
  EXPECT_EQ(shadow.gms_grace, 30s);
  EXPECT_EQ(shadow.drain, 30s);
  EXPECT_EQ(shadow.grace, 5s);
  EXPECT_EQ(shadow.health_interval, 5s);
  EXPECT_EQ(shadow.health_timeout, 5s);
  EXPECT_EQ(shadow.prove_interval, 30s);
  EXPECT_EQ(shadow.failures, 3);
  EXPECT_EQ(shadow.warn_after, 30s);
  EXPECT_EQ(shadow.status_fd, -1);
}

TEST_F(ShadowOptionsTest, TheEnvironmentCountsWhereNothingIsSaid) {
  set("ENGINE_ID", "3");
  set("FAILOVER_LOCK_PATH", "/from/env");
  set("DYN_SYSTEM_PORT", "7000");
  set("GMS_REMAP_TIMEOUT_MS", "1500");
  const engine::ShadowOptions shadow = read({});
  EXPECT_EQ(shadow.id, "engine-3");
  EXPECT_EQ(shadow.lock.path, "/from/env");
  EXPECT_EQ(shadow.port, 7000);
  EXPECT_EQ(shadow.engine_port, 7100);
  EXPECT_EQ(shadow.remap_timeout, 1500ms);
  const engine::ShadowOptions said =
      read({"--id", "me", "--lock", "/lock", "--port", "1", "--remap-timeout", "2s"});
  EXPECT_EQ(said.id, "me");
  EXPECT_EQ(said.lock.path, "/lock");
  EXPECT_EQ(said.port, 1);
  EXPECT_EQ(said.remap_timeout, 2s);
}

TEST_F(ShadowOptionsTest, EachKindHasItsUrl) {
  EXPECT_EQ(read({"--engine", "sglang"}).driver.url, "http://127.0.0.1:30000");
  EXPECT_EQ(read({"--engine", "cold"}).driver.url, "http://127.0.0.1:8000");
  EXPECT_EQ(read({"--engine", "sglang", "--engine-url", "http://[::1]:5"}).driver.url,
            "http://[::1]:5");
  EXPECT_EQ(read({"--engine", "dynamo", "--engine-port", "5"}).driver.system_url,
            "http://127.0.0.1:5");
}

TEST_F(ShadowOptionsTest, TheEnginesPortFollowsOursUnlessItIsSaid) {
  EXPECT_EQ(read({"--port", "0"}).port, 0);
  EXPECT_EQ(read({"--port", "0"}).engine_port, 0);
  EXPECT_FALSE(read({"--port", "-1"}).port);
  EXPECT_EQ(read({"--port", "-1"}).engine_port, 0);
  EXPECT_EQ(read({"--port", "65435"}).engine_port, 65535);
  EXPECT_EQ(read({"--port", "65535", "--engine-port", "1"}).engine_port, 1);
  EXPECT_THAT(refusal({"--port", "65436"}).message, HasSubstr("--engine-port"));
  for (const char* port : {"0", "-1"}) {
    EXPECT_EQ(refusal({"--engine", "dynamo", "--port", port}).status, ExitStatus::kUsage);
  }
}

TEST_F(ShadowOptionsTest, SocketsThatAreNamedAreTakenInTheirOrder) {
  set("GMS_SOCKET_DIR", "/nowhere");
  const engine::ShadowOptions shadow = read({"--gms", "/b", "--gms", "/a", "--tag", "t"});
  ASSERT_EQ(shadow.gms.size(), 2u);
  EXPECT_EQ(shadow.gms[0].socket, "/b");
  EXPECT_EQ(shadow.gms[1].socket, "/a");
  EXPECT_EQ(shadow.gms[1].device, base::DeviceOrdinal(1));
  EXPECT_EQ(shadow.gms[1].tag, "t");
}

TEST_F(ShadowOptionsTest, SocketsAreFoundInTheFolder) {
  const test::TempDir dir;
  EXPECT_EQ(refusal({"--socket-dir", dir.path()}).status, ExitStatus::kUnavailable);
  const base::UniqueFd one = os::listen_unix(dir.path("gms_2_weights.sock"));
  const base::UniqueFd two = os::listen_unix(dir.path("gms_5_weights.sock"));
  const base::UniqueFd other = os::listen_unix(dir.path("gms_7_kv.sock"));
  const engine::ShadowOptions shadow = read({"--socket-dir", dir.path()});
  ASSERT_EQ(shadow.gms.size(), 2u);
  EXPECT_EQ(shadow.gms[0].socket, dir.path("gms_2_weights.sock"));
  EXPECT_EQ(shadow.gms[1].device, base::DeviceOrdinal(5));
  EXPECT_THAT(shadow.devices, ElementsAre(base::DeviceOrdinal(2), base::DeviceOrdinal(5)));
  const engine::ShadowOptions chosen = read({"--socket-dir", dir.path(), "--devices", "5"});
  ASSERT_EQ(chosen.gms.size(), 1u);
  EXPECT_THAT(chosen.devices, ElementsAre(base::DeviceOrdinal(5)));
  EXPECT_THAT(read({"--socket-dir", dir.path(), "--tag", "kv"}).devices,
              ElementsAre(base::DeviceOrdinal(7)));
}

TEST_F(ShadowOptionsTest, TargetsAreNamesAndUrls) {
  const engine::ShadowOptions shadow =
      read({"--health-target", "a=http://127.0.0.1:1/x?y=z", "--health-target", "b=unix:/s:/p"});
  ASSERT_EQ(shadow.targets.size(), 2u);
  EXPECT_EQ(shadow.targets[0].first, "a");
  EXPECT_EQ(shadow.targets[0].second, "http://127.0.0.1:1/x?y=z");
  for (const char* bad : {"http://127.0.0.1", "=http://127.0.0.1", "a=", "a=example.org",
                          "a=http://1.2.3/", "a=https://127.0.0.1/"}) {
    EXPECT_EQ(refusal({"--health-target", bad}).status, ExitStatus::kUsage) << bad;
  }
}

TEST_F(ShadowOptionsTest, WhatTheEngineIsDrivenWithIsPassedOn) {
  const engine::ShadowOptions shadow =
      read({"--engine", "command", "--sleep", "s", "--wake", "w", "--health", "h", "--prove", "p",
            "--register", "r", "--deregister", "d", "--gpu-free", "1GiB", "--no-failover",
            "--publish", "[::]:80"});
  EXPECT_EQ(shadow.driver.kind, EngineKind::kCommand);
  EXPECT_EQ(shadow.driver.sleep_command, "s");
  EXPECT_EQ(shadow.driver.wake_command, "w");
  EXPECT_EQ(shadow.driver.health_command, "h");
  EXPECT_EQ(shadow.driver.prove_command, "p");
  EXPECT_EQ(shadow.register_command, "r");
  EXPECT_EQ(shadow.deregister_command, "d");
  EXPECT_EQ(shadow.gpu_free, base::kGiB);
  EXPECT_FALSE(shadow.failover);
  EXPECT_EQ(shadow.publish, "[::]:80");
}

TEST_F(ShadowOptionsTest, RefusesWhatMakesNoSense) {
  for (const Words& words : {Words{"--engine", "tgi"},
                             {"--sleep-level", "0"},
                             {"--sleep-level", "3"},
                             {"--engine-port", "0"},
                             {"--port", "65536"},
                             {"--port", "-2"},
                             {"--failures", "0"},
                             {"--drain", "5"},
                             {"--gpu-free", "1XB"},
                             {"--status-fd", "-2"},
                             {"--devices", "x"},
                             {"true"},
                             {"--"},
                             {"status", "--id", "x"},
                             {"switchover", "--timeout", "x"}}) {
    EXPECT_TRUE(is_usage_error(words)) << words.front();
  }
  EXPECT_EQ(refusal({"--publish", "example.org:80"}).status, ExitStatus::kUsage);
  EXPECT_EQ(refusal({"--publish", "127.0.0.1"}).status, ExitStatus::kUsage);
  EXPECT_EQ(refusal({"--lock", "relative"}).status, ExitStatus::kUsage);
  EXPECT_EQ(refusal({"--id", "a\nb"}).status, ExitStatus::kConfig);
  set("GMS_REMAP_TIMEOUT_MS", "soon");
  EXPECT_EQ(refusal({}).status, ExitStatus::kConfig);
  environment_.unset("GMS_REMAP_TIMEOUT_MS");
  set("ENGINE_ID", "x");
  EXPECT_EQ(refusal({}).status, ExitStatus::kConfig);
  EXPECT_EQ(refusal({"--no-failover"}).status, ExitStatus::kConfig);
}

TEST_F(ShadowOptionsTest, KvMemoryIsAskedOfServersOfItsOwn) {
  const engine::ShadowOptions shadow = read({"--socket-dir", "/s", "--devices", "0,2"});
  ASSERT_EQ(shadow.gms.size(), 2u);
  ASSERT_EQ(shadow.kv.size(), 2u);
  EXPECT_EQ(shadow.kv[1].socket, "/s/gms_2_kv_cache.sock");
  EXPECT_EQ(shadow.kv[1].device, base::DeviceOrdinal(2));
  EXPECT_THAT(shadow.devices, ElementsAre(base::DeviceOrdinal(0), base::DeviceOrdinal(2)));
  // By name, whichever program created the sockets.
  const engine::ShadowOptions named =
      read({"--gms", "/s/gms_GPU-1_weights.sock", "--gms", "/s/gms_GPU-1_kv_cache.sock"});
  ASSERT_EQ(named.gms.size(), 1u);
  ASSERT_EQ(named.kv.size(), 1u);
  EXPECT_EQ(named.kv[0].socket, "/s/gms_GPU-1_kv_cache.sock");
}

TEST_F(ShadowOptionsTest, EnginesThatCannotWorkBelowItAreRefusedOrWarnedOf) {
  const auto run = [](Words engine) {
    Options options;
    Words words{"--socket-dir", "/s", "--devices", "0", "--"};
    words.insert(words.end(), engine.begin(), engine.end());
    EXPECT_EQ(parse(options, words).kind, ParseResult::Kind::kRun);
    return to_shadow_options(options);
  };
  EXPECT_THAT(run({"my-engine"}).warnings, testing::IsEmpty());
  EXPECT_THAT(run({"vllm", "serve", "m", "--load-format", "gms"}).warnings,
              testing::Contains(HasSubstr("no socket '/s/gms_0_kv_cache.sock'")));
  EXPECT_EQ(test::failure_of([&] {
              run({"python3", "-m", "dynamo.vllm", "--gms-shadow-mode"});
            }).status,
            ExitStatus::kUsage);
  set("DYN_VLLM_GMS_SHADOW_MODE", "true");
  EXPECT_EQ(test::failure_of([&] { run({"my-engine"}); }).status, ExitStatus::kConfig);
}

TEST_F(ShadowOptionsTest, AnEngineIsNeeded) {
  Options options;
  ASSERT_EQ(parse(options, {}).kind, ParseResult::Kind::kRun);
  EXPECT_EQ(test::failure_of([&] { to_shadow_options(options); }).status, ExitStatus::kUsage);
}

std::string lock_of(const Options& options) {
  return options.command == Options::Command::kRun ? options.locks.front() : options.pair_lock();
}

TEST_F(ShadowOptionsTest, EnginesMeetBesideTheFirstLockOfTheirNode) {
  Options options;
  parse(options, {"--lock", "etcd:http://h:1/k", "--lock", "/a", "--lock", "unix:/b", "--kube-api",
                  "http://h:2", "--lock", "k8s:n/l", "--", "true"});
  const engine::ShadowOptions shadow = to_shadow_options(options);
  ASSERT_EQ(shadow.locks.size(), 4U);
  EXPECT_EQ(shadow.lock.path, "/a");
  EXPECT_EQ(shadow.locks[3].network.servers, std::vector<std::string>{"http://h:2"});
  Options afar;
  parse(afar, {"--lock", "etcd:http://h:1/k", "--", "true"});
  EXPECT_EQ(test::failure_of([&] { to_shadow_options(afar); }).status, ExitStatus::kUsage);
}

TEST_F(ShadowOptionsTest, EachCommandHasItsLock) {
  set("FAILOVER_LOCK_PATH", "/from/env");
  for (const Words& words : {Words{"status"}, {"switchover"}, {}}) {
    Options options;
    parse(options, words);
    EXPECT_EQ(lock_of(options), "/from/env");
    Words more = words;
    more.insert(more.end(), {"--lock", "/said"});
    Options said;
    parse(said, more);
    EXPECT_EQ(lock_of(said), "/said");
  }
}

}  // namespace
}  // namespace fo::fo_shadow
