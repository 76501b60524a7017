#include "route/resume/text/seam.h"

#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "http/scripted_server.h"
#include "loop/test_loop.h"
#include "net/address.h"
#include "route/answer/outcome.h"
#include "route/answer/stream_chunk.h"
#include "route/request/client_request.h"
#include "support/fds.h"
#include "support/ports.h"

namespace fo::test {
namespace {

using http::test::Peer;
using nlohmann::json;
using route::AttemptEnd;
using route::OutcomeClass;
using route::SeamCheck;
using route::TokenId;

/// A worker whose tokens are characters: 'a' is 97.
std::string text_of(const json& query) {
  std::string text;
  for (const json& id : query["tokens"]) text += static_cast<char>(id.get<int>());
  return text;
}

std::string answered(const std::string& body, int status = 200) {
  return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Type: application/json\r\n" +
         "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
}
std::string prompt_of(const json& query) {
  return answered(json{{"prompt", text_of(query)}}.dump());
}

class Seam : public FdCounting {
 protected:
  using Answer = std::function<std::string(const json& query)>;

  /// Each query is answered by `answer`: bytes, or none for a reset.
  void serve(Answer answer) {
    answer_ = std::move(answer);
    server_.emplace(loop_.io().get_executor(), [this](Peer& peer, int) { return run(peer, this); });
    const std::string url =
        "http://127.0.0.1:" + std::to_string(server_->origin().address.port) + "/base/";
    worker_->set_url(url, net::parse_url(url), std::nullopt);
    worker_->model = "m";
  }

  /// A completion of the prompt "hi", whose answer has these parts: ids, and their text.
  void begin(const std::vector<std::pair<std::string, std::string>>& parts,
             const std::string& members = "") {
    from_.method = "POST";
    from_.headers = {{"content-type", "application/json"}};
    from_.body = R"({"model":"m","prompt":"hi","stream":true)" + members + "}";
    request_ = route::read_request(from_, route::Api::kCompletions, {}).request.value();
    resumption_.emplace(*request_);
    fleet::Card card;
    card.special_ids["eos"] = '$';
    card.end_of_thinking = {'!'};
    resumption_->set_card(std::make_shared<const fleet::Card>(card));
    resumption_->begin();
    add(R"({"choices":[{"text":"","token_ids":[],"prompt_token_ids":[104,105]}]})");
    for (const auto& [tokens, text] : parts) {
      json ids = json::array();
      for (const char c : tokens) ids.push_back(static_cast<unsigned char>(c));
      add(json{{"choices", {{{"text", text}, {"token_ids", ids}}}}}.dump());
    }
  }
  void add(const std::string& data) { resumption_->on_event(data, route::read_stream_chunk(data)); }

  SeamCheck check(base::Deadline deadline = soon(),
                  base::Duration timeout = std::chrono::hours(1)) {
    queries_.clear();
    http::Fields headers{{"x-request-id", "r1"}};
    return loop_.run(
        route::check_seam(worker_, std::move(headers), *resumption_, deadline, timeout));
  }
  [[nodiscard]] std::string tokens() const {
    std::string tokens;
    for (const TokenId id : resumption_->transcript().answer()) tokens += static_cast<char>(id);
    return tokens;
  }

  TestLoop loop_;
  route::WorkerPtr worker_ =
      std::make_shared<route::Worker>("w", fleet::Health(fleet::HealthRules()));
  std::optional<route::Resumption> resumption_;
  std::vector<std::string> heads_;
  std::vector<json> queries_;

 private:
  static boost::asio::awaitable<void> run(Peer& peer, Seam* self) {
    const std::string head = co_await peer.read_head();
    if (head.empty()) co_return;
    const std::string body = co_await peer.read_until("}");
    self->heads_.push_back(head);
    self->queries_.push_back(json::parse(body));
    const std::string bytes = self->answer_(self->queries_.back());
    if (bytes.empty()) {
      peer.reset();
    } else {
      co_await peer.write(bytes);
    }
  }

