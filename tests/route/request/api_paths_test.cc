#include "route/request/api_paths.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace fo::test {
namespace {

using route::Api;
using route::find_api;
using route::item_of;
using route::methods_of;

TEST(ApiPaths, EachPathHasItsMethod) {
  const std::vector<std::pair<std::string, Api>> posts{
      {"/v1/chat/completions", Api::kChat},
      {"/v1/completions", Api::kCompletions},
      {"/v1/responses", Api::kResponses},
      {"/v1/responses/resp_1/cancel", Api::kResponse},
      {"/v1/embeddings", Api::kOther},
      {"/v1/messages", Api::kOther},
      {"/v1/rerank", Api::kOther},
      {"/v1/score", Api::kOther},
      {"/v1/audio/transcriptions", Api::kOther},
      {"/v1/audio/speech", Api::kOther},
      {"/tokenize", Api::kOther},
      {"/detokenize", Api::kOther}};
  const std::vector<std::pair<std::string, Api>> gets{
      {"/v1/models", Api::kModels},
      {"/v1/models/m", Api::kModel},
      {"/v1/models/org/name", Api::kModel},
      {"/v1/responses/resp_1", Api::kResponse},
      {"/v1/responses/resp_1/input_items", Api::kResponse}};
  for (const auto& [path, api] : posts) {
    EXPECT_EQ(find_api("POST", path, {}), api) << path;
    for (const char* method : {"GET", "HEAD", "PUT", "DELETE", "post", "POSTX", ""}) {
      EXPECT_EQ(find_api(method, path, {}), Api::kWrongMethod) << method << " " << path;
    }
  }
  for (const auto& [path, api] : gets) {
    EXPECT_EQ(find_api("GET", path, {}), api) << path;
    const bool is_own = api != Api::kResponse;  // answered by the router
    EXPECT_EQ(find_api("HEAD", path, {}), is_own ? api : Api::kWrongMethod) << path;
    for (const char* method : {"POST", "PUT", "get", "HEAD,", ",", ""}) {
      EXPECT_EQ(find_api(method, path, {}), Api::kWrongMethod) << method << " " << path;
    }
  }
  EXPECT_EQ(find_api("DELETE", "/v1/responses/resp_1", {}), Api::kResponse);
}

TEST(ApiPaths, AllowNamesTheMethods) {
  EXPECT_EQ(methods_of("/v1/chat/completions"), "POST");
  EXPECT_EQ(methods_of("/v1/audio/speech"), "POST");
  EXPECT_EQ(methods_of("/v1/models/m"), "GET, HEAD");
  EXPECT_EQ(methods_of("/v1/responses/resp_1"), "GET, DELETE");
  EXPECT_EQ(methods_of("/v1/responses/resp_1/cancel"), "POST");
}

TEST(ApiPaths, AllOtherPathsAreRefused) {
  for (const std::string path : {"",
                                 "/",
                                 "//",
                                 "*",
                                 "v1/completions",
                                 "/health",
                                 "/metrics",
                                 "/sleep",
                                 "/wake_up",
                                 "/collective_rpc",
                                 "/update_weights_from_disk",
                                 "/v1/load_lora_adapter",
                                 "/flush_cache",
                                 "/v1/completions/",
                                 "/v1/completions/x",
                                 "/V1/completions",
                                 "/v1/completions\n",
                                 "/v1/completions?a",
                                 "//v1/completions",
                                 "/v1//completions",
                                 "/./v1/completions",
                                 "/v1/x/../completions",
                                 "/v1/completions/.",
                                 "/v1/models/",
                                 "/v1/models/a/../b",
                                 "/v1/models//a",
                                 "/v1/models/..",
                                 "/v1/responses/",
                                 "/v1/responses/a/b",
                                 "/v1/responses/a/cancel/x",
                                 "/v1/responses//cancel",
                                 "/v1/responses/a b",
                                 "/v1/responses/a\r\nx",
                                 "/v1/responses/a?b",
                                 "/v1/responses/\xc3\xa9",
                                 "/v1/responses/..",
                                 "/v1/audio/",
                                 "/v1/audio/a/b",
                                 "/v1/audio/a b",
                                 "/v1/audio/..",
                                 "/v1/audio/."}) {
    for (const char* method : {"GET", "POST"}) {
      EXPECT_EQ(find_api(method, path, {}), Api::kNotFound) << method << " " << path;
    }
  }
}

TEST(ApiPaths, AnOperatorMayAllowMore) {
  const std::vector<std::string> allowed{"/metrics/", "/v1/../health", "/pooling"};
  EXPECT_EQ(find_api("GET", "/metrics/", allowed), Api::kOther);
  EXPECT_EQ(find_api("PATCH", "/pooling", allowed), Api::kOther);
  EXPECT_EQ(find_api("GET", "/metrics", allowed), Api::kNotFound);
  EXPECT_EQ(find_api("GET", "/pooling/x", allowed), Api::kNotFound);
  EXPECT_EQ(find_api("GET", "/v1/../health", allowed), Api::kNotFound);
}

TEST(ApiPaths, AnItemIsTheRestOfThePath) {
  EXPECT_EQ(item_of(Api::kModel, "/v1/models/org/name"), "org/name");
  EXPECT_EQ(item_of(Api::kResponse, "/v1/responses/resp_1"), "resp_1");
  EXPECT_EQ(item_of(Api::kResponse, "/v1/responses/resp_1/cancel"), "resp_1");
  EXPECT_EQ(item_of(Api::kResponse, "/v1/responses/cancel"), "cancel");
}

}  // namespace
}  // namespace fo::test
