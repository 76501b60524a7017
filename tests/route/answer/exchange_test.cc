#include "route/answer/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/card/card.h"
#include "http/sse.h"
#include "route/request/client_request.h"

namespace fo::test {
namespace {

using route::Api;
using route::Exchange;
using Kind = route::AnswerFault::Kind;
using State = Exchange::State;

const http::ResponseHead kStreamHead{200, {{"Content-Type", "text/event-stream; charset=utf-8"}}};
const http::ResponseHead kJsonHead{200, {{"Content-Type", "application/json"}}};

std::string event(const std::string& data) { return "data: " + data + "\n\n"; }

std::string choice(int index, const std::string& members) {
  return event(R"({"choices":[{"index":)" + std::to_string(index) + "," + members + "}]}");
}

std::string finish(int index, const std::string& reason) {
  return choice(index, R"("delta":{},"finish_reason":")" + reason + "\"");
}

const std::string kRole = choice(0, R"("delta":{"role":"assistant","content":""})");
const std::string kOneChoice = choice(0, R"("delta":{"content":"Hi"})");
const std::string kFinish = finish(0, "stop");
const std::string kUsage = event(R"({"choices":[],"usage":{"completion_tokens":1}})");
const std::string kDone = event("[DONE]");
const std::string kErrorData = R"({"error":{"message":"no memory","code":500}})";
const std::string kError = event(kErrorData);

route::ClientRequest streamed(Api api = Api::kChat, std::uint64_t choices = 1) {
  route::ClientRequest request;
  request.api = api;
  request.is_streamed = true;
  request.choices = choices;
  return request;
}

/// An attempt whose client takes what it gets after each piece.
class Answer {
 public:
  explicit Answer(const route::ClientRequest& request, const Exchange::Limits& limits = {})
      : exchange(request, limits) {
    exchange.begin_attempt();
  }

  Answer& head(const http::ResponseHead& head) {
    exchange.on_head(head);
    return *this;
  }
  Answer& body(std::string_view bytes) {
    exchange.on_body(bytes);
    output += exchange.take_output();
    return *this;
  }
  Answer& end() {
    exchange.on_end();
    output += exchange.take_output();
    return *this;
  }
  Answer& broken() {
    exchange.on_broken("reset");
    output += exchange.take_output();
    return *this;
  }
  [[nodiscard]] Kind fault() const { return exchange.fault().value().kind; }

