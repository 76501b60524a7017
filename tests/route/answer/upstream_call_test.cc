#include "route/answer/upstream_call.h"

#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "http/scripted_server.h"
#include "loop/test_loop.h"
#include "support/fds.h"
#include "support/must_run.h"
#include "support/ports.h"
#include "support/sanitizers.h"

namespace fo::test {
namespace {

using boost::asio::awaitable;
using http::test::Peer;
using http::test::ScriptedServer;
using route::CallEnd;
using route::CallTimes;
using route::Exchange;
using route::UpstreamCall;

const std::string kWhole =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
const std::string kStream =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
const std::string kToken = "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n";
const std::string kFinishEvent =
    "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n";

class UpstreamCallTest : public FdCounting {
 protected:
  void serve(ScriptedServer::Script script) {
    server_.emplace(loop_.io().get_executor(), std::move(script));
    worker_->origin = server_->origin();
  }

  /// Runs a call of a completion to its end.
  CallEnd call(bool is_streamed, base::Deadline deadline = soon()) {
    route::ClientRequest request;
    request.api = route::Api::kCompletions;
    request.is_streamed = is_streamed;
    exchange_.emplace(request, Exchange::Limits{});
    call_.emplace(pool_, worker_, *exchange_, times_, 1);
    delivered_.clear();
    return loop_.run(run(deadline));
  }
  awaitable<CallEnd> run(base::Deadline deadline) {
    http::RequestHead head;
    head.method = "POST";
    const auto deliver = [this] { return this->deliver(); };
    const auto on_tokens = [this](base::Duration, bool is_first) {
      ++pieces_;
      firsts_ += is_first ? 1 : 0;
    };
    const CallEnd end = co_await call_->run(std::move(head), "{}", deadline, deliver, on_tokens);
    co_return end;
  }

  /// Answers each request of a connection with kWhole, and closes it at request `last`.
  static awaitable<void> answer_until(Peer& peer, int last) {
    for (int i = 1; i < last; ++i) {
      co_await peer.read_until("\r\n\r\n{}");
      co_await peer.write(kWhole);
    }
    co_await peer.read_until("\r\n\r\n{}");
  }
  static awaitable<void> stream(Peer& peer, std::string bytes, bool is_open) {
    co_await peer.read_until("\r\n\r\n{}");
    co_await peer.write(kStream + bytes);
    if (is_open) co_await peer.read_to_end();
  }

  TestLoop loop_;
  http::Pool pool_{loop_.io().get_executor()};
  std::optional<ScriptedServer> server_;
  std::shared_ptr<route::Worker> worker_ = std::make_shared<route::Worker>("w", fleet::Health{});
  CallTimes times_;
  std::optional<Exchange> exchange_;
  std::optional<UpstreamCall> call_;
  std::string delivered_;
  bool cuts_after_delivery_ = false;
  bool fails_to_deliver_ = false;
  int pieces_ = 0;
  int firsts_ = 0;