  Answer answer_;
  std::optional<http::test::ScriptedServer> server_;
  http::Request from_;
  std::optional<route::ClientRequest> request_;
};

TEST_F(Seam, TheSameTextContinuesAtTheSafePoint) {
  serve(prompt_of);
  begin({{"ab", "ab"}, {"c", "c"}, {"d", ""}});
  const SeamCheck seam = check();
  EXPECT_EQ(seam.reason, "");
  EXPECT_EQ(tokens(), "abc");
  ASSERT_EQ(queries_.size(), 2U);
  EXPECT_EQ(queries_[0], json::parse(R"({"model":"m","tokens":[104,105],
                                         "skip_special_tokens":false})"));
  EXPECT_EQ(queries_[1]["tokens"], json({104, 105, 97, 98, 99}));
  EXPECT_TRUE(heads_[0].starts_with("POST /base/detokenize HTTP/1.1\r\n")) << heads_[0];
  EXPECT_NE(heads_[0].find("x-request-id: r1"), std::string::npos);
}

TEST_F(Seam, SglangNamesTheTextInAnotherWay) {
  serve([](const json& query) { return answered(json{{"text", text_of(query)}}.dump()); });
  begin({{"ab", "ab"}});
  EXPECT_EQ(check().reason, "");
}

TEST_F(Seam, SpecialTokensHaveNoText) {
  serve(prompt_of);
  begin({{"a$b", "ab"}});
  EXPECT_EQ(check().reason, "");
  EXPECT_EQ(tokens(), "a$b");
  begin({{"a$b", "a$b"}}, R"(,"skip_special_tokens":false)");
  EXPECT_EQ(check().reason, "");
}

// The last tokens brought only a part of their text, as those of an incomplete character do.
TEST_F(Seam, TheContinuationGoesBackToWhereTheTextFits) {
  serve(prompt_of);
  for (std::size_t more = 1; more <= 8; ++more) {
    const std::string rest(more, 'x');
    begin({{"ab", "ab"}, {"cd" + rest, "cde"}});
    if (more == 1) {
      EXPECT_EQ(check().reason, "");
      EXPECT_EQ(tokens(), "abcd");
      EXPECT_EQ(queries_.size(), 3U);
    } else {
      EXPECT_EQ(check().reason, "");
      EXPECT_EQ(tokens(), "abcd") << more;
    }
  }
  // Not further than eight tokens.
  begin({{"ab", "ab"}, {"cdxxxxxxxxx", "cde"}});
  EXPECT_EQ(check().reason, "the worker has another text for its tokens");
}

TEST_F(Seam, TokensThatTheClientCanCountAreNotProducedAgain) {
  serve(prompt_of);
  for (const char* members : {R"(,"return_token_ids":true)", R"(,"logprobs":1)"}) {
    begin({{"ab", "ab"}, {"cx", "cd"}}, members);
    EXPECT_EQ(check().reason, "the worker has another text for its tokens");
    EXPECT_EQ(queries_.size(), 2U);
    // It would have to bring text again, without a token of its own.
    begin({{"ab", "abc"}}, members);
    EXPECT_EQ(check().reason, "the worker has another text for its tokens");
  }
}

TEST_F(Seam, AWorkerWithOtherTextCannotContinue) {
  serve([](const json& query) {
    return answered(json{{"prompt", std::string(query["tokens"].size(), '?')}}.dump());
  });
  begin({{"abcdefgh", "abcdefgh"}, {"ij", "ij"}});
  const SeamCheck seam = check();
  EXPECT_EQ(seam.reason, "the worker has another text for its tokens");
  EXPECT_FALSE(seam.failure);
  EXPECT_EQ(tokens(), "abcdefghij") << "nothing is forgotten";
}

TEST_F(Seam, WithoutTextNothingIsCompared) {
  serve(prompt_of);
  begin({{"ab", ""}});
  EXPECT_EQ(check().reason, "");
  EXPECT_EQ(tokens(), "");
  EXPECT_TRUE(queries_.empty());
}

TEST_F(Seam, TextThatComesAgainIsNotSentAgainAfterASecondFailure) {
  serve(prompt_of);
  begin({{"a", "A"}});
  for (int failure = 0; failure < 2; ++failure) {
    EXPECT_EQ(check().reason, "");
    EXPECT_EQ(tokens(), "");
    resumption_->begin_continuation();
    add(R"({"choices":[{"text":"","token_ids":[],"prompt_token_ids":[104,105]}]})");
  }
  const std::string again = R"({"choices":[{"text":"A","token_ids":[97]}]})";
  const auto output = resumption_->on_event(again, route::read_stream_chunk(again));
  EXPECT_EQ(output.mismatch, "");
  EXPECT_EQ(output.events, "");
}

TEST_F(Seam, AnAnswerThatBeginsBesideAPartOfACharacterCannotContinue) {
  // The worker's text for '%', the first byte of a character.
  serve([](const json& query) {
    std::string text = text_of(query);
    if (text.ends_with('%')) text.replace(text.size() - 1, 1, "\xEF\xBF\xBD");
    return answered(json{{"prompt", text}}.dump());
  });
  begin({{"x!a%", "a"}});
  EXPECT_EQ(check().reason, "the first tokens of its text end within a character");
  begin({{"x!a", "a"}, {"%", ""}});
  EXPECT_EQ(check().reason, "");
  EXPECT_EQ(tokens(), "x!a");
}

TEST_F(Seam, AWorkerThatGivesNoTextHasFailed) {
  struct Case {
    std::string bytes;
    const char* reason;
    OutcomeClass kind;
    bool is_retryable;
  };
  const std::string where = "/detokenize: ";
  for (const Case& one : std::vector<Case>{
           {answered("{}", 404), "status 404", OutcomeClass::kNeutral, false},
           {answered("{}", 400), "status 400", OutcomeClass::kNeutral, false},
           {answered("{}", 503), "status 503", OutcomeClass::kBackpressure, true},
           {answered("{}", 502), "status 502", OutcomeClass::kFault, true},
           {answered("{}"), "an answer without a text", OutcomeClass::kFault, true},
           {answered(R"({"prompt":7})"), "an answer without a text", OutcomeClass::kFault, true},
           {answered("no JSON"), "an answer without a text", OutcomeClass::kFault, true},
           {"no HTTP\r\n\r\n", "", OutcomeClass::kFault, true},
           // A connection that ends may be that of an engine that has ended.
           {"", "", OutcomeClass::kRefused, true}}) {
    serve([&](const json&) { return one.bytes; });
    begin({{"ab", "ab"}});
    const SeamCheck seam = check();
    ASSERT_TRUE(seam.failure) << one.bytes;
    EXPECT_NE(seam.reason.find(one.reason), std::string::npos) << seam.reason;
    EXPECT_FALSE(seam.reason.empty());
    const route::Outcome outcome = route::classify(*seam.failure);
    EXPECT_EQ(outcome.kind, one.kind) << one.bytes;
    EXPECT_EQ(outcome.is_retryable, one.is_retryable) << one.bytes;
    EXPECT_EQ(tokens(), "ab");
  }
}

TEST_F(Seam, ARefusedConnectionIsNoFault) {
  const ReservedPort port;
  worker_->set_url(port.url(), net::parse_url(port.url()), std::nullopt);
  begin({{"ab", "ab"}});
  EXPECT_EQ(check().failure.value().end, AttemptEnd::kRefused);
}

TEST_F(Seam, AWorkerThatIsLateIsBusy) {
  serve(prompt_of);
  begin({{"ab", "ab"}});
  const SeamCheck seam = check(soon(), base::Duration::zero());
  EXPECT_EQ(route::classify(seam.failure.value()).kind, OutcomeClass::kBackpressure);
}

TEST_F(Seam, TheDeadlineOfTheRequestSaysNothingOfTheWorker) {
  serve(prompt_of);
  begin({{"ab", "ab"}});
  const SeamCheck seam = check(base::Deadline::after(base::Duration::zero()));
  EXPECT_EQ(seam.failure.value().end, AttemptEnd::kDeadline);
}

}  // namespace
}  // namespace fo::test