  Exchange exchange;
  std::string output;
};

Answer chat(std::string_view bytes, std::uint64_t choices = 1) {
  Answer answer(streamed(Api::kChat, choices));
  answer.head(kStreamHead).body(bytes);
  return answer;
}

TEST(Exchange, AStreamIsHeldUntilItBringsContent) {
  Answer answer = chat(kRole);
  EXPECT_FALSE(answer.exchange.has_head());
  EXPECT_FALSE(answer.exchange.is_delivered());
  answer.body(kOneChoice);
  EXPECT_TRUE(answer.exchange.has_head());
  EXPECT_EQ(answer.output, kRole + kOneChoice);
  EXPECT_TRUE(answer.exchange.is_delivered());
  EXPECT_EQ(answer.exchange.delivered_tokens(), 1U);
  answer.body(kFinish + kDone);
  EXPECT_EQ(answer.exchange.state(), State::kDone);
  EXPECT_EQ(answer.output, kRole + kOneChoice + kFinish + kDone);
}

TEST(Exchange, ASecondAttemptLeavesNothingOfTheFirst) {
  Answer answer = chat(kRole);
  answer.broken();
  EXPECT_EQ(answer.exchange.state(), State::kFailed);
  EXPECT_FALSE(answer.exchange.is_delivered());
  answer.exchange.begin_attempt();
  EXPECT_FALSE(answer.exchange.fault());
  answer.head(kStreamHead).body(kRole + kOneChoice + kFinish + kDone);
  EXPECT_EQ(answer.output, kRole + kOneChoice + kFinish + kDone);
}

TEST(Exchange, ContentThatArrivesWithAFaultIsNotDeliveredBeforeAnyOther) {
  Answer answer = chat(kRole + kOneChoice + kError);
  EXPECT_EQ(answer.fault(), Kind::kErrorFrame);
  EXPECT_FALSE(answer.exchange.has_head());
  EXPECT_EQ(answer.output, "");
  EXPECT_FALSE(answer.exchange.is_delivered());
  EXPECT_EQ(answer.exchange.delivered_tokens(), 0U);
}

TEST(Exchange, EventsBeforeAFaultAreDeliveredIfOthersWere) {
  Answer answer = chat(kRole + kOneChoice);
  answer.body(kOneChoice + kOneChoice + kError + kDone);
  EXPECT_EQ(answer.fault(), Kind::kErrorFrame);
  EXPECT_EQ(answer.output, kRole + kOneChoice + kOneChoice + kOneChoice);
  EXPECT_EQ(answer.exchange.delivered_tokens(), 3U);
}

TEST(Exchange, NothingIsReadAfterTheEnd) {
  for (const std::string& end : {kFinish + kDone, kError}) {
    Answer answer = chat(kOneChoice);
    answer.body(end);
    const State state = answer.exchange.state();
    const std::string output = answer.output;
    answer.body(kOneChoice).broken().end().body(kOneChoice);
    EXPECT_EQ(answer.exchange.state(), state);
    EXPECT_EQ(answer.output, output);
  }
}

TEST(Exchange, AnErrorFrameNamesItsStatusAndReason) {
  struct Case {
    const char* data;
    int status;
    const char* reason;
  };
  for (
      const Case& a_case : {
          // vLLM, SGLang, and older versions of vLLM.
          Case{R"({"error":{"message":"bad","type":"BadRequestError","param":null,"code":400}})",
               400, "bad"},
          Case{
              R"({"error":{"object":"error","message":"full","type":"X","param":null,"code":503}})",
              503, "full"},
          Case{R"({"object":"error","message":"old","type":"X","param":null,"code":500})", 500,
               "old"},
          Case{R"({"error":{"message":"two\nlines","code":"502"}})", 502, "two lines"},
          Case{R"({"error":{"message":["no text"],"code":{"a":1}}})", 0, ""},
          Case{R"({"error":"in words"})", 0, "in words"},
      }) {
    Answer answer = chat(event(a_case.data));
    EXPECT_EQ(answer.fault(), Kind::kErrorFrame) << a_case.data;
    EXPECT_EQ(answer.exchange.fault()->error_code, a_case.status) << a_case.data;
    EXPECT_EQ(answer.exchange.fault()->reason, a_case.reason);
    const http::Response response = answer.exchange.failed_answer(true);
    EXPECT_EQ(response.status, a_case.status == 0 ? 500 : a_case.status);
    EXPECT_EQ(response.body, a_case.data);
    EXPECT_EQ(response.content_type, "application/json");
  }
}

TEST(Exchange, AReasonIsShort) {
  const Answer answer =
      chat(event(R"({"error":{"message":")" + std::string(base::kMiB / 2, 'x') + "\"}}"));
  EXPECT_LE(answer.exchange.fault().value().reason.size(), 200U);
}

TEST(Exchange, AStreamIsCompleteWithAFinishReasonForEachChoice) {
  const std::string texts = choice(2, R"("delta":{"content":"c"})") + kOneChoice;
  for (const auto& order : std::vector<std::vector<int>>{{0, 1, 2}, {2, 0, 1}, {1, 2, 0}}) {
    std::string stream = texts;
    for (const int index : order) {
      EXPECT_EQ(chat(stream, 3).broken().fault(), Kind::kTruncated);
      stream += finish(index, "stop");
    }
    EXPECT_EQ(chat(stream, 3).broken().output, stream + kDone);
  }
  // The same choice twice is one.
  EXPECT_EQ(chat(texts + finish(1, "stop") + finish(1, "length"), 2).end().fault(),
            Kind::kTruncated);
  // All in one event.
  const std::string both = event(R"({"choices":[{"index":1,"text":"b","finish_reason":"stop"},)"
                                 R"({"index":0,"text":"a","finish_reason":"length"}]})");
  EXPECT_EQ(chat(both, 2).end().output, both + kDone);
}

TEST(Exchange, TheEndOfOneChoiceWithoutContentDeliversNothingYet) {
  Answer answer = chat(kRole + finish(1, "stop"), 2);
  EXPECT_FALSE(answer.exchange.has_head());
  answer.body(kFinish);
  EXPECT_EQ(answer.output, kRole + finish(1, "stop") + kFinish);
}

TEST(Exchange, NothingIsAFaultAfterTheLastFinishReason) {
  const std::string answered = kRole + kOneChoice + kFinish;
  for (const std::string& rest :
       {kDone, kError, kError + kDone, event("rubbish"), finish(0, "abort"), kUsage,
        event(std::string(2 * base::kMiB, ' ')), std::string("data: half"), std::string()}) {
    const std::string expected = answered + (rest == kUsage ? kUsage : "") + kDone;
    EXPECT_EQ(chat(answered + rest).broken().output, expected) << rest.substr(0, 50);
    EXPECT_EQ(chat(answered).body(rest).end().output, expected) << rest.substr(0, 50);
  }
}