 private:
  awaitable<void> deliver() {
    delivered_ += exchange_->take_output();
    if (cuts_after_delivery_) call_->cut();
    if (fails_to_deliver_) throw base::Error(base::ExitStatus::kUnavailable, "the client is gone");
    co_return;
  }
};

TEST_F(UpstreamCallTest, ACompleteAnswerKeepsTheConnection) {
  serve([](Peer& peer, int) { return answer_until(peer, 10); });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(call(false), CallEnd::kDone);
    EXPECT_EQ(delivered_, "ok");
    EXPECT_EQ(pool_.idle(), 1U);
  }
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(UpstreamCallTest, AStreamWithItsFinishIsCompleteAlsoIfItDoesNotEnd) {
  times_.stream = std::chrono::milliseconds(50);
  serve([](Peer& peer, int) { return stream(peer, kToken + kFinishEvent, true); });
  EXPECT_EQ(call(true), CallEnd::kDone);
  EXPECT_EQ(delivered_, kToken + kFinishEvent + "data: [DONE]\n\n");
}

TEST_F(UpstreamCallTest, AStreamCountsItsTokens) {
  serve([](Peer& peer, int) { return stream(peer, kToken + kToken + kFinishEvent, false); });
  EXPECT_EQ(call(true), CallEnd::kDone);
  EXPECT_EQ(exchange_->attempt_tokens(), 2U);
  EXPECT_EQ(firsts_, 1);
  EXPECT_TRUE(worker_->pace.last_token().has_value());
  EXPECT_EQ(delivered_, kToken + kToken + kFinishEvent + "data: [DONE]\n\n");
}

// The server may have closed it just before.
TEST_F(UpstreamCallTest, AReusedConnectionThatEndsWithoutAByteIsReplaced) {
  serve([](Peer& peer, int number) { return answer_until(peer, number == 1 ? 2 : 10); });
  EXPECT_EQ(call(false), CallEnd::kDone);
  EXPECT_EQ(call(false), CallEnd::kDone);
  EXPECT_EQ(server_->connections(), 2);
}

TEST_F(UpstreamCallTest, ANewConnectionThatEndsIsAFault) {
  serve([](Peer& peer, int) { return answer_until(peer, 1); });
  EXPECT_EQ(call(false), CallEnd::kFault);
  EXPECT_FALSE(call_->reason().empty());
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(UpstreamCallTest, NobodyListens) {
  const ReservedPort port;
  worker_->origin.address = {"127.0.0.1", port.number()};
  EXPECT_EQ(call(false), CallEnd::kRefused);
  EXPECT_FALSE(call_->reason().empty());
}

// A full backlog: the kernel drops what asks for a connection.
TEST_F(UpstreamCallTest, AWorkerThatDoesNotAcceptInTimeIsOutAndHasNoFault) {
  using boost::asio::ip::tcp;
  times_.connect = std::chrono::milliseconds(100);
  tcp::acceptor full(loop_.io(), tcp::v4());
  full.bind({boost::asio::ip::address_v4::loopback(), 0});
  full.listen(0);
  std::vector<tcp::socket> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back(loop_.io());
    waiting.back().async_connect(full.local_endpoint(), [](const boost::system::error_code&) {});
  }
  worker_->origin.address = {"127.0.0.1", full.local_endpoint().port()};
  EXPECT_EQ(call(false), CallEnd::kRefused);
  EXPECT_FALSE(call_->reason().empty());
}

TEST_F(UpstreamCallTest, ALackOfDescriptorsIsNoRefusalOfTheWorker) {
  if (kHasSanitizers) FO_SKIP("release", kSanitizersOpenPipes);
  times_.connect = std::chrono::milliseconds(60);
  serve([](Peer& peer, int) { return answer_until(peer, 10); });
  // A server that begins to accept needs a descriptor.
  loop_.run_ready();
  {
    const FewDescriptors none;
    EXPECT_EQ(call(false), CallEnd::kExhausted);
    EXPECT_EQ(call_->reason(), "forward a request: Too many open files");
  }
  EXPECT_EQ(server_->connections(), 0);
  times_ = {};
  std::optional<FewDescriptors> for_a_moment(std::in_place);
  boost::asio::steady_timer timer(loop_.io(), std::chrono::milliseconds(20));
  timer.async_wait([&](const boost::system::error_code&) { for_a_moment.reset(); });
  EXPECT_EQ(call(false), CallEnd::kDone);
}

TEST_F(UpstreamCallTest, TheDeadlineOfTheRequestEndsIt) {
  serve([](Peer& peer, int) { return stream(peer, kToken, true); });
  EXPECT_EQ(call(true, in_ms(50)), CallEnd::kDeadline);
  loop_.run_until([this] { return server_->ended() == server_->connections(); });
}

TEST_F(UpstreamCallTest, TheFirstTokenIsLate) {
  times_.first_token = std::chrono::milliseconds(50);
  serve([](Peer& peer, int) { return stream(peer, "", true); });
  EXPECT_EQ(call(true), CallEnd::kNoFirstToken);
  EXPECT_FALSE(call_->others_moved());
}

TEST_F(UpstreamCallTest, AnAnswerInOnePieceIsLate) {
  times_.answer = std::chrono::milliseconds(50);
  serve([](Peer& peer, int) { return stream(peer, "", true); });
  EXPECT_EQ(call(false), CallEnd::kNoFirstToken);
}

TEST_F(UpstreamCallTest, AStreamIsSilent) {
  times_.stream = std::chrono::milliseconds(50);
  serve([](Peer& peer, int) { return stream(peer, kToken, true); });
  EXPECT_EQ(call(true), CallEnd::kSilent);
  EXPECT_EQ(delivered_, kToken);
  loop_.run_until([this] { return server_->ended() == server_->connections(); });
}

TEST_F(UpstreamCallTest, ACutClosesTheConnection) {
  cuts_after_delivery_ = true;
  serve([](Peer& peer, int) { return stream(peer, kToken, true); });
  EXPECT_EQ(call(true), CallEnd::kCut);
  loop_.run_until([this] { return server_->ended() == server_->connections(); });
}

TEST_F(UpstreamCallTest, AClientThatIsGoneEndsIt) {
  fails_to_deliver_ = true;
  serve([](Peer& peer, int) { return stream(peer, kToken, true); });
  EXPECT_THROW(call(true), base::Error);
  call_.reset();
  loop_.run_until([this] { return server_->ended() == server_->connections(); });
}

TEST(CallTimes, LimitsOfSilence) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  CallTimes times;
  EXPECT_EQ(times.stall_limit(milliseconds(20)), seconds(5));
  EXPECT_EQ(times.stall_limit(milliseconds(250)), seconds(5));
  EXPECT_EQ(times.stall_limit(milliseconds(500)), seconds(10));
  EXPECT_EQ(times.first_token_limit(0), seconds(60));
  EXPECT_EQ(times.first_token_limit(1500), milliseconds(61'500));
  EXPECT_GT(times.first_token_limit(UINT64_MAX), seconds(60));
  times.stall = seconds(1);
  times.stall_gaps = 3;
  times.prefill_rate = 10;
  EXPECT_EQ(times.stall_limit(milliseconds(20)), seconds(1));
  EXPECT_EQ(times.stall_limit(milliseconds(500)), milliseconds(1500));
  EXPECT_EQ(times.first_token_limit(1500), seconds(60 + 150));
}

}  // namespace
}  // namespace fo::test
