#include "support/worker/front_end.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <csignal>
#include <exception>
#include <functional>
#include <list>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "http/server.h"
#include "loop/adopt.h"
#include "loop/blocking.h"
#include "loop/event.h"
#include "loop/spawn.h"
#include "metrics/prometheus_text.h"
#include "os/file/file.h"
#include "os/log.h"
#include "os/process/signals.h"
#include "support/worker/discovery.h"

namespace fo::stand_in {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using http::Reply;
using http::Request;
using http::Response;
using nlohmann::json;
using Descriptor = asio::posix::stream_descriptor;

constexpr std::size_t kMaxRequest = 65536;
constexpr auto kCoreEndTime = std::chrono::seconds(5);

Response text(int status, std::string body = {}) {
  return {status, "text/plain", std::move(body), {}};
}
Response object(const json& body, int status = 200) {
  return {status, "application/json", body.dump(), {}};
}
// The response of FastAPI, which both use.
Response not_found() { return object({{"detail", "Not Found"}}, 404); }
Response failure(const json& answer) { return object({{"error", answer.at("error")}}, 500); }

class FrontEnd {
 public:
  FrontEnd(asio::io_context& loop, const Launch& launch, os::Child core, base::UniqueFd socket)
      : loop_(loop),
        launch_(launch),
        core_(std::move(core)),
        core_socket_(loop),
        core_end_(loop),
        signals_(loop),
        free_(loop.get_executor()),
        discovery_(launch.engine_id) {
    const std::string what = "watch the engine core";
    loop::adopt(core_socket_, std::move(socket), what);
    loop::adopt(core_end_, loop::duplicate(core_.pidfd(), what), what);
    loop::adopt(signals_, os::open_signal_fd(os::signal_set({SIGTERM, SIGINT})), what);
  }

  int run() {
    // At start, like the real ones: it ends if another engine listens there.
    for (const std::string& port : launch_.side_ports) {
      listen("127.0.0.1:" + port, [](const Request&, Reply&) { return handle_nothing(); });
    }
    spawn(launch_.program == Program::kDynamoVllm ? run_dynamo() : run_server());
    spawn(end_with_core());
    spawn(end_with_signal());
    loop_.run();
    return base::to_int(base::ExitStatus::kSoftware);
  }

 private:
  // --- The engine core.

  // One request at a time. If the core dies, this process ends, too.
  awaitable<json> ask(json question) {
    while (std::exchange(busy_, true)) co_await free_.wait();
    const std::string message = question.dump();
    if (::send(core_socket_.native_handle(), message.data(), message.size(), MSG_NOSIGNAL) < 0) {
      die();
    }
    json answer = co_await receive();
    busy_ = false;
    free_.notify();
    co_return answer;
  }

  awaitable<json> receive() {
    std::string message(kMaxRequest, '\0');
    for (;;) {
      co_await core_socket_.async_wait(Descriptor::wait_read, asio::use_awaitable);
      const ssize_t got =
          ::recv(core_socket_.native_handle(), message.data(), message.size(), MSG_DONTWAIT);
      if (got > 0) co_return json::parse(message.data(), message.data() + got);
      if (got == 0 || errno != EAGAIN) die();
    }
  }

  awaitable<void> end_with_core() {
    co_await core_end_.async_wait(Descriptor::wait_read, asio::use_awaitable);
    die();
  }

  awaitable<void> end_with_signal() {
    co_await signals_.async_wait(Descriptor::wait_read, asio::use_awaitable);
    end(0);
  }

  // EngineDeadError: the server ends with it.
  [[noreturn]] void die() {
    os::log_line(os::LogLevel::kError, "the engine core is dead");
    end(1);
  }

  [[noreturn]] void end(int status) {
    discovery_.withdraw();
    discovery_.stop();
    core_.signal(SIGKILL);
    static_cast<void>(core_.wait(base::Deadline::after(kCoreEndTime)));
    // A thread may be waiting for the lock.
    ::_exit(status);
  }

  void spawn(awaitable<void> body) {
    loop::spawn(loop_, std::move(body), [this](std::exception_ptr error) {
      if (!error) return;
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& reason) {
        os::log_line(os::LogLevel::kError, reason.what());
      }
      end(1);
    });
  }

  std::uint16_t listen(const std::string& address, http::Handler handler) {
    http::Server& server = servers_.emplace_back(loop_.get_executor(), std::move(handler));
    return server.listen(address);
  }

  static awaitable<void> handle_nothing() { co_return; }

  // --- vLLM and SGLang: no socket listens before the engine has started.

  awaitable<void> run_server() {
    co_await receive();
    // With a scratch KV cache it cannot serve before it has slept and woken.
    if (!launch_.scratch_kv) discovery_.serve();
    listen(launch_.host + ":" + launch_.port, [this](const Request& request, Reply& reply) {
      return launch_.program == Program::kVllm ? handle_vllm(this, request, reply)
                                               : handle_sglang(this, request, reply);
    });
  }