TEST(Exchange, AnAbortIsAFaultEvenBesideAFinishReason) {
  for (const char* reason : {"abort", "error"}) {
    EXPECT_EQ(chat(kOneChoice + finish(0, reason) + kDone).fault(), Kind::kAborted);
  }
  const Answer answer = chat(
      kOneChoice +
      event(
          R"({"choices":[{"index":0,"finish_reason":"stop"},{"index":1,"finish_reason":"abort"}]})"));
  EXPECT_EQ(answer.fault(), Kind::kAborted);
}

TEST(Exchange, AnEarlyEndIsAFault) {
  for (const std::string& stream : {std::string(), kRole, kOneChoice, kOneChoice + kUsage}) {
    EXPECT_EQ(chat(stream + kDone).fault(), Kind::kTruncated);
    EXPECT_EQ(chat(stream).end().fault(), Kind::kTruncated);
    EXPECT_EQ(chat(stream).broken().fault(), Kind::kTruncated);
  }
  Answer answer(streamed());
  answer.broken();
  EXPECT_EQ(answer.fault(), Kind::kTruncated);
  EXPECT_EQ(answer.exchange.fault()->reason, "reset");
}

TEST(Exchange, AnInvalidEventIsAFault) {
  for (const std::string& data :
       {std::string("rubbish"), std::string("{"), std::string("[]"), std::string("1"),
        std::string(R"({"choices":[{"delta":{"content":"half a character: )") + "\xc3\"}}]}",
        std::string("{\0}", 3), std::string("[DONE] "), std::string(100'000, '[')}) {
    EXPECT_EQ(chat(event(data)).fault(), Kind::kInvalid) << data.substr(0, 50);
  }
}

TEST(Exchange, FieldsOfWrongTypesAreIgnored) {
  for (const char* data :
       {"{}", R"({"choices":null})", R"({"choices":{"finish_reason":"stop"}})",
        R"({"choices":[null,1,"stop",["stop"]]})", R"({"choices":[{"finish_reason":["stop"]}]})",
        R"({"choices":[{"delta":"text","text":1,"token_ids":7}]})",
        R"({"choices":[{"delta":{"content":["text"],"tool_calls":[],"function_call":null}}]})",
        R"({"error":null})", R"({"error":false})", R"({"object":["error"]})"}) {
    Answer answer = chat(event(data));
    EXPECT_EQ(answer.exchange.state(), State::kReading) << data;
    EXPECT_FALSE(answer.exchange.has_head()) << data;
  }
}

TEST(Exchange, EventsHaveALimit) {
  const Exchange::Limits limits{.held = 100, .first_event = 1000, .event = 200};
  const auto text_of = [](std::size_t size) {
    return choice(0, R"("delta":{"content":")" + std::string(size, 'x') + "\"}");
  };
  Answer answer(streamed(), limits);
  answer.head(kStreamHead).body(kRole + text_of(900)).body(text_of(130));
  EXPECT_EQ(answer.output, kRole + text_of(900) + text_of(130));
  answer.body(text_of(200));
  EXPECT_EQ(answer.fault(), Kind::kInvalid);
  EXPECT_EQ(answer.output, kRole + text_of(900) + text_of(130));

  Answer too_long(streamed(), limits);
  too_long.head(kStreamHead).body(text_of(1000));
  EXPECT_EQ(too_long.fault(), Kind::kInvalid);
}

TEST(Exchange, AStreamWithoutContentIsNotHeldForEver) {
  Answer answer(streamed(), {.held = 100, .first_event = 1000, .event = 200});
  answer.head(kStreamHead);
  std::size_t sent = 0;
  for (; sent < 10'000 && answer.exchange.state() == State::kReading; sent += kRole.size()) {
    answer.body(kRole);
  }
  EXPECT_EQ(answer.fault(), Kind::kInvalid);
  EXPECT_LE(sent, 1200U + kRole.size());
}

TEST(Exchange, AnIdIsNotRepeatedInEachEvent) {
  Answer answer = chat("id: " + std::string(100'000, 'x') + "\n\n");
  for (int i = 0; i < 3; ++i) answer.body(kOneChoice);
  EXPECT_EQ(answer.output, kOneChoice + kOneChoice + kOneChoice);
}

TEST(Exchange, CommentsAreLeftOutAndTypesAndLinesAreKept) {
  // SGLang sends the ids of tokens as an event of this type.
  const std::string typed = "event: sglext_ids\ndata: {\"choices\":[],\ndata: \"x\":1}\n\n";
  Answer answer = chat(": ping\n\n" + kOneChoice + "retry: 5\n\n" + typed);
  EXPECT_EQ(answer.output, kOneChoice + typed);
}

TEST(Exchange, TokensAreCountedByTheirIds) {
  Answer answer = chat(choice(0, R"("delta":{"content":"abc"},"token_ids":[1,2,3])") + kOneChoice);
  EXPECT_EQ(answer.exchange.attempt_tokens(), 4U);
  EXPECT_EQ(answer.exchange.delivered_tokens(), 4U);
  // Tokens without a text yet are tokens, but no content.
  Answer silent = chat(choice(0, R"("delta":{},"token_ids":[1,2])"));
  EXPECT_EQ(silent.exchange.attempt_tokens(), 2U);
  EXPECT_FALSE(silent.exchange.has_head());
}

TEST(Exchange, AnAnswerInOnePieceIsHeldUntilItIsComplete) {
  Answer answer{route::ClientRequest()};
  answer.head(kJsonHead).body("{\"a\":").body("1}");
  EXPECT_FALSE(answer.exchange.has_head());
  answer.end();
  EXPECT_EQ(answer.exchange.state(), State::kDone);
  EXPECT_EQ(answer.output, "{\"a\":1}");

  Answer truncated{route::ClientRequest()};
  truncated.head(kJsonHead).body("{\"a\":").broken();
  EXPECT_EQ(truncated.fault(), Kind::kTruncated);
  EXPECT_EQ(truncated.output, "");
  EXPECT_FALSE(truncated.exchange.is_delivered());
}

TEST(Exchange, TheTokensOfAnAnswerInOnePieceAreThoseOfItsUsage) {
  route::ClientRequest request;
  request.api = Api::kChat;
  Answer answer(request);
  answer.head(kJsonHead).body(R"({"choices":[{"message":{"content":"Hi"}}],"usage":)");
  answer.body(R"({"prompt_tokens":3,"completion_tokens":7}})").end();
  EXPECT_EQ(answer.exchange.delivered_tokens(), 7U);
  EXPECT_EQ(answer.exchange.prompt_tokens(), 3U);
}

TEST(Exchange, TheTokensOfAStreamAreAtLeastThoseOfItsUsage) {
  // A chunk may bring several tokens.
  Answer answer = chat(kOneChoice + kFinish);
  EXPECT_EQ(answer.exchange.delivered_tokens(), 1U);
  EXPECT_FALSE(answer.exchange.prompt_tokens());
  answer.body(event(R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}})") + kDone);
  EXPECT_EQ(answer.exchange.delivered_tokens(), 4U);
  EXPECT_EQ(answer.exchange.prompt_tokens(), 9U);

  Answer less = chat(kOneChoice + kOneChoice + kFinish + kUsage + kDone);
  EXPECT_EQ(less.exchange.delivered_tokens(), 2U);
  EXPECT_FALSE(less.exchange.prompt_tokens());
}

TEST(Exchange, AStreamOfAnotherApiHasTheTokensOfItsUsage) {
  Answer answer(streamed(Api::kResponses));
  answer.head(kStreamHead).body(": a comment\n\n");
  EXPECT_EQ(answer.exchange.attempt_tokens(), 0U);
  answer.body("event: response.created\n" + event(R"({"response":{"id":"resp_1"}})"));
  EXPECT_EQ(answer.exchange.attempt_tokens(), 0U) << "the engine computes the prompt";
  EXPECT_EQ(answer.exchange.tokens(), 0U);
  EXPECT_EQ(answer.exchange.response_id(), "resp_1");
  answer.body("event: response.output_text.delta\n" + event(R"({"delta":"a"})"));
  EXPECT_EQ(answer.exchange.attempt_tokens(), 1U);
  EXPECT_EQ(answer.exchange.delivered_tokens(), 1U);
  answer.body(event(R"({"response":{"usage":{"input_tokens":7,"output_tokens":20}}})")).end();
  EXPECT_EQ(answer.exchange.delivered_tokens(), 20U);
  EXPECT_EQ(answer.exchange.prompt_tokens(), 7U);
}

TEST(Exchange, ALongAnswerIsDeliveredAsItArrives) {
  Answer answer{route::ClientRequest(), {.held = 10, .first_event = 1000, .event = 200}};
  answer.head(kJsonHead).body("0123456789");
  EXPECT_EQ(answer.output, "");
  answer.body("a").body("b");
  EXPECT_EQ(answer.output, "0123456789ab");
  answer.broken();
  EXPECT_EQ(answer.fault(), Kind::kTruncated);
  EXPECT_TRUE(answer.exchange.is_delivered());
  EXPECT_FALSE(answer.exchange.is_chunk_stream());
}

TEST(Exchange, TellsWhichBytesTakeLongToRead) {
  const std::string kLong(200'000, 'x');
  Answer stream(streamed());
  stream.head(kStreamHead);
  EXPECT_FALSE(stream.exchange.is_long(kOneChoice));
  stream.body(R"(data: {"choices":[{"index":0,"delta":{"content":")" + kLong);
  EXPECT_FALSE(stream.exchange.is_long("yyy")) << "the event goes on";
  EXPECT_TRUE(stream.exchange.is_long("\"}}]}\n\n"));
  stream.body("\"}}]}\n\n");
  EXPECT_FALSE(stream.exchange.is_long("\n"));
  EXPECT_FALSE(stream.exchange.has_long_end());

  Answer whole{route::ClientRequest{}};
  whole.head(kJsonHead).body("{}");
  EXPECT_FALSE(whole.exchange.has_long_end());
  whole.body(kLong);
  EXPECT_TRUE(whole.exchange.has_long_end());
}

TEST(Exchange, AStreamOfAnotherApiIsPassedOnFromItsFirstByte) {
  Answer answer(streamed(Api::kResponses));
  answer.head(kStreamHead);
  EXPECT_FALSE(answer.exchange.has_head());
  answer.body("event: resp");
  EXPECT_TRUE(answer.exchange.has_head());
  answer.body("onse\n\n").end();
  EXPECT_EQ(answer.output, "event: response\n\n");
  EXPECT_EQ(answer.exchange.state(), State::kDone);
}

TEST(Exchange, AnAnswerInOnePieceThatTheEngineAbortedIsNone) {
  for (const char* reason : {"abort", "error"}) {
    Answer answer{route::ClientRequest{}};
    answer.head(kJsonHead).body(R"({"choices":[{"index":0,"message":{"content":"Hi"},)");
    answer.body(R"("finish_reason":")" + std::string(reason) + "\"}]}").end();
    EXPECT_EQ(answer.exchange.state(), State::kFailed);
    EXPECT_EQ(answer.fault(), Kind::kAborted);
    EXPECT_EQ(answer.output, "");
  }
  // A text that has the word is not.
  Answer answer{route::ClientRequest{}};
  answer.head(kJsonHead).body(R"({"choices":[{"text":"\"abort\"","finish_reason":"stop"}]})").end();
  EXPECT_EQ(answer.exchange.state(), State::kDone);
}

