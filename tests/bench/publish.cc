// The costs of one address for the engine: a request on a kept connection, and a token of a stream
// from the engine's write to the client's read, through fo-shadow's publisher, and, in the same
// run, directly and through haproxy. Each is one process, all on one core, so that work is
// compared, and not the wake-up of an idle core.
// Usage: publish [--json FILE] [--quick] [RUNS]
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "engine/publish/control_paths.h"
#include "engine/publish/publisher.h"
#include "os/process/process.h"
#include "report.h"
#include "support/ports.h"

namespace {

using namespace fo;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;

constexpr int kRequests = 2000;
constexpr int kTokens = 200;
constexpr int kStreams = 5;
constexpr std::size_t kTokenBytes = 150;

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void check(bool done, const char* what) {
  if (!done) base::throw_errno(errno, what);
}

UniqueFd make_socket() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  check(fd.valid(), "create a socket");
  return fd;
}

struct Listener {
  Listener() : fd(make_socket()) {
    sockaddr_in address = test::loopback(0);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    check(::bind(fd.get(), generic, size) == 0, "bind a socket");
    check(::listen(fd.get(), 64) == 0, "listen");
    check(::getsockname(fd.get(), generic, &size) == 0, "name a socket");
    port = ntohs(address.sin_port);
  }
  UniqueFd fd;
  std::uint16_t port = 0;
};

class Stream {
 public:
  explicit Stream(UniqueFd fd) : fd_(std::move(fd)) {
    const int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  static Stream connect(std::uint16_t port) {
    UniqueFd fd = make_socket();
    check(test::try_connect(fd.get(), port) == 0, "connect");
    return Stream(std::move(fd));
  }
  void send(std::string_view text) const {
    const auto size = static_cast<ssize_t>(text.size());
    check(::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) == size, "send");
  }
  /// Reads up to and including `end`; empty if the connection ended.
  std::string read_until(std::string_view end) {
    std::size_t at = 0;
    while ((at = got_.find(end)) == std::string::npos) {
      if (!receive()) return {};
    }
    return cut(at + end.size());
  }
  std::string read(std::size_t count) {
    while (got_.size() < count) {
      if (!receive()) throw Error(ExitStatus::kSoftware, "read from a connection: it ended");
    }
    return cut(count);
  }

 private:
  std::string cut(std::size_t count) {
    std::string head = got_.substr(0, count);
    got_.erase(0, count);
    return head;
  }
  bool receive() {
    std::array<char, 16384> buffer;
    const ssize_t count = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (count <= 0) return false;
    got_.append(buffer.data(), static_cast<std::size_t>(count));
    return true;
  }

  UniqueFd fd_;
  std::string got_;
};

