// Stand-ins for inference engines: HTTP servers on the test's loop that answer like the real ones,
// including their traps, and record the requests and what these would have broken.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/server.h"
#include "loop/test_loop.h"

namespace fo::test {

/// A server with the test's routes; any other is 404, as in FastAPI.
class StandIn {
 public:
  using Answer = std::function<http::Response(const http::Request&)>;

  explicit StandIn(TestLoop& loop)
      : server_(loop.io().get_executor(),
                [this](const http::Request& request, http::Reply& reply) {
                  return serve(this, request, reply);
                }),
        url_("http://127.0.0.1:" + std::to_string(server_.listen("127.0.0.1:0"))) {}

  [[nodiscard]] const std::string& url() const { return url_; }

  /// `route`: "POST /sleep".
  void on(const std::string& route, Answer answer) { routes_[route] = std::move(answer); }
  void on(const std::string& route, int status, std::string body) {
    on(route, [status, body = std::move(body)](const http::Request&) {
      return http::Response{status, "application/json", body, {}};
    });
  }
  /// Reads the request and never answers.
  void hang(const std::string& route) { routes_[route] = nullptr; }
  /// The current answer, to restore it later.
  [[nodiscard]] Answer route(const std::string& name) const { return routes_.at(name); }
  void forget(const std::string& route) { routes_.erase(route); }

  /// "POST /sleep?level=1&mode=abort", followed by the body if there is one: "POST /tell {}".
  std::vector<std::string> asked;

 private:
  static boost::asio::awaitable<void> serve(StandIn* self, const http::Request& request,
                                            http::Reply& reply) {
    self->asked.push_back(request.method + " " + request.target +
                          (request.body.empty() ? "" : " " + request.body));
    const auto found = self->routes_.find(request.method + " " + request.path);
    if (found == self->routes_.end()) {
      reply.answer({404, "application/json", R"({"detail":"Not Found"})", {}});
    } else if (found->second) {
      reply.answer(found->second(request));
    } else {
      const boost::asio::any_io_executor loop = co_await boost::asio::this_coro::executor;
      boost::asio::steady_timer never(loop, std::chrono::hours(1));
      co_await never.async_wait(boost::asio::use_awaitable);
    }
  }

  std::map<std::string, Answer> routes_;
  http::Server server_;
  std::string url_;
};

inline http::Response json_answer(const std::string& body) {
  return {200, "application/json", body, {}};
}

/// Half a million nested lists, which overflow the stack of a recursive parser.
inline std::string nested_lists() {
  constexpr std::size_t kDepth = 500000;
  return std::string(kDepth, '[') + std::string(kDepth, ']');
}

/// /v1/models and /v1/completions as answered by vLLM and SGLang.
inline void serve_completions(StandIn& engine) {
  engine.on("GET /v1/models", 200, R"({"object":"list","data":[{"id":"a \"model\""},{"id":"b"}]})");
  engine.on("POST /v1/completions", 200,
            R"({"choices":[{"index":0,"text":"","finish_reason":"length"}],)"
            R"("usage":{"prompt_tokens":1,"completion_tokens":1}})");
}