TEST(Exchange, WithoutEventsAStreamIsAnAnswerInOnePiece) {
  Answer answer(streamed());
  answer.head(kJsonHead).body(R"({"choices":[]})");
  EXPECT_FALSE(answer.exchange.has_head());
  EXPECT_FALSE(answer.exchange.is_chunk_stream());
  EXPECT_EQ(answer.end().output, R"({"choices":[]})");
  // And the other way round.
  Answer stream{route::ClientRequest()};
  stream.head(kStreamHead).body("data: 1");
  EXPECT_EQ(stream.output, "data: 1");
}

TEST(Exchange, AStatusOfAnErrorIsKeptWithItsBody) {
  for (const bool is_broken : {false, true}) {
    Answer answer(streamed());
    answer.head({503, {{"content-type", "text/plain"}, {"Retry-After", "7"}, {"Server", "x"}}});
    answer.body("over").body("load");
    if (is_broken) {
      answer.broken();
    } else {
      answer.end();
    }
    EXPECT_EQ(answer.fault(), Kind::kStatus);
    EXPECT_EQ(answer.exchange.fault()->status, 503);
    EXPECT_EQ(answer.output, "");
    const http::Response response = answer.exchange.failed_answer(false);
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(response.body, "overload");
    EXPECT_EQ(response.content_type, "text/plain");
    EXPECT_EQ(response.headers, (http::Fields{{"Retry-After", "7"}, {"x-should-retry", "false"}}));
  }
}