  static awaitable<void> handle_vllm(FrontEnd* self, const Request& request, Reply& reply) {
    const std::string route = request.method + " " + request.path;
    const bool can_sleep = self->launch_.has_sleep_routes;
    // Answered even while it sleeps or its core hangs.
    if (route == "GET /health" || route == "GET /ping") {
      reply.answer(text(200));
    } else if (route == "GET /metrics") {
      reply.answer(self->metrics("vllm:", "num_requests_running", "num_requests_waiting"));
    } else if (route == "GET /v1/models") {
      reply.answer(self->models());
    } else if (route == "POST /v1/completions") {
      co_await self->complete(request, reply);
    } else if (can_sleep && route == "GET /is_sleeping") {
      reply.answer(object({{"is_sleeping", self->asleep_}}));
    } else if (can_sleep && route == "POST /sleep") {
      co_await self->sleep(reply);
    } else if (can_sleep && route == "POST /wake_up") {
      co_await self->wake(tags_of(request), reply);
    } else {
      reply.answer(not_found());
    }
  }

  static awaitable<void> handle_sglang(FrontEnd* self, const Request& request, Reply& reply) {
    const std::string route = request.method + " " + request.path;
    const json body = json::parse(request.body, nullptr, false);
    const bool releases = route == "POST /release_memory_occupation";
    const bool resumes = route == "POST /resume_memory_occupation";
    if (route == "GET /ping") {
      reply.answer(text(200));
    } else if (route == "GET /health" || route == "GET /health_generate") {
      // It generates a token, even without memory.
      co_await self->generate(1, 0);
      reply.answer(text(200));
    } else if (route == "GET /metrics") {
      reply.answer(self->metrics("sglang:", "num_running_reqs", "num_queue_reqs"));
    } else if (route == "GET /v1/models") {
      reply.answer(self->models());
    } else if (route == "POST /v1/completions") {
      co_await self->complete(request, reply);
    } else if (route == "POST /generate") {
      const json tokens = co_await self->generate(1, std::hash<std::string>{}(request.body));
      reply.answer(object({{"text", ""}, {"output_ids", tokens}}));
    } else if (route == "POST /flush_cache") {
      reply.answer(text(self->running_ == 0 ? 200 : 400, "Cache flushed."));
    } else if (route == "POST /pause_generation" || route == "POST /continue_generation" ||
               (self->launch_.has_sleep_routes && (releases || resumes))) {
      if (!body.is_object()) {
        reply.answer(object({{"detail", "Field required"}}, 422));
      } else if (releases) {
        // Its scheduler asserts that it is idle.
        if (self->running_ > 0) self->die();
        co_await self->sleep(reply);
      } else if (resumes) {
        co_await self->wake(body.value("tags", json::array()), reply);
      } else {
        reply.answer(object(nullptr));
      }
    } else {
      reply.answer(not_found());
    }
  }

  awaitable<void> sleep(Reply& reply) {
    discovery_.stop();
    json question{{"do", "sleep"}};
    const json answer = co_await ask(std::move(question));
    asleep_ = answer.value("asleep", asleep_);
    reply.answer(answer.contains("error") ? failure(answer) : text(200));
  }

  awaitable<void> wake(json tags, Reply& reply) {
    json question{{"do", "wake"}, {"tags", std::move(tags)}};
    const json answer = co_await ask(std::move(question));
    asleep_ = answer.value("asleep", asleep_);
    if (!asleep_) discovery_.serve();
    reply.answer(text(200));
  }

  static json tags_of(const Request& request) {
    json tags = json::array();
    for (const auto& [key, value] : request.query) {
      if (key == "tags") tags.push_back(value);
    }
    return tags;
  }

  // --- OpenAI's API, and the /metrics that a benchmark reads.

  awaitable<json> generate(int count, std::uint64_t prompt) {
    ++running_;
    json question{{"do", "complete"}, {"tokens", count}, {"prompt", prompt}};
    const json answer = co_await ask(std::move(question));
    --running_;
    generated_ += static_cast<std::uint64_t>(count);
    co_return answer.at("tokens");
  }

  awaitable<void> complete(const Request& request, Reply& reply) {
    const json body = json::parse(request.body, nullptr, false);
    if (!body.is_object()) {
      reply.answer(http::error_response(400, "not a JSON object"));
      co_return;
    }
    const int count = body.value("max_tokens", 16);
    const std::string prompt = body.value("prompt", json()).dump();
    const json tokens = co_await generate(count, std::hash<std::string>{}(prompt));
    json choice{{"index", 0}, {"text", ""}, {"finish_reason", "length"}, {"token_ids", tokens}};
    json usage{{"prompt_tokens", 1}, {"completion_tokens", count}, {"total_tokens", count + 1}};
    reply.answer(object({{"id", "cmpl-1"},
                         {"object", "text_completion"},
                         {"model", launch_.model},
                         {"choices", json::array({std::move(choice)})},
                         {"usage", std::move(usage)}}));
  }

