// The processes of the program route_proxies: engines, and the proxies in front of them, each of
// which gets the best configuration for retries that it has. Proxies run on a core of their own.
// The gateway is @portkey-ai/gateway of npm, which tests/bench/install-gateway installs.
#pragma once

#include <fcntl.h>
#include <sched.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "http/client.h"
#include "os/file/file.h"
#include "os/process/process.h"
#include "support/ports.h"
#include "support/soon.h"
#include "support/temp_dir.h"

namespace fo::bench {

/// A process whose output is discarded; the destructor kills it.
class Process {
 public:
  explicit Process(const std::vector<std::string>& argv) : child_(start(argv)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    child_.signal(SIGKILL);
    static_cast<void>(child_.wait(base::Deadline::never()));
  }
  [[nodiscard]] pid_t pid() const { return child_.pid(); }

 private:
  static os::Child start(const std::vector<std::string>& argv) {
    const base::UniqueFd null = os::open_file("/dev/null", O_RDWR);
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    options.stdin_fd = options.stdout_fd = options.stderr_fd = null.get();
    return os::spawn(argv, options);
  }

  os::Child child_;
};

/// The cores that this process may use: proxies run on the last one, and all else on the first one.
class Cores {
 public:
  Cores() {
    cpu_set_t all;
    if (::sched_getaffinity(0, sizeof all, &all) != 0) base::throw_errno(errno, "find our cores");
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &all)) continue;
      if (last_ == kNone) first_ = core;
      last_ = core;
    }
    use(first_);
  }
  [[nodiscard]] std::unique_ptr<Process> start_on_last(const std::vector<std::string>& argv) const {
    struct Back {
      std::size_t core;
      ~Back() { use(core); }
    } const back{first_};
    use(last_);
    return std::make_unique<Process>(argv);
  }

 private:
  static constexpr std::size_t kNone = CPU_SETSIZE;

  static void use(std::size_t core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof one, &one);
  }

  std::size_t first_ = kNone;
  std::size_t last_ = kNone;
};

/// An engine, fo-oracle with `options`; a later one has the same address.
class Engine {
 public:
  explicit Engine(std::vector<std::string> options) : options_(std::move(options)) { start(); }
  void kill() { process_.reset(); }
  /// Kills it, and starts the next one.
  void restart() {
    kill();
    start();
  }
  [[nodiscard]] std::uint16_t port() const { return port_.number(); }
  [[nodiscard]] std::string url(const std::string& path = "") const { return port_.url() + path; }

 private:
  void start() {
    std::vector<std::string> argv{FO_BUILD_DIR "/bin/fo-oracle", "--port",
                                  std::to_string(port_.number())};
    argv.insert(argv.end(), options_.begin(), options_.end());
    process_ = std::make_unique<Process>(argv);
  }

  std::vector<std::string> options_;
  test::ReservedPort port_;
  std::unique_ptr<Process> process_;
};

using Engines = std::vector<Engine>;

inline Engines start_engines(std::size_t count, const std::vector<std::string>& options) {
  Engines engines;
  for (std::size_t i = 0; i < count; ++i) engines.emplace_back(options);
  return engines;
}

enum class Kind { kNoProxy, kFoRoute, kNoResume, kHaproxy, kNginx, kGateway };

inline std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::kNoProxy:
      return "no proxy";
    case Kind::kFoRoute:
      return "fo-route";
    case Kind::kNoResume:
      return "--no-resume";
    case Kind::kHaproxy:
      return "haproxy";
    case Kind::kNginx:
      return "nginx";
    case Kind::kGateway:
      return "portkey";
  }
  return {};
}

/// The program of the gateway.
inline const std::string kGatewayProgram =
    FO_BUILD_DIR "/gateway/node_modules/@portkey-ai/gateway/build/start-server.js";

/// The header of each request to the gateway: an engine drawn at random, then the next ones. It has
/// no health checks: each of its requests tries engines until one begins to answer.
inline http::Fields gateway_headers(const Engines& engines) {
  const auto list = [&](const std::string& mode, const auto& target) {
    std::string text = R"({"strategy":{"mode":")" + mode + R"("},"targets":[)";
    for (std::size_t i = 0; i < engines.size(); ++i) text += (i == 0 ? "" : ",") + target(i);
    return text + "]}";
  };
  const std::string config = list("loadbalance", [&](std::size_t first) {
    return list("fallback", [&](std::size_t next) {
      const Engine& engine = engines[(first + next) % engines.size()];
      return R"({"provider":"openai","api_key":"none","custom_host":")" + engine.url("/v1") +
             R"("})";
    });
  });
  return {{"x-portkey-config", config}};
}