TEST(Exchange, AnErrorOfAnyLengthAndTypeTakesLittleMemory) {
  Answer answer(streamed());
  answer.head({400, kStreamHead.headers});
  for (int i = 0; i < 100; ++i) answer.body(std::string(10'000, 'x'));
  answer.end();
  EXPECT_EQ(answer.fault(), Kind::kStatus);
  EXPECT_EQ(answer.exchange.failed_answer(true).body, std::string(64 * base::kKiB, 'x'));
}

TEST(Exchange, HeadersOfTheConnectionAreDropped) {
  Answer answer(streamed());
  answer.head({200,
               {{"Content-Type", "TEXT/Event-Stream"},
                {"Connection", "close, X-Inner"},
                {"connection", "x-other\t"},
                {"X-Inner", "1"},
                {"x-OTHER", "1"},
                {"Transfer-Encoding", "chunked"},
                {"Content-Length", "5"},
                {"Keep-Alive", "timeout=5"},
                {"x-request-id", "theirs"},
                {"x-fo-request-id", "theirs"},
                {"x-fo-level", "4"},
                {"x-should-retry", "false"},
                {"Location", "http://10.0.0.1/"},
                {"Alt-Svc", "h3=\":443\""},
                {"Cache-Control", "no-cache"},
                {"x-inner-not", "1"}}});
  answer.body(kOneChoice);
  EXPECT_EQ(answer.output, kOneChoice);
  EXPECT_EQ(answer.exchange.head().headers, (http::Fields{{"Content-Type", "TEXT/Event-Stream"},
                                                          {"Cache-Control", "no-cache"},
                                                          {"x-inner-not", "1"}}));
}

/// A stream of events, some of them invalid, with line ends of each kind.
std::string random_stream(std::mt19937& random) {
  const std::vector<std::string> common{kRole,
                                        kOneChoice,
                                        kOneChoice,
                                        kOneChoice,
                                        kUsage,
                                        ": ping\n\n",
                                        "id: 7\n\n",
                                        choice(1, R"("delta":{"content":"\u00e9\n"})"),
                                        choice(1, R"("text":"x","token_ids":[1,2])"),
                                        "event: a\ndata: {\ndata: }\n\n",
                                        finish(0, "stop"),
                                        finish(1, "length")};
  const std::vector<std::string> rare{kDone, kError, event("rubbish"), finish(1, "abort"),
                                      event(std::string(500, ' '))};
  std::string stream;
  for (auto left = random() % 20; left > 0; --left) {
    const auto& events = random() % 16 == 0 ? rare : common;
    stream += events[random() % events.size()];
  }
  const std::vector<std::string> ends{"\n", "\r\n", "\r"};
  std::string mixed;
  for (const char c : stream) {
    mixed += c == '\n' ? ends[random() % ends.size()] : std::string(1, c);
  }
  return mixed;
}

TEST(Exchange, PiecesChangeNothing) {
  std::mt19937 random(3);
  const Exchange::Limits limits{.held = 100, .first_event = 400, .event = 300};
  const route::ClientRequest request = streamed(Api::kCompletions, 2);
  int done = 0;
  int failed_late = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string stream = random_stream(random);
    Answer by_bytes(request, limits);
    by_bytes.head(kStreamHead);
    for (const char c : stream) by_bytes.body({&c, 1});
    by_bytes.end();
    const bool is_done = by_bytes.exchange.state() == State::kDone;
    done += is_done ? 1 : 0;
    failed_late += !is_done && by_bytes.exchange.is_delivered() ? 1 : 0;

    Answer answer(request, limits);
    answer.head(kStreamHead);
    for (std::string_view rest = stream; !rest.empty();) {
      const std::size_t size = std::min<std::size_t>(random() % 200 + 1, rest.size());
      answer.body(rest.substr(0, size));
      rest.remove_prefix(size);
    }
    answer.end();
    ASSERT_EQ(answer.exchange.state(), by_bytes.exchange.state()) << stream;
    ASSERT_EQ(answer.exchange.attempt_tokens(), by_bytes.exchange.attempt_tokens()) << stream;
    if (answer.exchange.is_delivered()) {
      ASSERT_EQ(answer.output, by_bytes.output) << stream;
      ASSERT_EQ(answer.exchange.delivered_tokens(), by_bytes.exchange.delivered_tokens());
      // The usage of a complete answer may name more.
      ASSERT_GE(answer.exchange.delivered_tokens(), answer.exchange.attempt_tokens());
      if (!is_done) {
        ASSERT_EQ(answer.exchange.delivered_tokens(), answer.exchange.attempt_tokens());
      }
    } else {
      ASSERT_EQ(answer.output, "");
      ASSERT_EQ(answer.exchange.delivered_tokens(), 0U);
    }
    if (is_done) continue;
    ASSERT_EQ(answer.fault(), by_bytes.fault()) << stream;
  }
  EXPECT_GT(done, 100);
  EXPECT_GT(failed_late, 100);
}

// --- Answers that continue.

/// A chat, or a completion, of at most four tokens, whose workers name their tokens.
class Continued : public testing::Test {
 protected:
  explicit Continued(Api api = Api::kCompletions) : request_(read(api, from_)), answer_(request_) {
    auto card = std::make_shared<fleet::Card>();
    card->context_length = 100;
    answer_.exchange.resumption().set_card(std::move(card));
    answer_.exchange.set_form(Exchange::RequestForm::kResumable);
    answer_.exchange.begin_attempt();
    answer_.head(kStreamHead);
  }

  static std::string part(const std::string& ids, const std::string& text,
                          const std::string& more = "") {
    return choice(0, R"("text":")" + text + R"(","token_ids":[)" + ids + "]" + more);
  }
  /// Another worker continues; it names `prompt`.
  void resume(const std::string& prompt) {
    answer_.exchange.set_form(Exchange::RequestForm::kContinuation);
    route::Resumption& resumption = answer_.exchange.resumption();
    resumption.rewind(resumption.transcript().safe_point(), 0);
    answer_.exchange.begin_attempt();
    answer_.head(kStreamHead);
    answer_.body(part("", "", R"(,"prompt_token_ids":[)" + prompt + "]"));
  }
  void begin() { answer_.body(part("7", "a", R"(,"prompt_token_ids":[5])")); }

  static std::string made(const std::string& text, const std::string& finish = "null") {
    return choice(0, R"("text":")" + text + R"(","logprobs":null,"finish_reason":)" + finish +
                         R"(,"stop_reason":null)");
  }
  const std::string begun_ = choice(0, R"("text":"a")");

  http::Request from_;
  const route::ClientRequest request_;
  Answer answer_;

 private:
  static route::ClientRequest read(Api api, http::Request& from) {
    from.method = "POST";
    from.headers = {{"content-type", "application/json"}};
    from.body = R"({"model":"m","stream":true,"max_tokens":4,)" +
                std::string(api == Api::kChat ? R"("messages":[]})" : R"("prompt":"x"})");
    return route::read_request(from, api, {}).request.value();
  }
};

TEST_F(Continued, TheTokensOfThePromptAreKnownWithTheFirstOnes) {
  EXPECT_FALSE(answer_.exchange.prompt_tokens());
  begin();
  EXPECT_EQ(answer_.exchange.prompt_tokens(), 1U);
}

TEST_F(Continued, TheRestOfTheAnswerFollows) {
  begin();
  answer_.body(part("8", "b") + "data: {\"choices\":[{\"te").broken();
  EXPECT_EQ(answer_.fault(), Kind::kTruncated);
  EXPECT_EQ(answer_.exchange.resume_refusal(), "");
  EXPECT_FALSE(answer_.exchange.finish_here());
  resume("5,7,8");
  answer_.body(part("9", "c") + part("10", "d", R"(,"finish_reason":"length")") + kUsage + kDone);
  EXPECT_EQ(answer_.exchange.state(), State::kDone);
  EXPECT_EQ(answer_.output,
            begun_ + choice(0, R"("text":"b")") + made("c") + made("d", "\"length\"") + kDone);
  EXPECT_EQ(answer_.exchange.delivered_tokens(), 4U);
  EXPECT_EQ(answer_.exchange.attempt_tokens(), 2U);
  EXPECT_FALSE(answer_.exchange.is_cut_short());
}

TEST_F(Continued, BytesOfTheDeadWorkerAfterItsFaultAreIgnored) {
  begin();
  answer_.body(kError + part("8", "b") + kDone).body(part("9", "c") + kDone).end();
  EXPECT_EQ(answer_.fault(), Kind::kErrorFrame);
  EXPECT_EQ(answer_.output, begun_);
  resume("5,7");
  answer_.body(part("8", "b"));
  EXPECT_EQ(answer_.output, begun_ + made("b"));
}

TEST_F(Continued, WhatArrivedWithTheFaultIsDeliveredWithTheRest) {
  begin();
  answer_.exchange.on_body(part("8", "b") + kError);
  resume("5,7,8");
  EXPECT_EQ(answer_.output, begun_) << "not yet";
  answer_.body(part("9", "c"));
  EXPECT_EQ(answer_.output, begun_ + choice(0, R"("text":"b")") + made("c"));
  EXPECT_EQ(answer_.exchange.delivered_tokens(), 3U);
}

TEST_F(Continued, WhatArrivedWithTheFaultNeedNotBeProducedAgain) {
  EXPECT_FALSE(answer_.exchange.has_part());
  const std::string first = part("7", "a", R"(,"prompt_token_ids":[5])");
  answer_.exchange.on_body(first + part("8", "b") + kError);
  EXPECT_TRUE(answer_.exchange.has_part());
  EXPECT_FALSE(answer_.exchange.is_delivered());
  resume("5,7,8");
  answer_.body(part("9", "c"));
  EXPECT_EQ(answer_.output, begun_ + choice(0, R"("text":"b")") + made("c"));
  EXPECT_EQ(answer_.exchange.delivered_tokens(), 3U);
}

TEST_F(Continued, AnotherPromptIsAFault) {
  begin();
  answer_.broken();
  resume("1,5,7");
  EXPECT_EQ(answer_.fault(), Kind::kInvalid);
  EXPECT_EQ(answer_.exchange.fault()->reason,
            "the worker does not continue the answer: its prompt has other tokens");
  EXPECT_EQ(answer_.output, begun_);
  // The next one may have the right one.
  resume("5,7");
  answer_.body(part("8", "b"));
  EXPECT_EQ(answer_.output, begun_ + made("b"));
}

TEST_F(Continued, AStatusOrAnAnswerInOnePieceIsAFault) {
  begin();
  answer_.broken();
  answer_.exchange.set_form(Exchange::RequestForm::kContinuation);
  answer_.exchange.begin_attempt();
  answer_.head({503, kJsonHead.headers}).body("{}").end();
  EXPECT_EQ(answer_.fault(), Kind::kStatus);
  EXPECT_EQ(answer_.exchange.fault()->status, 503);
  EXPECT_TRUE(answer_.exchange.is_chunk_stream());
  answer_.exchange.begin_attempt();
  answer_.head(kJsonHead);
  EXPECT_EQ(answer_.fault(), Kind::kInvalid);
  answer_.body("{}").end();
  EXPECT_EQ(answer_.output, begun_);
  EXPECT_EQ(answer_.exchange.resume_refusal(), "");
}

TEST_F(Continued, AnAnswerThatHasReachedItsLimitEndsHere) {
  begin();
  answer_.body(part("8,9", "bc") + part("10", "")).broken();
  EXPECT_TRUE(answer_.exchange.finish_here());
  EXPECT_EQ(answer_.exchange.state(), State::kDone);
  answer_.output += answer_.exchange.take_output();
  EXPECT_EQ(answer_.output, begun_ + choice(0, R"("text":"bc")") + choice(0, R"("text":"")") +
                                made("", "\"length\"") + kDone);
  EXPECT_EQ(answer_.exchange.delivered_tokens(), 4U);
}

TEST_F(Continued, AFinishedAnswerNeedsNothingMore) {
  begin();
  answer_.broken();
  resume("5,7");
  answer_.body(part("8", "b", R"(,"finish_reason":"stop")")).broken();
  EXPECT_EQ(answer_.exchange.state(), State::kDone);
  EXPECT_EQ(answer_.output, begun_ + made("b", "\"stop\"") + kDone);
}

TEST_F(Continued, EventsWithoutTextAreNotHeldForEver) {
  Answer small(request_, {.held = 100, .first_event = 1000, .event = 200});
  small.exchange.set_form(Exchange::RequestForm::kResumable);
  small.exchange.begin_attempt();
  small.head(kStreamHead);
  std::size_t sent = 0;
  for (; sent < 10'000 && small.exchange.state() == State::kReading; sent += kRole.size()) {
    small.body(kRole);
  }
  EXPECT_EQ(small.fault(), Kind::kInvalid);
  EXPECT_LE(sent, 1200U + kRole.size());
  EXPECT_EQ(small.output, "");
}

class ContinuedChat : public Continued {
 protected:
  ContinuedChat() : Continued(Api::kChat) {}
};

// Otherwise the role, which is held with it, would be lost with the worker.
TEST_F(ContinuedChat, HalfACharacterIsNoContentYet) {
  const std::string role =
      choice(0, R"("delta":{"role":"assistant"})").insert(7, R"("prompt_token_ids":[5],)");
  answer_.body(role + choice(0, R"("delta":{"content":"\ud83d"},"token_ids":[7])"));
  EXPECT_FALSE(answer_.exchange.has_head());
  answer_.broken();
  EXPECT_FALSE(answer_.exchange.is_delivered());
  answer_.exchange.begin_attempt();
  answer_.head(kStreamHead);
  answer_.body(role + choice(0, R"("delta":{"content":"a"},"token_ids":[7])"));
  EXPECT_EQ(answer_.output,
            choice(0, R"("delta":{"role":"assistant"})") + choice(0, R"("delta":{"content":"a"})"));
}

}  // namespace
}  // namespace fo::test
