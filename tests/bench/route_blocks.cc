// For how long a router serves nobody else: the longest turn of its loop while a client sends the
// longest body, or a worker begins its answer with many ids. In CPU time, so that other programs do
// not count. Usage: route_blocks [--json FILE] [--quick] [RUNS]
#include <algorithm>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/strong.h"
#include "http/client.h"
#include "http/server.h"
#include "http/sse.h"
#include "net/address.h"
#include "report.h"
#include "route/router.h"

namespace {

using namespace fo;
using boost::asio::awaitable;

double cpu_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

// "[1,2,3,…]".
std::string id_list(std::size_t count) {
  std::string list = "[";
  for (std::size_t i = 0; i < count; ++i) {
    list += (i > 0 ? "," : "") + std::to_string(100'000 + i % 50'000);
  }
  return list + "]";
}

std::string repeated(std::string_view text, std::size_t bytes) {
  std::string all;
  while (all.size() + text.size() <= bytes) all += text;
  return all;
}

// An engine that answers each completion with two events, on a loop of its own thread.
class Worker {
 public:
  explicit Worker(std::size_t prompt_ids)
      : events_(http::format_sse(event(prompt_ids, "null")) +
                http::format_sse(event(0, "\"length\"")) + http::format_sse("[DONE]")),
        server_(loop_.get_executor(),
                [this](const http::Request&, http::Reply& reply) { return answer(reply); }),
        port_(server_.listen("127.0.0.1:0")),
        thread_([this] { loop_.run(); }) {}
  ~Worker() { loop_.stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  static std::string event(std::size_t prompt_ids, const std::string& finish) {
    const std::string ids = prompt_ids == 0 ? "null" : id_list(prompt_ids);
    return R"({"id":"a","object":"text_completion","created":1,"model":"m","choices":[{"index":0,)"
           R"("text":"a","token_ids":[5],"prompt_token_ids":)" +
           ids + R"(,"finish_reason":)" + finish + "}]}";
  }
  awaitable<void> answer(http::Reply& reply) {
    co_await reply.begin(200, "text/event-stream");
    co_await reply.write(events_);
  }

  std::string events_;
  boost::asio::io_context loop_{1};
  http::Server server_;
  std::uint16_t port_;
  std::jthread thread_;
};

// The longest turn, in ms, of a router's loop while a client sends this body. The worker names
// `prompt_ids` ids.
double longest_turn(const std::string& body, std::size_t prompt_ids) {
  Worker engine(prompt_ids);
  boost::asio::io_context loop(1);
  route::Router router(loop.get_executor(), {});
  http::Server server(loop.get_executor(), [&](const http::Request& from, http::Reply& reply) {
    return router.handle(from, reply);
  });
  const auto worker = std::make_shared<route::Worker>("w", fleet::Health{});
  worker->model = "m";
  worker->slots = 1;
  worker->set_url(engine.url(), net::parse_url(engine.url()), std::nullopt);
  worker->is_reachable = true;
  router.workers().add(worker);
  router.on_change();
  const std::string url =
      "http://127.0.0.1:" + std::to_string(server.listen("127.0.0.1:0")) + "/v1/completions";

  std::atomic<int> status = 0;
  std::jthread client([&] {
    http::FetchOptions options;
    options.body = body;
    const auto deadline = base::Deadline::after(std::chrono::minutes(1));
    status = http::fetch("POST", url, deadline, options).status;
    boost::asio::post(loop, [&loop] { loop.stop(); });
  });
  double longest = 0;
  double last = cpu_ms();
  const std::function<void()> turn = [&] {
    const double now = cpu_ms();
    longest = std::max(longest, now - last);
    last = now;
    boost::asio::post(loop, turn);
  };
  boost::asio::post(loop, turn);
  loop.run();
  client.join();
  if (status != 200) {
    throw base::Error(base::ExitStatus::kSoftware,
                      "route a request: status " + std::to_string(status));
  }
  return longest;
}

void measure(const std::string& what, const std::string& prompt, std::size_t prompt_ids,
             std::size_t runs, bench::Report& report) {
  const std::string body = R"({"model":"m","stream":true,"max_tokens":2,"prompt":)" + prompt + "}";
  std::vector<double> times;
  for (std::size_t run = 0; run < runs; ++run) times.push_back(longest_turn(body, prompt_ids));
  report.row("longest turn, " + what, "ms", {"fo-route", times}, {}, bench::value_at_most(10));
  std::printf("%s: %.1f ms\n", what.c_str(), bench::median(times));
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run(
      "route_blocks", argc, argv, [](const bench::Arguments& arguments, bench::Report& report) {
        const std::size_t runs = bench::parse_runs(arguments, arguments.quick ? 1 : 5);
        const std::size_t bytes = arguments.quick ? base::kMiB : 16 * base::kMiB - 1024;
        const std::size_t ids = bytes / 8;
        measure("a short request", "\"a\"", 1, runs, report);
        measure("a body of text", "\"" + repeated("a", bytes) + "\"", 1, runs, report);
        measure("a body of text beyond ASCII", "\"" + repeated("ä", bytes) + "\"", 1, runs, report);
        measure("a body of ids", id_list(ids), 1, runs, report);
        measure("131,072 ids of a worker", "\"a\"", 131'072, runs, report);
        if (!arguments.quick)
          measure("1,000,000 ids of a worker", "\"a\"", 1'000'000, runs, report);
      });
}