/// A proxy in front of engines, which is ready to serve `streams` at a time; or the first of these
/// engines itself.
class Proxy {
 public:
  /// Throws base::Error(kNotFound) if it is not installed.
  Proxy(Kind kind, const Cores& cores, const Engines& engines, std::size_t streams)
      : kind_(kind),
        streams_(streams),
        headers_(kind == Kind::kGateway ? gateway_headers(engines) : http::Fields{}) {
    if (kind_ != Kind::kNoProxy) process_ = cores.start_on_last(command(engines));
    port_number_ = process_ ? port_.number() : engines.front().port();
    const base::Deadline deadline = test::soon();
    while (!is_ready(deadline)) {
      if (deadline.expired()) {
        throw base::Error(base::ExitStatus::kSoftware, "start " + name() + ": it does not serve");
      }
    }
  }

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] std::string name() const { return name_of(kind_); }
  [[nodiscard]] std::uint16_t port() const { return port_number_; }
  /// What each request needs.
  [[nodiscard]] const http::Fields& headers() const { return headers_; }
  /// Of the proxy; 0 without one.
  [[nodiscard]] pid_t pid() const { return process_ ? process_->pid() : 0; }

 private:
  [[nodiscard]] std::vector<std::string> command(const Engines& engines) const {
    if (kind_ == Kind::kFoRoute || kind_ == Kind::kNoResume) {
      std::vector<std::string> argv{FO_BUILD_DIR "/bin/fo-route",
                                    "serve",
                                    "-q",
                                    "--listen",
                                    "127.0.0.1:" + std::to_string(port_.number()),
                                    "--admin",
                                    folder_.path("route.sock"),
                                    "--slots",
                                    std::to_string(streams_)};
      if (kind_ == Kind::kNoResume) argv.emplace_back("--no-resume");
      for (const Engine& engine : engines) argv.insert(argv.end(), {"--worker", engine.url()});
      return argv;
    }
    if (kind_ == Kind::kGateway) {
      if (!std::filesystem::exists(kGatewayProgram)) {
        throw base::Error(base::ExitStatus::kNotFound, "start " + name() + ": it is not installed");
      }
      return {"node", kGatewayProgram, "--headless", "--port=" + std::to_string(port_.number())};
    }
    const std::string path = folder_.path("configuration");
    std::ofstream(path) << (kind_ == Kind::kHaproxy ? haproxy(engines) : nginx(engines));
    if (kind_ == Kind::kHaproxy) return {"haproxy", "-q", "-db", "-f", path};
    return {"nginx", "-q", "-p", folder_.path(""), "-c", path};
  }

  [[nodiscard]] bool is_ready(const base::Deadline& deadline) const {
    const std::string url = "http://127.0.0.1:" + std::to_string(port_number_) + "/v1/completions";
    http::FetchOptions options;
    options.body = R"({"model":"oracle","prompt":"Hello","max_tokens":1})";
    options.headers = headers_;
    try {
      return http::fetch("POST", url, deadline, options).status == 200;
    } catch (const base::Error&) {
      return false;
    }
  }

  [[nodiscard]] std::string haproxy(const Engines& engines) const {
    std::string text = "global\n  nbthread 1\n  maxconn " + std::to_string(streams_ + 10) + R"(
defaults
  mode http
  timeout connect 2s
  timeout client 10m
  timeout server 10m
  option http-no-delay
  option abortonclose
  option http-buffer-request
  option redispatch 1
  retries 4
  retry-on all-retryable-errors
frontend address
  bind 127.0.0.1:)" + std::to_string(port_.number()) +
                       R"(
  default_backend engines
backend engines
  balance leastconn
  option httpchk GET /health
  default-server check inter 50ms fall 1 rise 1
)";
    for (const Engine& engine : engines) {
      const std::string port = std::to_string(engine.port());
      text += "  server engine" + port + " 127.0.0.1:" + port + "\n";
    }
    return text;
  }

  // max_fails=0: an engine that failed is asked again at once. A standby has its address by then.
  [[nodiscard]] std::string nginx(const Engines& engines) const {
    std::string text = "daemon off;\nmaster_process off;\nerror_log /dev/null crit;\npid " +
                       folder_.path("pid") + ";\nevents { worker_connections " +
                       std::to_string(2 * streams_ + 50) + R"(; }
http {
  access_log off;
  keepalive_requests 100000000;
  upstream engines {
    least_conn;
)";
    for (const Engine& engine : engines) {
      text += "    server 127.0.0.1:" + std::to_string(engine.port()) + " max_fails=0;\n";
    }
    text += R"(
    keepalive 256;
    keepalive_requests 100000000;
  }
)";
    for (const std::string module : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"}) {
      text += "  " + module + "_temp_path " + folder_.path(module) + ";\n";
    }
    return text + "  server {\n    listen 127.0.0.1:" + std::to_string(port_.number()) +
           " backlog=4096;" + R"(
    location / {
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_connect_timeout 2s;
      proxy_read_timeout 10m;
      proxy_next_upstream error timeout invalid_header http_502 http_503 http_504 non_idempotent;
      proxy_next_upstream_tries 5;
    }
  }
}
)";
  }

  Kind kind_;
  std::size_t streams_;
  test::TempDir folder_;
  http::Fields headers_;
  test::ReservedPort port_;
  std::uint16_t port_number_ = 0;
  std::unique_ptr<Process> process_;
};

}  // namespace fo::bench
