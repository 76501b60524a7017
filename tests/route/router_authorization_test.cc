// A client's key is forwarded only over https, or to this machine.
#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "route/fleet.h"
#include "route/resume/disturbed.h"
#include "route/scripted_worker.h"
#include "support/stderr_text.h"

namespace fo::test {
namespace {

using boost::asio::awaitable;
using nlohmann::json;

class RouterAuthorization : public FdCounting {
 protected:
  /// Keeps the request, and answers it.
  static awaitable<void> answer(http::test::Peer& peer, std::string request, std::string& kept) {
    kept = std::move(request);
    co_await peer.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
  }
};

TEST_F(RouterAuthorization, GoesToThisMachineOrOverTls) {
  route::RouterOptions options = in_turns();
  options.rules.pass_authorization = true;
  Fleet fleet(std::move(options));
  std::string request;
  ScriptedWorker worker(fleet.executor(), [&](http::test::Peer& peer, std::string from) {
    return answer(peer, std::move(from), request);
  });
  const auto forwards = [&] {
    EXPECT_EQ(fleet
                  .ask({{"model", "oracle"}, {"input", "a"}}, "/v1/embeddings",
                       {{"authorization", "Bearer client-key"}})
                  ->status(),
              200);
    return request.find("client-key") != std::string::npos;
  };
  fleet.add_worker(worker.url());
  EXPECT_TRUE(forwards());
  fleet.worker(0).is_drained = true;
  fleet.router().on_change();

  const StderrText logged;
  // Linux connects to this machine, but the router takes it for another one.
  std::string other = worker.url();
  other.replace(other.find("127.0.0.1"), 9, "0.0.0.0");
  fleet.add_worker(other);
  EXPECT_FALSE(forwards());
  EXPECT_FALSE(forwards());
  const std::string text = logged.text();
  const std::string warning = "worker 'w1': Authorization of clients is not forwarded: ";
  EXPECT_NE(text.find(warning), std::string::npos) << text;
  EXPECT_EQ(text.find(warning), text.rfind(warning)) << "one warning";
}

// A key that a worker refuses is the client's own.
TEST_F(RouterAuthorization, AWorkersRefusalOfAClientsKeyConcernsNoOtherClient) {
  route::RouterOptions options = in_turns();
  options.rules.pass_authorization = true;
  Fleet fleet(std::move(options));
  ScriptedWorker worker(fleet.executor(), [](http::test::Peer& peer, const std::string& from) {
    const bool is_known = from.find("Bearer good") != std::string::npos;
    return peer.write("HTTP/1.1 " + std::string(is_known ? "200 OK" : "401 Unauthorized") +
                      "\r\nContent-Length: 2\r\n\r\n{}");
  });
  fleet.add_worker(worker.url());
  const auto status = [&](const std::string& key) {
    return fleet
        .ask({{"model", "oracle"}, {"input", "a"}}, "/v1/embeddings",
             {{"authorization", "Bearer " + key}})
        ->status();
  };
  for (const auto& [key, expected] : {std::pair{"good", 200}, {"bad", 401}, {"good", 200}}) {
    EXPECT_EQ(status(key), expected);
  }
}

TEST_F(RouterAuthorization, AContinuationHasTheClientsKey) {
  route::RouterOptions options = in_turns();
  options.rules.pass_authorization = true;
  DisturbedFleet fleet(1, std::move(options));
  std::string request;
  ScriptedWorker worker(fleet.executor(), [&](http::test::Peer& peer, std::string from) {
    request = std::move(from);
    return peer.write("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}");
  });
  fleet.add_worker(worker.url());
  fleet.fail_next(0, "cut@6");
  const json body = long_answer(true);
  while (fleet.counts(0).faults == 0) {
    fleet.ask(body, path_of_answer(body), {{"authorization", "Bearer client-key"}});
  }
  EXPECT_NE(request.find("POST /detokenize "), std::string::npos) << request;
  EXPECT_NE(request.find("Bearer client-key"), std::string::npos) << request;
  EXPECT_TRUE(fleet.worker(1).refused.empty());
}

}  // namespace
}  // namespace fo::test
