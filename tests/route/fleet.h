// Oracle engines, a router before them, and the router's clients, all on the loop of a test. Tests
// are not coroutines: they begin requests and run the loop until something has happened.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "http/connection.h"
#include "http/server.h"
#include "http/sse.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "net/address.h"
#include "oracle/engine.h"
#include "route/router.h"
#include "route/serve.h"
#include "route/worker/worker_monitor.h"
#include "support/fds.h"
#include "support/ports.h"
#include "support/soon.h"

namespace fo::test {

/// A request of a client and what the client has received of its answer. Its connection is closed
/// when the answer is complete.
class ClientCall {
 public:
  /// The status of the answer; 0 before its head.
  [[nodiscard]] int status() const { return head_.status; }
  [[nodiscard]] std::string header(std::string_view name) const {
    return std::string(head_.header(name).value_or("-"));
  }
  [[nodiscard]] const std::string& body() const { return body_; }
  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(body_, nullptr, false); }
  [[nodiscard]] bool has_ended() const { return has_ended_; }
  /// Whether the answer was complete, as HTTP frames it.
  [[nodiscard]] bool is_whole() const { return is_whole_; }

  /// The data of the events of a stream.
  [[nodiscard]] std::vector<std::string> events() const {
    std::vector<std::string> events;
    http::SseReader reader;
    std::string_view bytes = body_;
    while (const auto event = reader.next(bytes)) events.push_back(event->data);
    return events;
  }
  /// The text of a chat's or a completion's answer, streamed or not.
  [[nodiscard]] std::string text() const {
    std::string text;
    const bool is_stream = header("content-type").starts_with("text/event-stream");
    for (const std::string& data : is_stream ? events() : std::vector<std::string>{body_}) {
      const auto chunk = nlohmann::json::parse(data, nullptr, false);
      if (!chunk.is_object() || !chunk.contains("choices")) continue;
      for (const auto& choice : chunk["choices"]) {
        if (choice.contains("text")) {
          text += choice["text"].get<std::string>();
          continue;
        }
        const auto& message = choice.contains("delta") ? choice["delta"] : choice["message"];
        if (message.contains("content") && message["content"].is_string()) {
          text += message["content"].get<std::string>();
        }
      }
    }
    return text;
  }
  /// The "code" of the error in an answer, or in the last event of a stream; empty without one.
  [[nodiscard]] std::string error_code() const { return error_member("code"); }
  [[nodiscard]] std::string error_message() const { return error_member("message"); }

  /// The client disconnects. Not before its request was sent, nor after its answer.
  void disconnect() { connection_->close(); }

 private:
  friend class Fleet;

  [[nodiscard]] std::string error_member(const char* name) const {
    const auto all = events();
    const auto answer = nlohmann::json::parse(all.empty() ? body_ : all.back(), nullptr, false);
    if (!answer.is_object() || !answer.contains("error")) return {};
    const auto& member = answer["error"].value(name, nlohmann::json());
    return member.is_string() ? member.get<std::string>() : member.dump();
  }

  /// nullptr before the request and after the answer.
  http::Connection* connection_ = nullptr;
  http::ResponseHead head_;
  std::string body_;
  bool has_ended_ = false;
  bool is_whole_ = false;
};
using Client = std::shared_ptr<ClientCall>;

/// Workers are chosen one after the other, so that a test knows which one gets a request; those
/// that cannot be reached are tried every few milliseconds.
inline route::RouterOptions in_turns() {
  route::RouterOptions options;
  options.dispatch.policy = route::Policy::kRoundRobin;
  return options;
}
inline route::WorkerMonitor::Options quick_checks() {
  route::WorkerMonitor::Options options;
  options.retry = std::chrono::milliseconds(5);
  options.check = std::chrono::milliseconds(50);
  // Longer than any check of a busy machine.
  options.timeout = std::chrono::seconds(10);
  return options;
}

