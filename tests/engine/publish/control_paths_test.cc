#include "engine/publish/control_paths.h"

#include <gtest/gtest.h>

#include <string>

namespace fo::engine {
namespace {

bool is_refused(EngineKind kind, const std::string& target) {
  const std::optional<std::string> path = plain_path(target);
  return path && is_control_path(kind, *path);
}

TEST(ControlPaths, AreRecognisedInEverySpelling) {
  for (const char* target :
       {"/sleep",           "/sleep?level=1", "/sleep/",        "//sleep",
        "/./sleep",         "/sleep/.",       "/x/../sleep",    "/%73leep",
        "/%73%6c%65%65%70", "/%2573leep",     "/%2e%2e/sleep",  "/x%2f..%2fsleep",
        "/sleep#x",         "/Sleep",         "http://h/sleep", "http://h:1//sleep?x",
        "HTTP://h/%73leep", "ftp://h/sleep",  "/root/sleep",    "/root/v1/load_lora_adapter",
        "/sleep/x"}) {
    EXPECT_TRUE(is_refused(EngineKind::kVllm, target)) << target;
  }
}

TEST(ControlPaths, WhatClientsAskForIsNone) {
  for (const EngineKind kind :
       {EngineKind::kVllm, EngineKind::kSglang, EngineKind::kDynamo, EngineKind::kCommand}) {
    for (const char* target : {"/",
                               "*",
                               "/health",
                               "/metrics",
                               "/version",
                               "/ping",
                               "/v1/models",
                               "/v1/completions",
                               "/v1/chat/completions?sleep=/sleep",
                               "/v1/responses/1/cancel",
                               "/v1/models/org/resume",
                               "/tokenize",
                               "/generate",
                               "/get_server_info",
                               "/sleeping",
                               "/asleep",
                               "/sleep/../health",
                               "http://h",
                               "http://h/v1/models",
                               "http://sleep/",
                               "http://h?/sleep"}) {
      EXPECT_FALSE(is_refused(kind, target)) << target;
    }
  }
}

TEST(ControlPaths, AreThoseOfTheEnginesKind) {
  for (const char* target :
       {"/wake_up", "/collective_rpc", "/v1/load_lora_adapter", "/server_info"}) {
    EXPECT_TRUE(is_refused(EngineKind::kVllm, target)) << target;
    EXPECT_FALSE(is_refused(EngineKind::kSglang, target)) << target;
  }
  for (const char* target : {"/release_memory_occupation", "/flush_cache", "/load_lora_adapter",
                             "/load_lora_adapter_from_tensors", "/hicache/storage-backend/clear"}) {
    EXPECT_FALSE(is_refused(EngineKind::kVllm, target)) << target;
    EXPECT_TRUE(is_refused(EngineKind::kSglang, target)) << target;
  }
  for (const EngineKind kind : {EngineKind::kVllm, EngineKind::kSglang}) {
    for (const char* target : {"/update_weights", "/update_weights_from_disk", "/start_profile"}) {
      EXPECT_TRUE(is_refused(kind, target)) << target;
    }
    EXPECT_FALSE(is_refused(kind, "/clear_kv_blocks"));
  }
  for (const EngineKind kind : {EngineKind::kDynamo, EngineKind::kCommand, EngineKind::kCold}) {
    for (const char* target : {"/sleep", "/flush_cache", "/engine/control/x", "/clear_kv_blocks"}) {
      EXPECT_TRUE(is_refused(kind, target)) << target;
    }
  }
}

TEST(ControlPaths, ATargetOfAnotherFormHasNoPath) {
  for (const char* target : {"", "sleep", "h:80", "/a b", "/a\tb", "/\x7f", "/\xc3\xa9", "/%00",
                             "/%0a", "://h/sleep", "?/sleep"}) {
    EXPECT_EQ(plain_path(target), std::nullopt) << target;
  }
}

TEST(ControlPaths, APlainPathIsTheSameForEverySpelling) {
  EXPECT_EQ(plain_path("http://h/A/./b//%63/../d/?x=/y"), "/a/b/d");
  EXPECT_EQ(plain_path("/%zz%4"), "/%zz%4");
  EXPECT_EQ(plain_path("/../.."), "/");
}

}  // namespace
}  // namespace fo::engine
