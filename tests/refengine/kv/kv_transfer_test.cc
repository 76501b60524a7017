// KV caches of a small model move between two engines in this process.
#include "refengine/kv/kv_transfer.h"

#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>

#include "http/client.h"
#include "refengine/local_model.h"
#include "refengine/model/tokens.h"
#include "support/await.h"
#include "support/failure.h"

namespace fo::refengine {
namespace {

using fo::test::await;
using fo::test::soon;
using nlohmann::json;

constexpr const char* kBlocks = "/kv_snapshot/blocks";

http::Response post_to(const LocalEngine& engine, const std::string& path, const json& body,
                       const std::string& id = {}) {
  http::FetchOptions options;
  options.body = body.dump();
  if (!id.empty()) options.headers.emplace_back("X-Request-Id", id);
  return http::fetch("POST", engine.url(path), soon(), options);
}

http::Response get_from(const LocalEngine& engine, const std::string& path) {
  return http::fetch("GET", engine.url(path), soon());
}

// A source that stands between two engines and changes what the first one sends.
class ChangedSource {
 public:
  using Change = std::function<void(http::Response&)>;
  ChangedSource(const LocalEngine& source, std::string path, Change change)
      : server_([url = source.url(), path = std::move(path), change = std::move(change)](
                    const http::Request& request, http::Reply& reply) {
          return pass_on(url, path, change, request, reply);
        }) {}
  [[nodiscard]] std::string url() const { return server_.url(""); }

 private:
  static boost::asio::awaitable<void> pass_on(std::string url, std::string path, Change change,
                                              const http::Request& request, http::Reply& reply) {
    http::FetchOptions options;
    http::Response response =
        co_await http::async_fetch("GET", url + request.target, soon(), std::move(options));
    response.headers.clear();
    if (request.path == path) change(response);
    if (response.status != 0) {
      reply.answer(std::move(response));
      co_return;
    }
    // Status 0: an answer that ends in the middle.
    co_await reply.begin(200, "application/octet-stream");
    co_await reply.write(std::string_view(response.body).substr(0, response.body.size() / 2));
    reply.cut(http::Reply::Cut::kReset);
  }

  http::test::TestServer server_;
};

class KvTransferTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kTokens = 100;

  KvTransferTest() : whole_(complete(target_, prompt_, kTokens)) {}

  static json body_of(const std::vector<TokenId>& prompt, std::size_t max_tokens) {
    return {{"prompt", prompt}, {"max_tokens", max_tokens}, {"ignore_eos", true}};
  }
  static std::vector<TokenId> complete(const LocalEngine& engine,
                                       const std::vector<TokenId>& prompt, std::size_t count) {
    const http::Response response = post_to(engine, "/v1/completions", body_of(prompt, count));
    return json::parse(response.body)["choices"][0]["token_ids"];
  }

  // Begins the answer "r1" on the source, and holds it after some tokens.
  void begin(LocalEngine& source) {
    source.hold_after(kHeld);
    running_ = std::async(std::launch::async, [this, &source] {
      return post_to(source, "/v1/completions", body_of(prompt_, kTokens), "r1");
    });
    await([&] { return source.is_held(); });
  }
  // The held answer has this many tokens; the last one is not in the KV cache.
  static constexpr std::size_t kHeld = 40;
  [[nodiscard]] std::size_t computed() const { return prompt_.size() + kHeld - 1; }

  http::Response pull(const LocalEngine& target, const std::string& source,
                      const std::string& id = "r1") {
    return post_to(target, "/kv_snapshot/pull", {{"source", source}, {"request_id", id}});
  }

  [[nodiscard]] std::vector<TokenId> prompt_with(std::size_t tokens) const {
    std::vector<TokenId> prompt = prompt_;
    prompt.insert(prompt.end(), whole_.begin(),
                  whole_.begin() + static_cast<std::ptrdiff_t>(tokens));
    return prompt;
  }

  // Continues the answer after `tokens` tokens. Expects the rest of it.
  http::Response go_on(const LocalEngine& target, const std::string& snapshot, std::size_t tokens) {
    json body = body_of(prompt_with(tokens), kTokens - tokens);
    body["kv_transfer_params"] = {{"fo_snapshot", snapshot}};
    http::Response response = post_to(target, "/v1/completions", body);
    EXPECT_EQ(
        json::parse(response.body)["choices"][0]["token_ids"],
        std::vector<TokenId>(whole_.begin() + static_cast<std::ptrdiff_t>(tokens), whole_.end()));
    return response;
  }