/// vLLM with its sleep mode. `broken` has the steps that could crash the real one.
class VllmStandIn : public StandIn {
 public:
  explicit VllmStandIn(TestLoop& loop) : StandIn(loop) {
    serve_completions(*this);
    on("GET /health", 200, "");
    on("GET /is_sleeping", [this](const http::Request&) {
      if (late_answers > 0 && --late_answers == 0) awake.swap(later_);
      return json_answer(awake.size() == 2 ? R"({"is_sleeping":false})"
                                           : R"({"is_sleeping":true})");
    });
    on("POST /sleep", [this](const http::Request& request) {
      // Only the query is read.
      level = request.parameter("level").value_or("1") == "2" ? 2 : 1;
      mode = request.parameter("mode").value_or("abort");
      weights_loaded = level == 1;
      if (awake.empty()) broken.push_back("asleep already");
      become({});
      return json_answer("");
    });
    on("POST /wake_up", [this](const http::Request& request) {
      std::set<std::string> next = awake;
      bool named = false;
      for (const auto& [key, value] : request.query) {
        if (key != "tags") continue;
        named = true;
        if (!next.insert(value).second) broken.push_back(value + " is awake already");
      }
      if (!named && !awake.empty()) broken.push_back("awake already");
      if (!named) next = {"weights", "kv_cache"};
      become(std::move(next));
      return json_answer("");
    });
    on("POST /collective_rpc", [this](const http::Request& request) {
      if (request.body != R"({"method":"reload_weights"})") broken.push_back("unknown method");
      if (!awake.contains("weights")) broken.push_back("no memory for the weights");
      if (awake.contains("kv_cache")) broken.push_back("memory taken by the KV cache");
      weights_loaded = true;
      return json_answer(R"({"results":[null]})");
    });
    on("POST /reset_prefix_cache", [this](const http::Request&) {
      if (awake.size() != 2) broken.push_back("a request while asleep");
      return json_answer("");
    });
  }

  std::set<std::string> awake{"weights", "kv_cache"};
  bool weights_loaded = true;
  int level = 0;
  std::string mode;
  /// A step is complete after this many further queries of /is_sleeping.
  int late = 0;
  int late_answers = 0;
  std::vector<std::string> broken;

 private:
  void become(std::set<std::string> next) {
    if (late == 0) {
      awake = std::move(next);
      return;
    }
    later_ = std::move(next);
    late_answers = late;
  }
  std::set<std::string> later_;
};

/// SGLang with its memory saver. `broken` has the steps that would have ended the real one.
class SglangStandIn : public StandIn {
 public:
  explicit SglangStandIn(TestLoop& loop) : StandIn(loop) {
    serve_completions(*this);
    on("GET /ping", 200, "");
    on("GET /health", [this](const http::Request&) {
      if (released) broken.push_back("a generation without memory");
      return json_answer("");
    });
    on("POST /pause_generation", [this](const http::Request& request) {
      if (requests > 0) aborted += std::exchange(requests, 0);
      return needs_body(request);
    });
    on("POST /continue_generation", [this](const http::Request& request) {
      if (released) broken.push_back("work without memory");
      return needs_body(request);
    });
    on("POST /flush_cache", [this](const http::Request&) {
      const bool idle = requests == 0;
      if (requests > 0) --requests;
      http::Response response{idle || old ? 200 : 400, "text/plain", "Cache flushed.\nPlease", {}};
      return response;
    });
    on("GET /metrics", [this](const http::Request&) {
      const int now = requests;
      if (old && requests > 0) --requests;
      return http::Response{200,
                            "text/plain",
                            "sglang:num_running_reqs{tp_rank=\"0\"} " + std::to_string(now) +
                                ".0\nsglang:num_queue_reqs{tp_rank=\"0\"} 0.0\n",
                            {}};
    });
    on("POST /release_memory_occupation", [this](const http::Request& request) {
      if (requests > 0) broken.push_back("released while busy");
      if (released) broken.push_back("released twice");
      if (has_body(request)) released = true;
      return needs_body(request);
    });
    on("POST /resume_memory_occupation", [this](const http::Request& request) {
      if (!released) broken.push_back("resumed what is there");
      if (has_body(request)) released = false;
      return needs_body(request);
    });
  }

  /// A version without a pause, which answers every flush with 200.
  void make_old() {
    old = true;
    forget("POST /pause_generation");
    forget("POST /continue_generation");
  }

  /// Requests in flight; each refused flush ends one.
  int requests = 0;
  int aborted = 0;
  bool released = false;
  bool old = false;
  std::vector<std::string> broken;

 private:
  static bool has_body(const http::Request& request) {
    return request.body == "{}" && request.header("Content-Type") == "application/json";
  }
  static http::Response needs_body(const http::Request& request) {
    if (has_body(request)) return json_answer("null");
    return {
        422, "application/json", R"({"detail":[{"type":"missing","msg":"Field required"}]})", {}};
  }
};

}  // namespace fo::test
