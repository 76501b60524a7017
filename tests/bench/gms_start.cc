// What a gms-serve costs those who wait for it and those who share its machine: from exec until its
// socket answers, from a crash of its server until it answers again, and what the processes of an
// idle one take. Usage: gms_start [RUNS]
#include <csignal>
#include <fstream>
#include <sstream>

#include "bench.h"
#include "gms/rpc_client.h"
#include "gms_server.h"
#include "os/unix_socket.h"

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

// A number of /proc/<pid>/status.
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

std::string answer_of(const std::string& socket) {
  return gms::RpcClient::connect(socket, bench::soon(), gms::RpcClient::Retry::kUntilTheDeadline)
      .runtime_state()
      .memory_layout_hash;
}

void publish(const std::string& socket, std::size_t allocations) {
  gms::RpcClient writer = gms::RpcClient::connect(socket, bench::soon());
  expect(writer.shake_hands(gms::LockType::kRw, bench::soon()).grant.has_value(), "no lock");
  if (allocations > 0) {
    writer.allocate_many(std::vector<base::ByteCount>(allocations, kSize), "weights");
  }
  writer.commit();
}

// The socket is looked at again and again: the client's own 50 ms would be all that is seen.
double start_until_it_answers(const std::string& socket) {
  std::optional<os::Child> server;
  const double seconds = bench::seconds_of([&] {
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    server.emplace(
        os::spawn({FO_BUILD_DIR "/bin/gms-serve", "-q", "--socket-path", socket}, options));
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
  const std::string hash = answer_of(socket);
  const pid_t victim = children_of(server.child().pid()).at(0);
  return bench::seconds_of([&] {
    ::kill(victim, SIGKILL);
    // A client that the dying one had accepted already starts over.
    for (std::string found; found != hash;) {
      try {
        found = answer_of(socket);
      } catch (const base::Error&) {
      }
      if (children_of(server.child().pid()) == std::vector<pid_t>{victim}) found.clear();
    }
  });
}

void show_idle(const std::string& socket) {
  const bench::Server server(socket);
  publish(socket, 1000);
  std::printf("Idle, with 1,000 allocations published\n%-42s %14s %22s\n", "", "resident KiB",
              "wake-ups in 5 s");
  std::vector<std::pair<std::string, pid_t>> processes{{"parent", server.child().pid()}};
  for (const pid_t child : children_of(server.child().pid()))
    processes.push_back({"server", child});
  std::vector<std::uint64_t> before;
  for (const auto& [name, pid] : processes)
    before.push_back(status_of(pid, "voluntary_ctxt_switches"));
  ::poll(nullptr, 0, 5000);
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const auto& [name, pid] = processes[i];
    std::printf(
        "%-42s %14llu %22llu\n", name.c_str(),
        static_cast<unsigned long long>(status_of(pid, "VmRSS")),
        static_cast<unsigned long long>(status_of(pid, "voluntary_ctxt_switches") - before[i]));
  }
}

int run(std::size_t runs) {
  const bench::SimulatedGpu gpu(256 * base::kMiB, kSize);
  const std::string socket = gpu.path("gms.sock");
  std::vector<Contender> contenders{
      {"exec to an answer", [&] { return start_until_it_answers(socket); }},
      {"SIGKILL of the server to an answer, 1", [&] { return crash_until_it_answers(socket, 1); }},
      {"SIGKILL of the server to an answer, 1000",
       [&] { return crash_until_it_answers(socket, 1000); }},
      {"SIGKILL of the server to an answer, 10000",
       [&] { return crash_until_it_answers(socket, 10'000); }},
  };
  bench::take_turns(contenders, runs);
  bench::print_table("Starts, by the number of allocations published", "ms", 1e3, contenders);
  show_idle(socket);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto runs = argc > 1 ? base::parse_uint(argv[1]) : 5;
  if (argc > 2 || !runs || *runs < 1 || *runs > 1000) {
    std::fprintf(stderr, "usage: gms_start [RUNS]\n");
    return base::to_int(base::ExitStatus::kUsage);
  }
  try {
    return run(*runs);
  } catch (const base::Error& error) {
    std::fprintf(stderr, "gms_start: error: %s\n", error.what());
    return base::to_int(error.status());
  }
}
