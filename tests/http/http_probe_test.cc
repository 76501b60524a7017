#include "http/http_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "os/socket/unix_socket.h"
#include "support.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::http::test {
namespace {

using namespace std::chrono_literals;
using base::ExitStatus;
using fo::test::failure_of;
using testing::HasSubstr;

Handler fixed(int status, const std::string& body) {
  return [=](const Request&, Reply& reply) -> awaitable<void> {
    reply.answer({status, "application/json", body, {}});
    co_return;
  };
}

HttpProbe probe_of(const std::string& url) {
  HttpProbe probe;
  probe.url = url;
  probe.timeout = 20s;
  return probe;
}

TEST(HttpProbe, AnyGoodStatusIsAYes) {
  for (const int status : {200, 202, 204, 299}) {
    const TestServer server(fixed(status, "{}"));
    const HttpAnswer answer = probe_http(probe_of(server.url()));
    EXPECT_TRUE(answer.yes) << answer.reason;
    EXPECT_EQ(answer.status, status);
    EXPECT_EQ(to_json(answer), R"({"result":"yes","status":)" + std::to_string(status) + "}");
  }
  for (const int status : {301, 400, 404, 500, 503}) {
    const TestServer server(fixed(status, "{}"));
    const HttpAnswer answer = probe_http(probe_of(server.url("/live")));
    EXPECT_FALSE(answer.yes);
    EXPECT_EQ(answer.reason, "fetch '" + server.url("/live") + "': status " +
                                 std::to_string(status) + " instead of 2xx");
  }
}

TEST(HttpProbe, AWantedStatusIsTheOnlyYes) {
  const TestServer server(fixed(503, "{}"));
  HttpProbe probe = probe_of(server.url());
  probe.status = 503;
  EXPECT_TRUE(probe_http(probe).yes);
  probe.status = 200;
  const HttpAnswer answer = probe_http(probe);
  EXPECT_FALSE(answer.yes);
  EXPECT_THAT(answer.reason, HasSubstr("status 503 instead of 200"));
  EXPECT_THAT(to_json(answer), HasSubstr(R"("result":"no","status":503)"));
}

TEST(HttpProbe, FieldsAreComparedAsText) {
  const TestServer server(fixed(200, R"({"status":"ready","a":{"b":[{"c":7},-1.5]},"t":true,
      "n":null,"":"empty","0":"zero","deep":{}})"));
  const auto says = [&](const char* path, const char* value) {
    HttpProbe probe = probe_of(server.url());
    probe.fields = {{path, value}};
    return probe_http(probe).yes;
  };
  EXPECT_TRUE(says("status", "ready"));
  EXPECT_TRUE(says("a.b.0.c", "7"));
  EXPECT_TRUE(says("a.b.1", "-1.5"));
  EXPECT_TRUE(says("t", "true"));
  EXPECT_TRUE(says("n", "null"));
  EXPECT_TRUE(says("0", "zero"));
  for (const auto& [path, value] :
       std::vector<std::pair<const char*, const char*>>{{"status", "Ready"},
                                                        {"status", "\"ready\""},
                                                        {"status", ""},
                                                        {"status.x", "ready"},
                                                        {"a", "{}"},
                                                        {"deep", "{}"},
                                                        {"a.b", ""},
                                                        {"a.b.2", "null"},
                                                        {"a.b.-1", "-1.5"},
                                                        {"a.b.99999999999999999999", "7"},
                                                        {"a..b", "x"},
                                                        {".", "empty"},
                                                        {"absent", "null"}}) {
    EXPECT_FALSE(says(path, value)) << path << "=" << value;
  }
}

TEST(HttpProbe, SaysWhichFieldIsWrong) {
  const TestServer server(fixed(200, R"({"status":"notready"})"));
  HttpProbe probe = probe_of(server.url());
  probe.fields = {{"status", "notready"}, {"status", "ready"}};
  EXPECT_EQ(probe_http(probe).reason,
            "fetch '" + server.url() + "': field 'status' is 'notready' instead of 'ready'");
  probe.fields = {{"state", "active"}};
  EXPECT_EQ(probe_http(probe).reason, "fetch '" + server.url() + "': no value at field 'state'");
}

TEST(HttpProbe, WhatIsNoJsonHasNoFields) {
  for (const std::string& body : {std::string(), std::string("ready"), std::string("{\"a\":1"),
                                  std::string("\xff"), std::string(500000, '[')}) {
    const TestServer server(fixed(200, body));
    HttpProbe probe = probe_of(server.url());
    EXPECT_TRUE(probe_http(probe).yes);
    probe.fields = {{"a", "1"}};
    EXPECT_EQ(probe_http(probe).reason, "fetch '" + server.url() + "': not JSON");
  }
}

TEST(HttpProbe, JsonWithoutEndOfDepthIsHarmless) {
  const std::string body = R"({"a":)" + std::string(400000, '[') + std::string(400000, ']') + "}";
  const TestServer server(fixed(200, body));
  HttpProbe probe = probe_of(server.url());
  probe.fields = {{"a", "1"}};
  EXPECT_THAT(probe_http(probe).reason, HasSubstr("no value at field 'a'"));
}

TEST(HttpProbe, AnAnswerThatIsTooLongIsANo) {
  const TestServer server(fixed(200, std::string((1 << 20) + 1, 'x')));
  const HttpAnswer answer = probe_http(probe_of(server.url()));
  EXPECT_FALSE(answer.yes);
  EXPECT_THAT(answer.reason, HasSubstr("the answer is longer than 1 MiB"));
}

TEST(HttpProbe, NobodyThereIsANo) {
  std::string url;
  {
    const TestServer server(fixed(200, ""));
    url = server.url();
  }
  const HttpAnswer answer = probe_http(probe_of(url));
  EXPECT_FALSE(answer.yes);
  EXPECT_EQ(answer.status, std::nullopt);
  EXPECT_EQ(answer.reason, "fetch '" + url + "': Connection refused");
  EXPECT_EQ(to_json(answer),
            R"({"reason":")" + answer.reason + R"(","result":"no","status":null})");
}

TEST(HttpProbe, BadUrlsAreNoAnswer) {
  for (const char* url : {"", "ftp://127.0.0.1/", "http://", "http://1.2.3/", "https://127.0.0.1/",
                          "unix:", "http://127.0.0.1:99999/", "http://127.0.0.1/a b"}) {
    EXPECT_EQ(failure_of([&] { probe_http(probe_of(url)); }).status, ExitStatus::kUsage) << url;
  }
}

/// Accepts connections and calls `serve` with each until the test ends.
class OddServer {
 public:
  explicit OddServer(std::function<void(int fd, const std::atomic<bool>& ended)> serve)
      : listener_(os::listen_unix(dir_.path("s"))), thread_([this, serve = std::move(serve)] {
          while (!ended_) {
            pollfd ready{listener_.get(), POLLIN, 0};
            if (::poll(&ready, 1, 5) != 1) continue;
            const base::UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            serve(client.get(), ended_);
          }
        }) {}
  ~OddServer() {
    ended_ = true;
    thread_.join();
  }
  [[nodiscard]] std::string url() const { return "unix:" + dir_.path("s") + ":/"; }

