// The start of a gms-serve: the time from exec to an answer on its socket, from a crash of its
// server to the next answer, and the memory of an idle one's processes.
// Usage: gms_start [--json FILE] [--quick] [RUNS]
#include <csignal>
#include <fstream>
#include <sstream>

#include "gms/client/rpc_client.h"
#include "gms_server.h"
#include "os/socket/unix_socket.h"
#include "report.h"

namespace {

using namespace fo;
using base::Deadline;
using bench::Contender;
using bench::expect;

constexpr base::ByteCount kSize = 4096;

std::vector<pid_t> children_of(pid_t pid) {
  const std::string number = std::to_string(pid);
  std::ifstream file("/proc/" + number + "/task/" + number + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

// Reads a number of /proc/<pid>/status.
std::uint64_t status_of(pid_t pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream rest(line.substr(name.size() + 1));
    std::uint64_t number = 0;
    rest >> number;
    return number;
  }
  return 0;
}

gms::LayoutHash answer_of(const std::string& socket) {
  return gms::RpcClient::connect(socket, bench::soon(), gms::RpcClient::Retry::kUntilTheDeadline)
      .runtime_state()
      .memory_layout_hash;
}

void publish(const std::string& socket, std::size_t allocations) {
  gms::RpcClient writer = gms::RpcClient::connect(socket, bench::soon());
  expect(writer.request_lock(gms::LockType::kRw, bench::soon()).grant.has_value(), "no lock");
  if (allocations > 0) {
    writer.allocate_many(std::vector<base::ByteCount>(allocations, kSize), "weights");
  }
  writer.commit();
}

// Polls the socket all the time: a client retries every 50 ms, which would hide the result.
double start_until_it_answers(const std::string& socket) {
  std::optional<os::Child> server;
  const double seconds = bench::seconds_of([&] {
    server.emplace(os::spawn({FO_BUILD_DIR "/bin/gms-serve", "-q", "--socket-path", socket},
                             {.parent_death_signal = SIGKILL}));
    while (!os::is_socket_live(socket)) {
    }
    answer_of(socket);
  });
  server->signal(SIGTERM);
  static_cast<void>(server->wait(Deadline::never()));
  return seconds;
}

double crash_until_it_answers(const std::string& socket, std::size_t allocations) {
  const bench::Server server(socket);
  publish(socket, allocations);
  const gms::LayoutHash hash = answer_of(socket);
  const pid_t victim = children_of(server.child().pid()).at(0);
  return bench::seconds_of([&] {
    ::kill(victim, SIGKILL);
    // An error means that the dying server had accepted this client, so try again.
    for (gms::LayoutHash found; found != hash;) {
      try {
        found = answer_of(socket);
      } catch (const base::Error&) {
      }
      if (children_of(server.child().pid()) == std::vector<pid_t>{victim}) found = {};
    }
  });
}

void show_idle(const std::string& socket, int seconds, bench::Report& report) {
  const bench::Server server(socket);
  publish(socket, 1000);
  std::printf("Idle, with 1,000 allocations published\n%-42s %14s %17s %2d s\n", "", "resident KiB",
              "wake-ups in", seconds);
  std::vector<std::pair<std::string, pid_t>> processes{{"parent", server.child().pid()}};
  for (const pid_t child : children_of(server.child().pid())) {
    processes.emplace_back("server", child);
  }
  std::vector<std::uint64_t> before;
  for (const auto& [name, pid] : processes) {
    before.push_back(status_of(pid, "voluntary_ctxt_switches"));
  }
  ::poll(nullptr, 0, seconds * 1000);
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const auto& [name, pid] = processes[i];
    const std::uint64_t resident = status_of(pid, "VmRSS");
    const std::uint64_t woken = status_of(pid, "voluntary_ctxt_switches") - before[i];
    std::printf("%-42s %14llu %22llu\n", name.c_str(), static_cast<unsigned long long>(resident),
                static_cast<unsigned long long>(woken));
    report.row("Memory of an idle gms-serve, 1,000 allocations published", "MB",
               {name, {static_cast<double>(resident) * 1024 / 1e6}}, {}, bench::value_at_most(10));
  }
}

void run(std::size_t runs, bool quick, bench::Report& report) {
  const bench::Device gpu(256 * base::kMiB, kSize);
  const std::string socket = gpu.path("gms.sock");
  const std::string answer = "exec to an answer";
  const std::string crash = "SIGKILL of the server to an answer, ";
  std::vector<Contender> contenders{
      {answer, [&] { return start_until_it_answers(socket); }},
      {crash + "1", [&] { return crash_until_it_answers(socket, 1); }},
      {crash + "1000", [&] { return crash_until_it_answers(socket, 1000); }},
      {crash + "10000", [&] { return crash_until_it_answers(socket, 10'000); }},
  };
  bench::take_turns(contenders, runs);
  report.table("Starts, by the number of allocations published", "ms", 1e3, contenders,
               {{answer, "", bench::value_at_most(20)},
                {crash + "1", ""},
                {crash + "1000", ""},
                {crash + "10000", ""}});
  show_idle(socket, quick ? 1 : 5, report);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run("gms_start", argc, argv,
                    [](const bench::Arguments& arguments, bench::Report& report) {
                      run(bench::parse_runs(arguments, 5), arguments.quick, report);
                    });
}