/// The client's acknowledgement of a token, which bypasses the process in between.
struct Acknowledgement {
  Acknowledgement() {
    int ends[2];
    check(::pipe2(ends, O_CLOEXEC) == 0, "create a pipe");
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
  void give() const { check(::write(writer.get(), "a", 1) == 1, "acknowledge"); }
  void await() const {
    char byte = 0;
    check(::read(reader.get(), &byte, 1) == 1, "await an acknowledgement");
  }
  UniqueFd reader;
  UniqueFd writer;
};

std::string chunk_of(std::string data) {
  data.resize(kTokenBytes - 2, 'x');
  char size[16];
  std::snprintf(size, sizeof size, "%zx\r\n", kTokenBytes);
  return size + data + "\n\n\r\n";
}

void serve(Stream client, const Acknowledgement& read) {
  const std::string answer =
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 200\r\n\r\n" +
      std::string(200, 'x');
  for (;;) {
    const std::string request = client.read_until("\r\n\r\n");
    if (request.empty()) return;
    if (!request.starts_with("GET /stream ")) {
      client.send(answer);
      continue;
    }
    client.send(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        "Transfer-Encoding: chunked\r\n\r\n");
    read.await();
    for (int i = 0; i < kTokens; ++i) {
      client.send(chunk_of("data: " + std::to_string(now_ns()) + " "));
      read.await();
    }
    client.send("0\r\n\r\n");
  }
}

os::SpawnOptions ends_with_us() {
  os::SpawnOptions options;
  options.parent_death_signal = SIGKILL;
  return options;
}

os::Child start_engine(const Listener& listener, const Acknowledgement& read) {
  return os::fork_child(
      [&]() -> int {
        for (;;) {
          UniqueFd client(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
          check(client.valid(), "accept");
          std::thread([fd = std::move(client), &read]() mutable {
            serve(Stream(std::move(fd)), read);
          }).detach();
        }
      },
      ends_with_us());
}

os::Child start_publisher(const Listener& listener, std::uint16_t engine) {
  return os::fork_child(
      [&] {
        std::signal(SIGPIPE, SIG_IGN);
        boost::asio::io_context io{1};
        // Like fo-shadow without --publish-control.
        const auto judge = [](std::string_view target) {
          const std::optional<std::string> path = engine::plain_path(target);
          return path && !engine::is_control_path(engine::EngineKind::kVllm, *path) ? 0 : 403;
        };
        engine::Publisher publisher(io.get_executor(), "127.0.0.1:0",
                                    "127.0.0.1:" + std::to_string(engine), {}, judge);
        engine::PublishedSockets sockets;
        sockets.listener.reset(::fcntl(listener.fd.get(), F_DUPFD_CLOEXEC, 0));
        check(::fcntl(sockets.listener.get(), F_SETFL, O_NONBLOCK) == 0, "set a socket's mode");
        publisher.start(std::move(sockets));
        io.run();
        return 0;
      },
      ends_with_us());
}

os::Child start_haproxy(const std::string& folder, const std::string& mode,
                        const Listener& listener, std::uint16_t engine) {
  const std::string path = folder + "/" + mode + ".cfg";
  std::ofstream(path) << "global\n  nbthread 1\n  maxconn 256\ndefaults\n  mode " << mode
                      << "\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"
                      << (mode == "http" ? "  option http-no-delay\n" : "")
                      << "frontend address\n  bind fd@" << listener.fd.get()
                      << "\n  default_backend engines\nbackend engines\n  server engine 127.0.0.1:"
                      << engine << "\n";
  os::SpawnOptions options = ends_with_us();
  options.keep_fds = {listener.fd.get()};
  return os::spawn({"haproxy", "-q", "-db", "-f", path}, options);
}

/// The seconds for one request.
double time_requests(Stream& client) {
  const std::int64_t begin = now_ns();
  for (int i = 0; i < kRequests; ++i) {
    client.send("GET / HTTP/1.1\r\nHost: engine\r\n\r\n");
    client.read_until("\r\n\r\n");
    client.read(200);
  }
  return static_cast<double>(now_ns() - begin) / 1e9 / kRequests;
}

/// The seconds from the engine's write of a token to the client's read.
double time_tokens(Stream& client, const Acknowledgement& read) {
  std::int64_t total = 0;
  for (int stream = 0; stream < kStreams; ++stream) {
    client.send("GET /stream HTTP/1.1\r\nHost: engine\r\n\r\n");
    client.read_until("\r\n\r\n");
    read.give();
    for (int i = 0; i < kTokens; ++i) {
      const std::string token = client.read_until("\n\n\r\n");
      const std::int64_t now = now_ns();
      const std::size_t stamp = token.find("data: ");
      if (stamp == std::string::npos) throw Error(ExitStatus::kSoftware, "read a token: none");
      total += now - std::strtoll(token.c_str() + stamp + 6, nullptr, 10);
      read.give();
    }
    client.read_until("0\r\n\r\n");
  }
  return static_cast<double>(total) / 1e9 / (kTokens * kStreams);
}

void measure(std::size_t runs, const std::string& folder, std::vector<os::Child>& children,
             bench::Report& report) {
  const Acknowledgement read;
  const Listener engine;
  struct Way {
    std::string name;
    Listener listener;
  };
  std::vector<Way> ways(3);
  ways[0].name = "publisher";
  ways[1].name = "haproxy, mode tcp";
  ways[2].name = "haproxy, mode http";
  children.push_back(start_engine(engine, read));
  children.push_back(start_publisher(ways[0].listener, engine.port));
  try {
    children.push_back(start_haproxy(folder, "tcp", ways[1].listener, engine.port));
    children.push_back(start_haproxy(folder, "http", ways[2].listener, engine.port));
  } catch (const Error& error) {
    if (error.status() != ExitStatus::kNotFound) throw;
    report.skip("the publisher beside haproxy", "haproxy is not installed");
    ways.resize(1);
  }
  std::vector<Stream> clients;
  clients.push_back(Stream::connect(engine.port));
  for (const Way& way : ways) clients.push_back(Stream::connect(way.listener.port));
  std::vector<bench::Contender> requests;
  std::vector<bench::Contender> tokens;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const std::string name = i == 0 ? "direct" : ways[i - 1].name;
    requests.push_back({name, [&, i] { return time_requests(clients[i]); }});
    tokens.push_back({name, [&, i] { return time_tokens(clients[i], read); }});
  }
  bench::take_turns(requests, runs);
  bench::take_turns(tokens, runs);
  std::vector<bench::Comparison> comparisons;
  for (std::size_t i = 1; i < ways.size(); ++i) comparisons.push_back({ways[0].name, ways[i].name});
  report.table("a request and its answer of 200 bytes", "us", 1e6, requests, comparisons);
  report.table("a streamed token of 150 bytes, written -> read", "us", 1e6, tokens, comparisons);
}

// Keeps this process and its children on one core.
void stay_on_one_core() {
  const int here = ::sched_getcpu();
  check(here >= 0, "find our core");
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(static_cast<std::size_t>(here), &core);
  check(::sched_setaffinity(0, sizeof core, &core) == 0, "stay on one core");
}

void run(std::size_t runs, bench::Report& report) {
  stay_on_one_core();
  std::string folder = "/tmp/publish-bench.XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) base::throw_errno(errno, "create a folder");
  std::vector<os::Child> children;
  const auto end = [&] {
    for (const os::Child& child : children) {
      child.signal(SIGKILL);
      static_cast<void>(child.wait(Deadline::never()));
    }
    for (const char* mode : {"tcp", "http"}) ::unlink((folder + "/" + mode + ".cfg").c_str());
    ::rmdir(folder.c_str());
  };
  try {
    measure(runs, folder, children, report);
  } catch (...) {
    end();
    throw;
  }
  end();
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run("publish", argc, argv,
                    [](const bench::Arguments& arguments, bench::Report& report) {
                      run(bench::parse_runs(arguments, 15), report);
                    });
}
