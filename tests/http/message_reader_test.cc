#include "http/message_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/failure.h"

namespace fo::http {
namespace {

using base::ExitStatus;
using fo::test::status_of;

template <typename Reader>
void give(Reader& reader, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::span<char> space = reader.prepare();
    const std::size_t count = std::min(space.size(), bytes.size());
    std::copy_n(bytes.data(), count, space.data());
    reader.commit(count);
    bytes.remove_prefix(count);
  }
}

/// The body of an answer that arrives in pieces of `size`; each piece is read in two calls.
std::string body_of(std::string_view stream, std::size_t size) {
  ResponseReader reader({});
  std::string body;
  std::optional<ResponseHead> head;
  std::array<char, 10> space;
  for (; !stream.empty(); stream.remove_prefix(std::min(size, stream.size()))) {
    give(reader, stream.substr(0, size));
    if (!head) head = reader.read_head();
    if (!head) {
      EXPECT_FALSE(reader.read_head());
    }
    for (int misses = 0; head && !reader.is_complete() && misses < 2;) {
      const std::optional<std::size_t> count = reader.read_body(space);
      body.append(space.data(), count.value_or(0));
      misses += count ? 0 : 1;
    }
  }
  EXPECT_TRUE(head && reader.is_complete() && reader.keeps_alive());
  return body;
}

// Most of many connections wait for little.
TEST(ResponseReader, HasMuchSpaceOnlyAfterAReadThatFilledIt) {
  ResponseReader reader({});
  const std::size_t small = reader.prepare().size();
  EXPECT_LE(small, 4096);
  reader.commit(small);
  EXPECT_GE(reader.prepare().size(), 16384);
  reader.commit(1);
  EXPECT_EQ(reader.prepare().size(), small);
}

TEST(ResponseReader, TakesAnAnswerInAnyPieces) {
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const auto& [stream, body] : std::vector<std::pair<std::string, std::string>>{
           {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello"},
           {"HTTP/1.1 100 \r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""},
           {chunked + "0\r\n\r\n", ""},
           {chunked + "000\r\nX: y\r\n\r\n", ""},
           {chunked + "1\r\nx\r\n0\r\n\r\n", "x"},
           {chunked + "1\r\nx\r\n14;a=\"b\"\r\n" + std::string(20, 'y') + "\r\n0;c\r\n\r\n",
            "x" + std::string(20, 'y')}}) {
    for (std::size_t size = 1; size <= stream.size(); ++size) {
      EXPECT_EQ(body_of(stream, size), body) << stream << " in pieces of " << size;
    }
  }
}

// The readers of a thread use the same memory in turn.
TEST(ResponseReader, DoesNotTouchWhatAnotherOneHasNotRead) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{30}}) {
    std::array<ResponseReader, 3> readers{ResponseReader({}), ResponseReader({}),
                                          ResponseReader({})};
    std::array<std::string, 3> streams;
    std::array<std::string, 3> bodies;
    std::array<bool, 3> has_head{};
    for (std::size_t i = 0; i < 3; ++i) {
      streams[i] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
      for (int chunk = 0; chunk < 9; ++chunk) {
        streams[i] += "14\r\n" + std::string(20, static_cast<char>('a' + i)) + "\r\n";
      }
      streams[i] += "0\r\n\r\n";
    }
    for (std::size_t at = 0; at < streams[0].size(); at += size) {
      for (std::size_t i = 0; i < 3; ++i) {
        give(readers[i], streams[i].substr(at, size));
        if (!has_head[i]) has_head[i] = readers[i].read_head().has_value();
        std::array<char, 64> space;
        std::optional<std::size_t> count;
        if (has_head[i]) count = readers[i].read_body(space);
        bodies[i].append(space.data(), count.value_or(0));
      }
    }
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(readers[i].is_complete());
      EXPECT_EQ(bodies[i], std::string(180, static_cast<char>('a' + i))) << size;
    }
  }
}