/// A chat whose answer has `tokens` tokens. `oracle` has the engine's knobs for this request.
inline nlohmann::json chat(bool is_streamed, std::uint64_t tokens = 8,
                           nlohmann::json oracle = nlohmann::json::object()) {
  return {{"model", "oracle"},     {"messages", {{{"role", "user"}, {"content", "Which way?"}}}},
          {"max_tokens", tokens},  {"ignore_eos", true},
          {"stream", is_streamed}, {"oracle", std::move(oracle)}};
}

class Fleet {
 public:
  explicit Fleet(route::RouterOptions options = in_turns(),
                 const route::WorkerMonitor::Options& monitor = quick_checks(),
                 const http::ServerLimits& limits = route::ServeOptions().limits)
      : monitor_(
            executor(), monitor, [this](const route::WorkerPtr& worker) { on_change(worker); },
            [this](const route::WorkerPtr& worker) {
              router_.workers().remove(worker->id);
              router_.on_change();
            }),
        router_(executor(), with_monitor(std::move(options))),
        server_(
            executor(),
            [this](const http::Request& from, http::Reply& reply) {
              return router_.handle(from, reply);
            },
            limits, [this](const http::EarlyError& error) { return router_.answer_early(error); },
            [this](const http::Request& from) { return router_.check_head(from); }) {
    port_ = server_.listen("127.0.0.1:0");
    loop::spawn(executor(), router_.run_periodic_tasks());
  }
  explicit Fleet(std::size_t engines, route::RouterOptions options = in_turns())
      : Fleet(std::move(options)) {
    add_engines(engines);
  }
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;
  ~Fleet() = default;

  TestLoop& loop() { return loop_; }
  boost::asio::any_io_executor executor() { return loop_.io().get_executor(); }
  route::Router& router() { return router_; }
  void set_options(route::RouterOptions options) {
    router_.set_options(with_monitor(std::move(options)));
    router_.on_change();
  }
  route::WorkerMonitor& monitor() { return monitor_; }
  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// Accepts clients at this socket, too.
  void listen(base::UniqueFd listener) { server_.listen(std::move(listener)); }

  /// Runs the loop until `done()`; fails the test if that never happens.
  void run_until(const std::function<bool()>& done) { loop_.run_until(done); }

  /// The requests in the router, as an operator sees them.
  [[nodiscard]] nlohmann::json requests() const {
    return nlohmann::json::parse(router_.requests())["requests"];
  }

  // --- Workers, which have the numbers 0, 1, … and the ids "w0", "w1", … Engines are counted
  // apart: both have the same numbers in a fleet of engines only.

  /// Starts an engine, which the router can then use.
  void add_engine(const oracle::EngineOptions& options = {},
                  const std::function<void(route::Worker&)>& change = {}) {
    engines_.push_back(std::make_unique<Engine>(options));
    start(engines_.size() - 1);
    add_worker(engines_.back()->port.url(), change);
  }
  void add_engines(std::size_t count, const oracle::EngineOptions& options = {}) {
    while (count-- > 0) add_engine(options);
  }
  /// Adds a worker, and waits until it can be used.
  void add_worker(const std::string& url, const std::function<void(route::Worker&)>& change = {}) {
    const std::string id = "w" + std::to_string(workers_.size());
    const auto worker = std::make_shared<route::Worker>(id, fleet::Health(health_rules));
    worker->name = id;
    worker->set_url(url, net::parse_url(url), std::nullopt);
    worker->slots = 64;
    if (change) change(*worker);
    workers_.push_back(worker);
    router_.workers().add(worker);
    monitor_.watch(worker);
    run_until([&] { return worker->is_reachable; });
  }
  route::Worker& worker(std::size_t number) { return *workers_.at(number); }
  oracle::Engine& engine(std::size_t number) { return *engines_.at(number)->oracle; }
  oracle::Counts counts(std::size_t number) { return engine(number).counts(); }
  /// Requests that run on the engine, or wait there.
  std::uint64_t busy(std::size_t number) { return counts(number).running + counts(number).waiting; }
  [[nodiscard]] std::string url(std::size_t number) const { return workers_.at(number)->url; }

