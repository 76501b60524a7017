#include "engine/publish/http_framing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "engine/publish/judge.h"

namespace fo::engine {
namespace {

constexpr Side kClient = Side::kClient;
constexpr Side kEngine = Side::kEngine;

/// The visible state.
auto state_of(const HttpFraming& framing) {
  return std::tuple(framing.is_between_requests(), framing.is_opaque(),
                    framing.is_in_message(kClient), framing.is_in_message(kEngine),
                    framing.unseen(kClient), framing.unseen(kEngine));
}

void show(HttpFraming& framing, Side side, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t taken = framing.see(side, bytes);
    ASSERT_GT(taken, 0U);
    ASSERT_LE(taken, bytes.size());
    bytes.remove_prefix(taken);
  }
}

struct Said {
  Side side;
  std::string bytes;
};

/// The state after all bytes, each text in pieces of `size`.
auto state_after(const std::vector<Said>& talk, std::size_t size = std::string::npos) {
  HttpFraming framing;
  for (const Said& said : talk) {
    for (std::size_t at = 0; at < said.bytes.size(); at += std::min(size, said.bytes.size())) {
      show(framing, said.side, std::string_view(said.bytes).substr(at, size));
    }
  }
  return state_of(framing);
}

bool is_between(const std::vector<Said>& talk) { return std::get<0>(state_after(talk)); }
bool is_opaque(const std::vector<Said>& talk) { return std::get<1>(state_after(talk)); }

Said get(const std::string& fields = "") {
  return {kClient, "GET /v1/models HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n"};
}
Said client(const std::string& bytes) { return {kClient, bytes}; }
Said engine(const std::string& bytes) { return {kEngine, bytes}; }
Said head(const std::string& fields, const std::string& status = "200 OK") {
  return {kEngine, "HTTP/1.1 " + status + "\r\n" + fields + "\r\n"};
}
Said ok() { return engine("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); }

// Conversations after which the connection is between two requests again.
const std::vector<std::vector<Said>> kComplete{
    {},
    {get(), ok()},
    {get(), ok(), get(), ok()},
    {get(), engine("HTTP/1.1 200\r\ncontent-LENGTH:\t 2 \r\n\r\nok")},
    {client("\r\n\r\nGET / HTTP/1.1\r\n\r\n"), ok(), client("\r\n")},
    {client("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET /"), ok()},
    {client("POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n5;a=\"b\"\r\nHTTP/\r\n0A \r\n"
            "0123456789\r\n0\r\nTrailer: x\r\n\r\n"),
     ok()},
    {get(), head("Transfer-Encoding: chunked\r\n"), engine("2\r\nok\r\n0\r\n\r\n")},
    {get(), head("Content-Length: 0\r\n")},
    {client("HEAD / HTTP/1.1\r\n\r\n"), head("Content-Length: 1000\r\n")},
    {client("HEAD / HTTP/1.1\r\n\r\n"), head("Transfer-Encoding: chunked\r\n")},
    {client("HEAD / HTTP/1.1\r\n\r\n"), head("")},
    {get(), head("", "204 No Content"), get(), head("Content-Length: 7\r\n", "304 Not Modified")},
    {client("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"),
     head("", "100 Continue"), head("Link: </a>\r\n", "103 Early Hints"), client("hi"), ok()},
    {get(), get(), client("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"), ok(), ok(), ok()},
    {get("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"), ok()},
    {client("CONNECT x:1 HTTP/1.1\r\n\r\n"), head("Content-Length: 0\r\n", "405 No")},
    {client("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"),
     engine("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok")},
    // An answer before the request was complete.
    {client("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na"), ok(), client("bc")},
};

// Conversations that are not complete.
const std::vector<std::vector<Said>> kUnderWay{
    {client("G")},
    {client("GET / HTTP/1.1\r\nHost: x\r\n")},
    {get()},
    {get(), engine("H")},
    {get(), engine("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")},
    {get(), head("Transfer-Encoding: chunked\r\n"), engine("2\r\nok\r\n0\r\n")},
    {get(), head("", "100 Continue")},
    {get(), get(), ok()},
    {get(), ok(), client("P")},
    {client("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na"), ok()},
    {client("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), ok()},
};

// Conversations that become opaque.
const std::vector<std::vector<Said>> kOpaque{
    {get("Connection: close\r\n")},
    {get("Connection: foo , CLOSE\r\n")},
    {client("GET / HTTP/1.0\r\n\r\n")},
    {client("PRI * HTTP/2.0\r\n\r\n")},
    {client("GET /\r\n")},
    {client("GET / HTTP/1.1\n\n")},
    {client("\x16\x03\x01 hello\r\n")},
    {client("GET / HTTP/1.1\r\nNo colon\r\n")},
    {client("GET / HTTP/1.1\r\nA: b\r\n folded\r\n")},
    {client("GET / HTTP/1.1\r\nContent-Length : 1\r\n")},
    {client("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n")},
    {client("GET / HTTP/1.1\r\nContent-Length: -1\r\n")},
    {client("GET / HTTP/1.1\r\nContent-Length: +1\r\n")},
    {client("GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n")},
    {client("GET / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n")},
    {client("GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n")},
    {client("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")},
    {get("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n")},
    {client("POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n")},
    {get("Transfer-Encoding: chunked\r\n"), client("\r\n")},
    {get("Transfer-Encoding: chunked\r\n"), client("5x\r\n")},
    {get("Transfer-Encoding: chunked\r\n"), client("1000000000000000\r\n")},
    {get("Transfer-Encoding: chunked\r\n"), client("1\r\nab\r\n")},
    {engine("HTTP/1.1 408 Request Timeout\r\n")},
    {get(), engine("HTTP/1.1 2x0 OK\r\n")},
    {get(), engine("HTTP/1.1 2000 OK\r\n")},
    {get(), engine("HTTP/1.1 020 OK\r\n")},
    {get(), engine("HTTP/1.1\r\n")},
    {get(), engine("ICY 200 OK\r\n")},
    {get(), head("Server: x\r\n")},
    {get(), head("Connection: close\r\nContent-Length: 2\r\n")},
    {get(), engine("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n")},
    {get("Upgrade: websocket\r\n"), head("Upgrade: websocket\r\n", "101 Switching Protocols")},
    {client("CONNECT x:1 HTTP/1.1\r\n\r\n"), head("Content-Length: 0\r\n")},
};

TEST(HttpFraming, IsBetweenRequestsAfterCompleteOnes) {
  for (std::size_t i = 0; i < kComplete.size(); ++i) EXPECT_TRUE(is_between(kComplete[i])) << i;
}

TEST(HttpFraming, IsBusyInTheMiddle) {
  for (std::size_t i = 0; i < kUnderWay.size(); ++i) {
    EXPECT_FALSE(is_between(kUnderWay[i])) << i;
    EXPECT_FALSE(is_opaque(kUnderWay[i])) << i;
  }
}

TEST(HttpFraming, GivesUpWhatItCannotFollow) {
  for (std::size_t i = 0; i < kOpaque.size(); ++i) {
    EXPECT_TRUE(is_opaque(kOpaque[i])) << i;
    EXPECT_FALSE(is_between(kOpaque[i])) << i;
    std::vector<Said> talk = kOpaque[i];
    talk.insert(talk.end(), {get(), ok(), client("\r\n"), engine("\r\n0\r\n\r\n")});
    EXPECT_TRUE(is_opaque(talk)) << i;
  }
}

TEST(HttpFraming, SeesTheSameInPiecesOfAnySize) {
  for (const auto* talks : {&kComplete, &kUnderWay, &kOpaque}) {
    for (std::size_t i = 0; i < talks->size(); ++i) {
      const auto whole = state_after((*talks)[i]);
      for (std::size_t size = 1; size < 200; ++size) {
        ASSERT_EQ(state_after((*talks)[i], size), whole) << i << " in pieces of " << size;
      }
    }
  }
}

TEST(HttpFraming, IsBusyAtEveryByteOfAnExchange) {
  const std::string request =
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
  const std::string response = ok().bytes;
  HttpFraming framing;
  for (const char c : request) {
    EXPECT_EQ(framing.see(kClient, std::string_view(&c, 1)), 1U);
    EXPECT_FALSE(framing.is_between_requests());
  }
  EXPECT_FALSE(framing.is_in_message(kClient));
  for (std::size_t i = 0; i < response.size(); ++i) {
    EXPECT_FALSE(framing.is_between_requests());
    EXPECT_EQ(framing.see(kEngine, std::string_view(response).substr(i, 1)), 1U);
  }
  EXPECT_TRUE(framing.is_between_requests());
}

TEST(HttpFraming, TakesOneMessageAtATime) {
  HttpFraming framing;
  const std::string one = "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
  EXPECT_EQ(framing.see(kClient, one + one), one.size());
  EXPECT_FALSE(framing.is_in_message(kClient));
  EXPECT_EQ(framing.see(kClient, one), one.size());
  const std::string continues = "HTTP/1.1 100 Continue\r\n\r\n";
  EXPECT_EQ(framing.see(kEngine, continues + ok().bytes + ok().bytes),
            continues.size() + ok().bytes.size());
  EXPECT_FALSE(framing.is_between_requests());
  EXPECT_EQ(framing.see(kEngine, ok().bytes), ok().bytes.size());
  EXPECT_TRUE(framing.is_between_requests());
}

TEST(HttpFraming, SaysHowMuchNeedNotBeSeen) {
  HttpFraming framing;
  EXPECT_EQ(framing.unseen(kClient), 0U);
  show(framing, kClient, "POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\nabc");
  EXPECT_EQ(framing.unseen(kClient), 999997U);
  framing.pass(kClient, 999996);
  EXPECT_TRUE(framing.is_in_message(kClient));
  framing.pass(kClient, 1);
  EXPECT_FALSE(framing.is_in_message(kClient));
  EXPECT_EQ(framing.unseen(kClient), 0U);
  show(framing, kEngine, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n");
  EXPECT_EQ(framing.unseen(kEngine), 0xfffffU);
  framing.pass(kEngine, 0xfffff);
  show(framing, kEngine, "\r\n10\r\n");
  EXPECT_EQ(framing.unseen(kEngine), 16U);
  framing.pass(kEngine, 16);
  show(framing, kEngine, "\r\n0\r\n\r\n");
  EXPECT_TRUE(framing.is_between_requests());
  show(framing, kClient, "?\r\n");
  EXPECT_GT(framing.unseen(kClient), std::uint64_t{1} << 62);
  framing.pass(kEngine, std::uint64_t{1} << 62);
  EXPECT_GT(framing.unseen(kEngine), std::uint64_t{1} << 62);
}

TEST(HttpFraming, BoundsHeadsTrailersAndPipelines) {
  const std::string field = "A: " + std::string(1019, 'x') + "\r\n";  // 1 KiB
  std::string fields;
  for (int i = 0; i < 63; ++i) fields += field;
  EXPECT_TRUE(is_between({get(fields), ok()}));
  EXPECT_TRUE(is_opaque({get(fields + field)}));
  EXPECT_TRUE(is_opaque({client("GET /" + std::string(70000, 'x'))}));
  EXPECT_TRUE(is_opaque({get(), head(fields + field)}));
  const Said chunked = get("Transfer-Encoding: chunked\r\n");
  EXPECT_TRUE(is_between({chunked, client("0\r\n" + fields + "\r\n"), ok()}));
  EXPECT_TRUE(is_opaque({chunked, client("0\r\n" + fields + field + "\r\n")}));
  EXPECT_TRUE(is_opaque({chunked, client("1;" + std::string(70000, 'x'))}));
  std::string chunks;
  for (int i = 0; i < 30000; ++i) chunks += "1\r\na\r\n";
  EXPECT_TRUE(is_between({chunked, client(chunks + "0\r\n\r\n"), ok()}));
  std::vector<Said> many(HttpFraming::kMaxPipelined, get());
  EXPECT_FALSE(is_opaque(many));
  many.push_back(get());
  EXPECT_TRUE(is_opaque(many));
}

/// The bytes of a client that are forwarded, in pieces of `size`.
struct Passed {
  std::string bytes;
  std::optional<int> refusal;
  bool is_over = false;
};
Passed pass_through(std::string_view said, std::size_t size = std::string::npos) {
  HttpFraming framing(kJudge);
  Passed passed;
  std::string kept;
  while (!said.empty()) {
    const std::string_view piece = said.substr(0, size);
    said.remove_prefix(piece.size());
    show(framing, kClient, piece);
    kept += piece;
    EXPECT_LE(framing.withheld(), kept.size());
    passed.bytes += kept.substr(0, kept.size() - framing.withheld());
    kept = framing.is_over() ? "" : kept.substr(kept.size() - framing.withheld());
    EXPECT_FALSE(framing.is_over() && framing.is_between_requests());
  }
  passed.refusal = framing.refusal();
  passed.is_over = framing.is_over();
  return passed;
}

TEST(HttpFraming, AJudgeChangesNothingForRequestsThatPass) {
  for (const auto* talks : {&kComplete, &kUnderWay}) {
    for (std::size_t i = 0; i < talks->size(); ++i) {
      HttpFraming framing(kJudge);
      for (const Said& said : (*talks)[i]) show(framing, said.side, said.bytes);
      EXPECT_EQ(state_of(framing), state_after((*talks)[i])) << i;
      EXPECT_FALSE(framing.is_over()) << i;
    }
  }
}

TEST(HttpFraming, ARequestThatIsRefusedIsWithheldWhole) {
  const std::string one = "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
  const std::string chunked =
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
  for (const std::string& before : {std::string(), "\r\n" + one, one + chunked + one}) {
    for (const char* refused : {"POST /no HTTP/1.1\r\nHost: x\r\n\r\n", "GET /no HTTP/1.0\r\n"}) {
      const std::string said = before + refused + one;
      for (std::size_t size = 1; size <= said.size(); ++size) {
        const Passed passed = pass_through(said, size);
        ASSERT_EQ(passed.bytes, before) << size;
        ASSERT_EQ(passed.refusal, 403) << size;
      }
    }
  }
}

// Bytes in which an engine might see a request that was not judged.
TEST(HttpFraming, WhatCannotBeUnderstoodIsRefusedAndNothingAfterItPasses) {
  const std::string hidden = "POST /no HTTP/1.1\r\n\r\n";
  for (const std::string& head :
       {std::string("GET / HTTP/1.1\n\n"), std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        std::string("\x16\x03\x01 hello\r\n"),
        std::string("GET / HTTP/1.1\r\nContent-Length : 30\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 30\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nContent-Length: 30\r\nTransfer-Encoding: chunked\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nA: b\rContent-Length: 30\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nA: \0\r\n\r\n", 24), std::string(70000, 'x')}) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::string::npos}) {
      const Passed passed = pass_through(head + hidden, size);
      EXPECT_EQ(passed.bytes, "") << head;
      EXPECT_EQ(passed.refusal, 400) << head;
    }
  }
  const std::string chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* body : {"0\n\r\n", "3\r\nabcd\r\n", "0;a=\rb\r\n\r\n", "0\r\nA: b\n\r\n"}) {
    const Passed passed = pass_through(chunked + body + hidden);
    EXPECT_TRUE((chunked + body).starts_with(passed.bytes)) << body;
    EXPECT_EQ(passed.refusal, 400) << body;
  }
}

TEST(HttpFraming, NothingPassesAfterALastRequest) {
  for (const std::string& last :
       {std::string("POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"),
        std::string("GET / HTTP/1.0\r\n\r\n")}) {
    for (std::size_t size = 1; size < 80; ++size) {
      const Passed passed = pass_through(last + "POST /no HTTP/1.1\r\n\r\n" + last, size);
      ASSERT_EQ(passed.bytes, last) << size;
      ASSERT_EQ(passed.refusal, std::nullopt) << size;
      ASSERT_TRUE(passed.is_over) << size;
    }
  }
}

TEST(HttpFraming, ARefusalComesAfterTheAnswersBeforeIt) {
  HttpFraming framing(kJudge);
  show(framing, kClient, get().bytes + get().bytes + "GET /no HTTP/1.1\r\n\r\n");
  EXPECT_EQ(framing.refusal(), 403);
  EXPECT_FALSE(framing.is_answered());
  show(framing, kEngine, ok().bytes);
  EXPECT_FALSE(framing.is_answered());
  show(framing, kEngine, ok().bytes);
  EXPECT_TRUE(framing.is_answered());
  EXPECT_FALSE(framing.is_between_requests());
}

TEST(HttpFraming, AnAnswerThatEndsWithTheConnectionFreesNoClient) {
  HttpFraming framing(kJudge);
  show(framing, kClient, get().bytes);
  show(framing, kEngine, head("Connection: close\r\n").bytes + "to the end");
  EXPECT_FALSE(framing.is_between_requests());
  show(framing, kClient, "POST /no HTTP/1.1\r\n\r\n");
  EXPECT_EQ(framing.refusal(), 403);
}

TEST(HttpFraming, AConnectionThatWasUpgradedIsJudgedNoMore) {
  HttpFraming framing(kJudge);
  show(framing, kClient, get("Upgrade: websocket\r\n").bytes);
  show(framing, kEngine, head("Upgrade: websocket\r\n", "101 Switching Protocols").bytes);
  show(framing, kClient, "POST /no HTTP/1.1\n\n");
  EXPECT_TRUE(framing.is_opaque());
  EXPECT_EQ(framing.refusal(), std::nullopt);
  EXPECT_EQ(framing.withheld(), 0U);
}

TEST(HttpFraming, AwaitsAnAnswerToAWholeRequestAlone) {
  HttpFraming framing;
  const std::string request = "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\na";
  for (const char& c : request) {
    EXPECT_FALSE(framing.awaits_answer());
    show(framing, kClient, std::string_view(&c, 1));
  }
  EXPECT_TRUE(framing.awaits_answer());
  show(framing, kClient, "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n");
  show(framing, kEngine, ok().bytes.substr(0, ok().bytes.size() - 1));
  EXPECT_TRUE(framing.awaits_answer());
  show(framing, kEngine, "k");
  EXPECT_FALSE(framing.awaits_answer());
}

TEST(HttpFraming, TakesAllGarbage) {
  std::mt19937 random(20);
  const std::vector<std::string> words{"GET",
                                       " ",
                                       "/",
                                       "HTTP/1.1",
                                       "HTTP/1.0",
                                       "\r\n",
                                       "\n",
                                       "\r",
                                       "0",
                                       "1",
                                       "a",
                                       ":",
                                       "-1",
                                       "200",
                                       "chunked",
                                       ";",
                                       "\t",
                                       "Content-Length: ",
                                       "Transfer-Encoding: ",
                                       "Connection: close\r\n",
                                       "\r\n\r\n",
                                       "GET / HTTP/1.1\r\n",
                                       "HTTP/1.1 200 OK\r\n",
                                       std::string(1, '\0'),
                                       "\xff"};
  for (int round = 0; round < 20000; ++round) {
    HttpFraming framing;
    for (int i = 0; i < 12; ++i) {
      const Side side = random() % 2 == 0 ? kClient : kEngine;
      std::string bytes;
      for (auto count = random() % 8; count > 0; --count) bytes += words[random() % words.size()];
      show(framing, side, bytes);
      EXPECT_FALSE(framing.is_between_requests() && framing.is_opaque());
      framing.pass(side, std::min<std::uint64_t>(framing.unseen(side), random() % 4));
    }
  }
}

TEST(HttpFraming, WhatPassesOfGarbageHasNoRequestThatIsRefused) {
  std::mt19937 random(21);
  const std::vector<std::string> words{"GET / HTTP/1.1\r\n",
                                       "POST /no HTTP/1.1\r\n",
                                       "GET / HTTP/1.0\r\n",
                                       "\r\n",
                                       "\n",
                                       "\r",
                                       "3\r\nabc\r\n",
                                       "0\r\n\r\n",
                                       "abc",
                                       "Content-Length: 3\r\n",
                                       "Transfer-Encoding: chunked\r\n",
                                       "Connection: close\r\n",
                                       "A: b\r\n"};
  for (int round = 0; round < 20000; ++round) {
    std::string said;
    for (auto count = random() % 12; count > 0; --count) said += words[random() % words.size()];
    const Passed whole = pass_through(said);
    EXPECT_EQ(pass_through(said, 1 + random() % 9).refusal, whole.refusal) << said;
    EXPECT_EQ(pass_through(whole.bytes).bytes, whole.bytes) << said;
    EXPECT_NE(pass_through(whole.bytes).refusal, 403) << said;
  }
}

}  // namespace
}  // namespace fo::engine