  [[nodiscard]] Response models() const {
    const json model{{"id", launch_.model}, {"object", "model"}};
    return object({{"object", "list"}, {"data", json::array({model})}});
  }

  [[nodiscard]] Response metrics(const std::string& prefix, const std::string& running,
                                 const std::string& waiting) const {
    metrics::PrometheusText out;
    const auto add = [&](const std::string& name, const char* type, std::uint64_t value) {
      out.begin(prefix + name, type, "Of the stand-in.");
      out.add({{"model_name", launch_.model}}, value);
    };
    add(running, "gauge", running_);
    add(waiting, "gauge", 0);
    add("generation_tokens_total", "counter", generated_);
    return {200, std::string(metrics::kPrometheusTextType), out.take(), {}};
  }

  // --- Dynamo's worker: its status server listens from the start, and requests come by discovery.

  awaitable<void> run_dynamo() {
    if (launch_.system_port) {
      listen("0.0.0.0:" + *launch_.system_port, [this](const Request& request, Reply& reply) {
        return handle_system(this, request, reply);
      });
    }
    co_await receive();
    if (launch_.shadow_mode) co_await wait_for_lock();
    // Without shadow mode, this is before any caller could have put it to sleep.
    enroll();
  }

  // It is healthy while it sleeps; only its end releases the lock.
  awaitable<void> wait_for_lock() {
    json question{{"do", "sleep"}};
    const json slept = co_await ask(std::move(question));
    asleep_ = true;
    healthy_ = true;
    lock_ = os::open_file(launch_.lock_path, O_RDWR | O_CREAT);
    std::function<int()> take = [fd = lock_.get()] { return ::flock(fd, LOCK_EX); };
    const int taken = co_await loop::run_blocking<int>(std::move(take));
    if (taken != 0) throw base::Error(base::ExitStatus::kOsError, "lock the lock file");
    const json woken = co_await wake_dynamo(json());
  }

  awaitable<json> wake_dynamo(json tags) {
    if (asleep_) {
      json question{{"do", "wake"}, {"tags", tags.is_array() ? std::move(tags) : json::array()}};
      const json answer = co_await ask(std::move(question));
      asleep_ = answer.value("asleep", asleep_);
    }
    co_return json{{"status", "ok"}, {"message", "Engine woke"}};
  }

  // Its requests come to a separate port, in place of Dynamo's request plane.
  void enroll() {
    if (request_port_ == 0) {
      request_port_ = listen("0.0.0.0:0", [this](const Request& request, Reply& reply) {
        return complete(request, reply);
      });
    }
    healthy_ = true;
    enrolled_ = true;
    discovery_.enroll(request_port_);
  }

  static awaitable<void> handle_system(FrontEnd* self, const Request& request, Reply& reply) {
    const std::string route = request.method + " " + request.path;
    const json body = json::parse(request.body, nullptr, false);
    if (route == "GET /health" || route == "GET /live") {
      json endpoints = json::object();
      if (self->enrolled_) endpoints["generate"] = "ready";
      const char* status = self->healthy_ ? "ready" : "notready";
      reply.answer(object({{"status", status}, {"endpoints", std::move(endpoints)}},
                          self->healthy_ ? 200 : 503));
    } else if (route == "POST /engine/control/sleep" || route == "POST /engine/sleep") {
      co_await self->sleep_dynamo(reply);
    } else if (route == "POST /engine/control/wake_up" || route == "POST /engine/wake_up") {
      json tags = body.is_object() ? body.value("tags", json()) : json();
      const json answer = co_await self->wake_dynamo(std::move(tags));
      self->enroll();
      reply.answer(object(answer));
    } else {
      reply.answer(not_found());
    }
  }

  // Unregisters first, so that no new requests arrive. An error is answered with 200.
  awaitable<void> sleep_dynamo(Reply& reply) {
    json answer{{"status", "ok"}, {"message", "Engine slept"}};
    if (!asleep_) {
      discovery_.withdraw();
      json question{{"do", "sleep"}};
      const json slept = co_await ask(std::move(question));
      asleep_ = slept.value("asleep", false);
      if (slept.contains("error")) answer = {{"status", "error"}, {"message", slept["error"]}};
    }
    reply.answer(object(answer));
  }

  asio::io_context& loop_;
  Launch launch_;
  os::Child core_;
  Descriptor core_socket_;
  Descriptor core_end_;
  Descriptor signals_;
  bool busy_ = false;
  loop::Event free_;
  Discovery discovery_;
  std::list<http::Server> servers_;
  base::UniqueFd lock_;
  bool asleep_ = false;
  bool healthy_ = false;
  bool enrolled_ = false;
  std::uint16_t request_port_ = 0;
  std::uint64_t running_ = 0;
  std::uint64_t generated_ = 0;
};

}  // namespace

int run_front_end(const Launch& launch, os::Child core, base::UniqueFd core_socket) {
  asio::io_context loop(1);
  FrontEnd front_end(loop, launch, std::move(core), std::move(core_socket));
  return front_end.run();
}

}  // namespace fo::stand_in
