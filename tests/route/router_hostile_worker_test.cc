// Workers that send what no engine should: each ends one attempt, and nothing else.
#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "route/fleet.h"
#include "route/scripted_worker.h"

namespace fo::test {
namespace {

using boost::asio::awaitable;
using nlohmann::json;
using Peer = ScriptedWorker::Peer;

constexpr std::size_t kMiB = 1024 * 1024;
const std::string kRawStreamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
const std::string kChunkedHead = kRawStreamHead + "Transfer-Encoding: chunked\r\n\r\n";
const std::string kRawJsonHead = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";

/// Writes `begin`, and then `piece` until the router closes the connection or `limit` is passed.
awaitable<void> flood(Peer& peer, std::string begin, std::string piece, std::size_t limit) {
  co_await peer.write(std::move(begin));
  std::size_t before = 0;
  do {
    before = peer.written();
    co_await peer.write(piece);
  } while (peer.written() == before + piece.size() && peer.written() < limit);
}

class HostileWorker : public FdCounting {
 protected:
  /// The first worker runs the script, and the second one is an engine. A request that begins at
  /// the first one is answered by the second, whose other stream goes on meanwhile. Returns the
  /// bytes that the router has accepted from the first one.
  std::size_t expect_another_answers(const ScriptedWorker::Script& script,
                                     bool is_streamed = true) {
    std::optional<std::size_t> written;
    ScriptedWorker hostile(fleet_.executor(), [&](Peer& peer, std::string request) {
      return run(peer, std::move(request), script, written);
    });
    fleet_.add_engine();
    const Client neighbour = fleet_.begin(chat(true, 30'000, {{"gap", "1ms"}}));
    fleet_.run_until([&] { return !neighbour->text().empty(); });
    fleet_.add_worker(hostile.url());
    const std::string text = fleet_.text_of(chat(true));
    // It is the turn of one of them.
    while (hostile.requests() == 0) {
      const Client call = fleet_.ask(chat(is_streamed));
      EXPECT_EQ(call->status(), 200);
      EXPECT_EQ(call->text(), text);
      EXPECT_TRUE(call->is_whole());
    }
    EXPECT_FALSE(neighbour->has_ended());
    EXPECT_EQ(fleet_.worker(1).health.state(), fleet::HealthState::kSuspicious);
    EXPECT_EQ(fleet_.worker(0).health.state(), fleet::HealthState::kHealthy);
    fleet_.run_until([&] { return written.has_value(); });
    return written.value_or(0);
  }

 private:
  static awaitable<void> run(Peer& peer, std::string request, const ScriptedWorker::Script& script,
                             std::optional<std::size_t>& written) {
    co_await script(peer, std::move(request));
    written = peer.written();
  }

  Fleet fleet_;
};

TEST_F(HostileWorker, AChunkOfAGibibyte) {
  const std::size_t written = expect_another_answers([](Peer& peer, const std::string&) {
    return flood(peer, kChunkedHead + "40000000\r\ndata: ", std::string(kMiB, 'x'), 1024 * kMiB);
  });
  EXPECT_LT(written, 64 * kMiB);
}

TEST_F(HostileWorker, ALineOfAHundredMebibytes) {
  const std::size_t written = expect_another_answers([](Peer& peer, const std::string&) {
    return flood(peer, kRawStreamHead + "Connection: close\r\n\r\ndata: ", std::string(kMiB, 'x'),
                 100 * kMiB);
  });
  EXPECT_LT(written, 64 * kMiB);
}

TEST_F(HostileWorker, EventsWithoutContentForEver) {
  const std::size_t written = expect_another_answers([](Peer& peer, const std::string&) {
    std::string events;
    while (events.size() < kMiB) events += "data: {\"choices\":[]}\n\n";
    return flood(peer, kRawStreamHead + "Connection: close\r\n\r\n", events, 200 * kMiB);
  });
  EXPECT_LT(written, 64 * kMiB);
}

TEST_F(HostileWorker, AChunkHeaderWithoutAnEnd) {
  const std::size_t written = expect_another_answers([](Peer& peer, const std::string&) {
    return flood(peer, kChunkedHead, std::string(kMiB, '0'), 100 * kMiB);
  });
  EXPECT_LT(written, 16 * kMiB);
}

TEST_F(HostileWorker, AChunkExtensionWithoutAnEnd) {
  const std::size_t written = expect_another_answers([](Peer& peer, const std::string&) {
    return flood(peer, kChunkedHead + "1;", std::string(kMiB, 'x'), 100 * kMiB);
  });
  EXPECT_LT(written, 16 * kMiB);
}

TEST_F(HostileWorker, HeadersWithoutAnEnd) {
  const std::size_t written = expect_another_answers([](Peer& peer, const std::string&) {
    std::string headers;
    while (headers.size() < kMiB) headers += "X-More: 1\r\n";
    return flood(peer, kRawStreamHead, headers, 100 * kMiB);
  });
  EXPECT_LT(written, 16 * kMiB);
}

TEST_F(HostileWorker, InterimAnswersWithoutAnEnd) {
  const std::size_t written = expect_another_answers([](Peer& peer, const std::string&) {
    std::string answers;
    while (answers.size() < kMiB) answers += "HTTP/1.1 102 Processing\r\n\r\n";
    return flood(peer, "", answers, 100 * kMiB);
  });
  EXPECT_LT(written, 64 * kMiB);
}

TEST_F(HostileWorker, NoHttp) {
  expect_another_answers(
      [](Peer& peer, const std::string&) { return peer.write("\x16\x03\x01 not HTTP\r\n\r\n"); });
}

TEST_F(HostileWorker, TwoLengths) {
  expect_another_answers([](Peer& peer, const std::string&) {
    return peer.write(kRawJsonHead + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}");
  });
}

TEST_F(HostileWorker, AnEventThatIsNotJson) {
  expect_another_answers([](Peer& peer, const std::string&) {
    return peer.write(kRawStreamHead + "Connection: close\r\n\r\ndata: {\"choices\n\n");
  });
}

TEST_F(HostileWorker, AnAnswerThatIsTooShort) {
  expect_another_answers(
      [](Peer& peer, const std::string&) {
        return peer.write(kRawJsonHead + "Content-Length: 100\r\n\r\n{}");
      },
      false);
}

TEST_F(HostileWorker, NothingAtAll) {
  expect_another_answers([](Peer& peer, const std::string&) { return peer.write(""); });
}

// The front of an engine may send them while its core hangs.
TEST_F(FdCounting, CommentsAreNoSignOfLife) {
  route::RouterOptions options = in_turns();
  options.times.stream = std::chrono::milliseconds(300);
  options.resume.enabled = false;
  Fleet fleet(std::move(options));
  ScriptedWorker pings(fleet.executor(), [](Peer& peer, const std::string&) {
    const std::string token = R"(data: {"choices":[{"delta":{"content":"a"}}]})";
    return flood(peer, kRawStreamHead + "\r\n" + token + "\n\n", ": ping\n\n", 1000 * kMiB);
  });
  fleet.add_worker(pings.url());
  const Client call = fleet.ask(chat(true));
  EXPECT_EQ(call->text(), "a");
  EXPECT_EQ(call->error_code(), "worker_lost");
}

TEST_F(FdCounting, AnInvalidEventAfterTheFinishReasonOfAWholeAnswerIsIgnored) {
  Fleet fleet;
  ScriptedWorker worker(fleet.executor(), [](Peer& peer, const std::string&) {
    return peer.write(
        kRawStreamHead + "\r\n" +
        R"(data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]})" +
        "\n\ndata: {\"choices\":{},\"usage\":{\"completion_tokens\":1}}\n\n");
  });
  fleet.add_worker(worker.url());
  json body = chat(false);
  body.erase("oracle");
  const Client call = fleet.ask(body);
  EXPECT_EQ(call->status(), 200);
  EXPECT_EQ(call->text(), "a");
}

// The end of an answer is what it has, also when it is ended by an operator.
TEST_F(FdCounting, AnAnswerThatHasItsFinishReasonEndsOnce) {
  Fleet fleet;
  ScriptedWorker worker(fleet.executor(), [](Peer& peer, const std::string&) -> awaitable<void> {
    co_await peer.write(kRawStreamHead + "\r\n" +
                        R"(data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]})" +
                        "\n\n");
    co_await peer.read_bytes(1);
  });
  fleet.add_worker(worker.url());
  const Client call = fleet.begin(chat(true));
  fleet.run_until([&] { return call->text() == "a"; });
  EXPECT_TRUE(fleet.router().kill(fleet.requests()[0]["id"]));
  fleet.run_until([&] { return call->has_ended(); });
  ASSERT_EQ(call->events().size(), 2U) << call->body();
  EXPECT_EQ(call->events().back(), "[DONE]");
}

}  // namespace
}  // namespace fo::test