TEST(ResponseReader, ReadsOneAnswerAfterTheOther) {
  ResponseReader reader({});
  EXPECT_FALSE(reader.has_begun());
  give(reader, "HTTP/1.1 204 No\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_EQ(reader.read_head()->status, 204);
  EXPECT_TRUE(reader.is_complete());
  EXPECT_FALSE(reader.keeps_alive()) << "nobody asked for what follows";
  reader.begin(false);
  EXPECT_TRUE(reader.has_begun());
  EXPECT_EQ(reader.read_head()->status, 200);
  std::array<char, 10> space;
  EXPECT_EQ(reader.read_body(space), 2U);
  EXPECT_EQ(reader.read_body(space), 0U);
  EXPECT_TRUE(reader.keeps_alive());
  reader.end();
  EXPECT_FALSE(reader.keeps_alive());
}

TEST(ResponseReader, ABodyWithoutALengthEndsWithTheBytes) {
  ResponseReader reader({});
  give(reader, "HTTP/1.1 200 OK\r\n\r\nall");
  EXPECT_TRUE(reader.read_head());
  std::array<char, 10> space;
  EXPECT_EQ(reader.read_body(space), 3U);
  EXPECT_EQ(reader.read_body(space), std::nullopt);
  reader.end();
  EXPECT_EQ(reader.read_body(space), 0U);
  EXPECT_TRUE(reader.is_complete());
  EXPECT_FALSE(reader.keeps_alive());
}

TEST(ResponseReader, SaysTheSameErrorAgain) {
  ResponseReader reader({});
  give(reader, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n");
  EXPECT_TRUE(reader.read_head());
  std::array<char, 10> space;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(status_of([&] { reader.read_body(space); }), ExitStatus::kProtocol);
  }
}

TEST(RequestReader, TakesRequestsInAnyPieces) {
  const std::string stream =
      "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
      "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-Continue\r\n\r\n"
      "3\r\nabc\r\n0\r\nX: y\r\n\r\n"
      "\r\nGET /c HTTP/1.0\r\n\r\n";
  for (std::size_t size = 1; size <= stream.size(); ++size) {
    RequestReader reader({});
    std::vector<std::string> seen;
    bool has_head = false;
    for (std::size_t at = 0; at < stream.size(); at += size) {
      give(reader, std::string_view(stream).substr(at, size));
      for (bool more = true; more;) {
        const auto step = has_head ? RequestReader::Step::kDone : reader.read_head();
        EXPECT_NE(step, RequestReader::Step::kRefused) << size;
        has_head = step == RequestReader::Step::kDone;
        more = has_head && reader.read_body() == RequestReader::Step::kDone;
        if (!more) break;
        const bool keeps_alive = reader.keeps_alive();
        const Request request = reader.take();
        seen.push_back(request.method + request.target + request.body + (keeps_alive ? "+" : "-"));
        reader.begin();
        has_head = false;
      }
    }
    EXPECT_EQ(seen, (std::vector<std::string>{"POST/a+", "POST/babc+", "GET/c-"})) << size;
  }
}

TEST(RequestReader, SaysWhyAndWithWhichStatusItRefuses) {
  const RequestReader::Limits limits{.head_bytes = 100, .body_bytes = 10};
  for (const auto& [stream, status] : std::vector<std::pair<std::string, int>>{
           {"GET / HTTP/3.0\r\n\r\n", 400},
           {"GET x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
           {"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", 400},
           {"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400},
           {"\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n\tb\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(200, 'x') + "\r\n\r\n", 431},
           {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n", 413}}) {
    RequestReader reader(limits);
    give(reader, stream);
    EXPECT_EQ(reader.read_head(), RequestReader::Step::kRefused);
    EXPECT_EQ(reader.refusal_status(), status);
    EXPECT_NE(reader.refusal(), "");
  }
}

TEST(RequestReader, SkipsOneEmptyLineOnly) {
  RequestReader reader({});
  RequestReader::Step step = RequestReader::Step::kNeedsMore;
  for (const char c : std::string("\r\n\r")) {
    EXPECT_EQ(step, RequestReader::Step::kNeedsMore);
    give(reader, std::string_view(&c, 1));
    step = reader.read_head();
  }
  EXPECT_EQ(step, RequestReader::Step::kRefused);
}

TEST(RequestReader, NewLimitsAreThoseOfTheNextRequest) {
  RequestReader reader({.body_bytes = 1});
  for (const base::ByteCount limit : {2U, 3U, 1U}) {
    reader.set_limits({.body_bytes = limit});
    const std::string request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
    give(reader, request);
    EXPECT_EQ(reader.read_head() == RequestReader::Step::kDone &&
                  reader.read_body() == RequestReader::Step::kDone,
              limit >= 2);
    reader.begin();
  }
}

}  // namespace
}  // namespace fo::http