  /// Ends the engine's process: its port refuses connections, and its connections are closed.
  void kill(std::size_t number) { engines_.at(number)->oracle.reset(); }
  void start(std::size_t number) {
    Engine& engine = *engines_.at(number);
    engine.oracle = std::make_unique<oracle::Engine>(executor(), engine.options);
    engine.oracle->listen("127.0.0.1:" + std::to_string(engine.port.number()));
  }
  /// Of workers that are added from now on.
  fleet::HealthRules health_rules;

  // --- Clients

  /// Begins a request to the router, or to another server with its `port`.
  Client begin(const nlohmann::json& body, const std::string& path = "/v1/chat/completions",
               http::Fields headers = {}, std::uint16_t port = 0) {
    http::RequestHead head;
    head.method = body.is_null() ? "GET" : "POST";
    head.target = path;
    head.headers = std::move(headers);
    head.headers.emplace_back("content-type", "application/json");
    auto call = std::make_shared<ClientCall>();
    loop::spawn(executor(), run(call, std::move(head), body.is_null() ? "" : body.dump(),
                                port == 0 ? port_ : port));
    return call;
  }
  /// Runs a request to its end.
  Client ask(const nlohmann::json& body, const std::string& path = "/v1/chat/completions",
             http::Fields headers = {}, std::uint16_t port = 0) {
    Client call = begin(body, path, std::move(headers), port);
    run_until([&] { return call->has_ended(); });
    return call;
  }
  Client get(const std::string& path) { return ask(nullptr, path); }

  /// The text that every engine gives for this chat.
  std::string text_of(nlohmann::json body) {
    oracle::Engine engine(executor(), {});
    const std::uint16_t port = engine.listen("127.0.0.1:0");
    body["oracle"] = nlohmann::json::object();
    return ask(body, "/v1/chat/completions", {}, port)->text();
  }

 private:
  struct Engine {
    explicit Engine(oracle::EngineOptions its_options) : options(std::move(its_options)) {}
    oracle::EngineOptions options;
    ReservedPort port;
    std::unique_ptr<oracle::Engine> oracle;
  };

  route::RouterOptions with_monitor(route::RouterOptions options) {
    options.on_refused = [this](const route::WorkerPtr& worker, const std::string& reason) {
      monitor_.on_refused(worker, reason);
    };
    options.on_fault = [this](const route::WorkerPtr& worker) { monitor_.on_fault(worker); };
    return options;
  }

  void on_change(const route::WorkerPtr& worker) {
    router_.workers().regroup(worker);
    router_.on_change();
  }

  static boost::asio::awaitable<void> run(Client call, http::RequestHead head, std::string body,
                                          std::uint16_t port) {
    http::Origin origin;
    origin.address = {"127.0.0.1", port};
    const std::string what = "ask the router";
    try {
      const auto connection = co_await http::Connection::open(std::move(origin), soon(), what);
      call->connection_ = connection.get();
      co_await connection->send(std::move(head), body, soon());
      call->head_ = co_await connection->read_head(soon());
      std::array<char, 4096> space;
      for (;;) {
        const std::size_t count = co_await connection->read_some(space, soon());
        if (count == 0) break;
        call->body_.append(space.data(), count);
      }
      call->is_whole_ = true;
    } catch (const base::Error&) {
    } catch (const boost::system::system_error&) {
    }
    call->connection_ = nullptr;
    call->has_ended_ = true;
  }

  TestLoop loop_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<route::WorkerPtr> workers_;
  route::WorkerMonitor monitor_;
  route::Router router_;
  http::Server server_;
  std::uint16_t port_ = 0;
};

}  // namespace fo::test