  static json cached(const http::Response& response) {
    return json::parse(response.body)["usage"]["prompt_tokens_details"]["cached_tokens"];
  }

  // Expects that the continuation is the rest of the answer without a snapshot, too.
  void expect_replay() {
    const http::Response response = go_on(target_, "none", kHeld);
    EXPECT_EQ(response.header("x-fo-kv-snapshot"), "unknown");
    EXPECT_EQ(cached(response), 0);
  }

  LocalEngine target_;
  LocalEngine source_;
  const std::vector<TokenId> prompt_ = encode_text("Hello", target_.model().config());
  const std::vector<TokenId> whole_;
  // Ends before the engines.
  std::future<http::Response> running_;

  void TearDown() override {
    source_.release();
    if (running_.valid()) running_.get();
  }
};

TEST_F(KvTransferTest, ARunningRequestIsOffered) {
  begin(source_);
  const json offer = json::parse(get_from(source_, "/kv_snapshot?request_id=r1").body);
  EXPECT_EQ(offer["model"], "model");
  EXPECT_EQ(offer["fingerprint"], source_.model().fingerprint());
  EXPECT_EQ(offer["tokens"], prompt_with(kHeld - 1));
  EXPECT_EQ(offer["blocks"], (computed() + kBlockTokens - 1) / kBlockTokens);
  // Keys and values of 2 layers with 2 heads of 8 floats.
  EXPECT_EQ(offer["bytes"], computed() * 2 * 2 * 2 * 8 * sizeof(float));
}

TEST_F(KvTransferTest, TheContinuationIsEqualWithoutProcessingThePrompt) {
  begin(source_);
  const json pulled = json::parse(pull(target_, source_.url()).body);
  const std::size_t tokens = pulled["tokens"];
  EXPECT_GE(tokens, computed());
  const std::size_t before = target_.processed();
  const http::Response response = go_on(target_, pulled["snapshot"], kTokens - 10);
  EXPECT_EQ(response.header("x-fo-kv-snapshot"), "used");
  EXPECT_EQ(cached(response), tokens);
  // What the source computed after its offer, and each token but the last of the continuation.
  EXPECT_EQ(target_.processed() - before, prompt_.size() + kTokens - 10 - tokens + 9);
  source_.release();
  const json again = json::parse(running_.get().body)["choices"][0]["token_ids"];
  EXPECT_EQ(again, whole_) << "the source was not disturbed";
}

TEST_F(KvTransferTest, ASnapshotIsUsedOnceAndForItsTokensOnly) {
  begin(source_);
  const json pulled = json::parse(pull(target_, source_.url()).body);
  const std::string id = pulled["snapshot"];
  const http::Response shorter = go_on(target_, id, 3);
  EXPECT_EQ(shorter.header("x-fo-kv-snapshot"), "other tokens");
  EXPECT_EQ(cached(shorter), 0);
  EXPECT_EQ(go_on(target_, id, kTokens - 1).header("x-fo-kv-snapshot"), "used");
  EXPECT_EQ(go_on(target_, id, kTokens - 1).header("x-fo-kv-snapshot"), "unknown");
}

TEST_F(KvTransferTest, APromptOfExactlyItsTokensHasItsLastTokenProcessed) {
  begin(source_);
  const json pulled = json::parse(pull(target_, source_.url()).body);
  const std::size_t tokens = pulled["tokens"];
  const http::Response response = go_on(target_, pulled["snapshot"], tokens - prompt_.size());
  EXPECT_EQ(response.header("x-fo-kv-snapshot"), "used");
  EXPECT_EQ(cached(response), tokens - 1);
}

TEST_F(KvTransferTest, AScoredPromptIsProcessed) {
  begin(source_);
  const json pulled = json::parse(pull(target_, source_.url()).body);
  json body = body_of(prompt_with(kTokens - 1), 1);
  body["prompt_logprobs"] = 0;
  body["kv_transfer_params"] = {{"fo_snapshot", pulled["snapshot"]}};
  const http::Response response = post_to(target_, "/v1/completions", body);
  EXPECT_EQ(response.header("x-fo-kv-snapshot"), "the prompt is scored");
  EXPECT_EQ(cached(response), 0);
}

TEST_F(KvTransferTest, ACorruptedBlockIsRefusedByItsNumber) {
  begin(source_);
  const ChangedSource changed(source_, kBlocks, [](http::Response& response) {
    char& byte = response.body.at(response.body.size() - 5);
    byte = static_cast<char>(byte ^ 1);
  });
  const http::Response response = pull(target_, changed.url());
  EXPECT_EQ(response.status, 502);
  EXPECT_NE(response.body.find("does not match its checksum"), std::string::npos) << response.body;
  expect_replay();
}

TEST_F(KvTransferTest, ATruncatedTransferIsRefused) {
  begin(source_);
  const ChangedSource cut(source_, kBlocks, [](http::Response& response) { response.status = 0; });
  EXPECT_EQ(pull(target_, cut.url()).status, 502);
  const ChangedSource shorter(source_, kBlocks, [](http::Response& response) {
    response.body.resize(response.body.size() - 1);
  });
  EXPECT_EQ(pull(target_, shorter.url()).status, 502);
  const ChangedSource longer(source_, kBlocks,
                             [](http::Response& response) { response.body += "x"; });
  EXPECT_EQ(pull(target_, longer.url()).status, 502);
  expect_replay();
}

TEST_F(KvTransferTest, ASourceThatDiedIsRefused) {
  std::string url;
  {
    LocalEngine dead;
    url = dead.url();
  }
  EXPECT_EQ(pull(target_, url).status, 502);
  expect_replay();
}

TEST_F(KvTransferTest, ARequestThatEndedIsNotOffered) {
  EXPECT_EQ(get_from(source_, "/kv_snapshot?request_id=r1").status, 404);
  EXPECT_EQ(get_from(source_, "/kv_snapshot").status, 404);
  EXPECT_EQ(pull(target_, source_.url()).status, 502);
  begin(source_);
  EXPECT_EQ(get_from(source_, std::string(kBlocks) + "?request_id=r1&tokens=99").status, 400);
  EXPECT_EQ(get_from(source_, std::string(kBlocks) + "?request_id=r1&tokens=0").status, 400);
  EXPECT_EQ(get_from(source_, std::string(kBlocks) + "?request_id=r1").status, 400);
}

TEST_F(KvTransferTest, AWaitingRequestHasNoKvCache) {
  begin(source_);
  std::future<http::Response> waiting = std::async(std::launch::async, [this] {
    return post_to(source_, "/v1/completions", body_of(prompt_, 1), "r2");
  });
  await([&] { return get_from(source_, "/kv_snapshot?request_id=r2").status == 409; });
  source_.release();
  EXPECT_EQ(waiting.get().status, 200);
}

TEST_F(KvTransferTest, WithoutRoomNothingIsRead) {
  const LocalEngine full({.kv_snapshot_bytes = 1000});
  begin(source_);
  const ChangedSource source(source_, kBlocks,
                             [](http::Response&) { ADD_FAILURE() << "blocks were read"; });
  EXPECT_EQ(pull(full, source.url()).status, 503);
  const ChangedSource large(source_, "/kv_snapshot", [](http::Response& response) {
    json offer = json::parse(response.body);
    offer["tokens"] = std::vector<TokenId>(256, 1);
    response.body = offer.dump();
  });
  EXPECT_EQ(pull(target_, large.url()).status, 503);
}

TEST_F(KvTransferTest, AnotherModelIsRefused) {
  LocalEngine other({.seed = 4});
  begin(source_);
  EXPECT_EQ(pull(other, source_.url()).status, 409);
  const ChangedSource unknown(source_, "/kv_snapshot", [](http::Response& response) {
    json offer = json::parse(response.body);
    offer["tokens"][0] = 258;
    response.body = offer.dump();
  });
  EXPECT_EQ(pull(target_, unknown.url()).status, 502);
  const ChangedSource others(source_, "/kv_snapshot", [](http::Response& response) {
    json offer = json::parse(response.body);
    offer["tokens"][0] = 1;
    response.body = offer.dump();
  });
  EXPECT_EQ(pull(target_, others.url()).status, 502) << "the checksums cover the tokens";
}

TEST_F(KvTransferTest, OnlyAllowedAddressesAreAsked) {
  for (const char* source : {"http://10.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000",
                             "http://169.254.169.254:80"}) {
    EXPECT_EQ(pull(target_, source).status, 403) << source;
  }
  for (const char* source : {"https://127.0.0.1:8000", "unix:/run/x.sock", "http://127.0.0.1:1/x",
                             "127.0.0.1:8000", ""}) {
    EXPECT_EQ(pull(target_, source).status, 400) << source;
  }
  EXPECT_EQ(post_to(target_, "/kv_snapshot/pull", {{"source", 7}}).status, 400);
}

}  // namespace
}  // namespace fo::refengine