 private:
  fo::test::TempDir dir_;
  base::UniqueFd listener_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

/// Sends byte by byte, without end, until the client disconnects.
void dribble(int fd, const std::atomic<bool>& ended, std::string_view head, char rest) {
  for (std::size_t i = 0; !ended; ++i) {
    const char c = i < head.size() ? head[i] : rest;
    if (::send(fd, &c, 1, MSG_NOSIGNAL) != 1) return;
    pollfd never{-1, 0, 0};
    ::poll(&never, 1, 1);
  }
}

TEST(HttpProbe, PeersThatSayNothingOrDribbleAreANoInTime) {
  const OddServer silent([](int fd, const std::atomic<bool>& ended) {
    pollfd gone{fd, POLLRDHUP, 0};
    while (!ended && ::poll(&gone, 1, 5) == 0) {
    }
  });
  const OddServer slow_head([](int fd, const std::atomic<bool>& ended) {
    dribble(fd, ended, "HTTP/1.1 200 OK\r\nX:", 'x');
  });
  const OddServer slow_body([](int fd, const std::atomic<bool>& ended) {
    dribble(fd, ended, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", 'x');
  });
  const OddServer endless([](int fd, const std::atomic<bool>& ended) {
    dribble(fd, ended, "HTTP/1.1 200 OK\r\n\r\n", 'x');
  });
  for (const OddServer* server : {&silent, &slow_head, &slow_body, &endless}) {
    HttpProbe probe = probe_of(server->url());
    probe.timeout = 200ms;
    const HttpAnswer answer = probe_http(probe);
    EXPECT_FALSE(answer.yes);
    EXPECT_EQ(answer.reason, "fetch '" + server->url() + "': timed out");
  }
}

TEST(HttpProbe, PeersThatHangUpOrTalkNonsenseAreANo) {
  for (const char* text : {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
                           "SSH-2.0-OpenSSH_9.2\r\n\r\n"}) {
    const OddServer server([=](int fd, const std::atomic<bool>&) {
      char request[4096];
      static_cast<void>(::recv(fd, request, sizeof request, 0));
      static_cast<void>(::send(fd, text, std::string_view(text).size(), MSG_NOSIGNAL));
    });
    EXPECT_FALSE(probe_http(probe_of(server.url())).yes) << text;
  }
}

TEST(HttpProbe, WaitsForAYes) {
  std::atomic<int> asked = 0;
  const TestServer server([&](const Request&, Reply& reply) -> awaitable<void> {
    reply.answer({++asked < 3 ? 503 : 200, "application/json", "{}", {}});
    co_return;
  });
  HttpProbe probe = probe_of(server.url());
  probe.wait = 30s;
  EXPECT_TRUE(probe_http(probe).yes);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace fo::http::test
