// The round trip of one GMS request against a plain exchange of the same bytes on a Unix socket,
// with both ends on one core, so that work is compared, not the distance of cores.
// Usage: gms_rpc [--json FILE] [--quick] [RUNS]
#include <sched.h>
#include <sys/socket.h>

#include <csignal>

#include "gms/client/rpc_client.h"
#include "gms/protocol/protocol.h"
#include "gms_server.h"
#include "report.h"

namespace {

using namespace fo;
using base::Deadline;
using base::UniqueFd;
using bench::Contender;
using bench::expect;

constexpr int kRoundTrips = 5000;

// Keeps this process and its children on one core while it lives.
class OneCore {
 public:
  OneCore() {
    if (::sched_getaffinity(0, sizeof before_, &before_) != 0) {
      base::throw_errno(errno, "see cores");
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    for (std::size_t cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
    }
    if (::sched_setaffinity(0, sizeof one, &one) != 0) base::throw_errno(errno, "take one core");
  }
  ~OneCore() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_;
};

// The peer: a process that answers `ping` bytes with `pong` bytes.
class Ponger {
 public:
  Ponger(std::size_t ping, std::size_t pong)
      : ping_(ping, 'i'), pong_(pong, 'o'), child_(start()) {}
  ~Ponger() {
    child_.signal(SIGKILL);
    static_cast<void>(child_.wait(Deadline::never()));
  }
  Ponger(const Ponger&) = delete;
  Ponger& operator=(const Ponger&) = delete;

  void ping() const {
    send(ours_.get(), ping_);
    expect(receive(ours_.get(), pong_.size()), "ping: no answer");
  }

 private:
  os::Child start() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      base::throw_errno(errno, "create a pair of sockets");
    }
    ours_.reset(ends[0]);
    const UniqueFd theirs(ends[1]);
    return os::fork_child(
        [&] {
          while (receive(theirs.get(), ping_.size())) send(theirs.get(), pong_);
          return 0;
        },
        {.parent_death_signal = SIGKILL});
  }
  static void send(int fd, std::string_view bytes) {
    expect(
        ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()),
        "ping-pong: send");
  }
  static bool receive(int fd, std::size_t size) {
    char bytes[4096];
    return ::recv(fd, bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }

  std::string ping_;
  std::string pong_;
  UniqueFd ours_;
  os::Child child_;
};

double round_trips(const std::function<void()>& trip) {
  return bench::seconds_of([&] {
           for (int i = 0; i < kRoundTrips; ++i) trip();
         }) /
         kRoundTrips;
}

void run(std::size_t runs, bench::Report& report) {
  const OneCore one_core;
  const bench::Device gpu(64 * base::kMiB, 4096);
  const bench::Server server(gpu.path("gms.sock"));
  gms::RpcClient client = gms::RpcClient::connect(gpu.path("gms.sock"), Deadline::never());
  expect(client.request_lock(gms::LockType::kRw, bench::soon()).grant.has_value(), "no lock");
  const gms::AllocationId id = client.allocate(4096, "weights").allocation_id;
  const std::string value(100, 'v');
  client.put_metadata("key", id, 0, value);

  const auto measure = [&](const std::string& name, const std::string& request,
                           const std::string& answer, const std::function<void()>& trip) {
    const Ponger ponger(request.size(), answer.size());
    const std::string bare = "bare ping-pong of the same bytes";
    std::vector<Contender> contenders{
        {bare, [&] { return round_trips([&] { ponger.ping(); }); }},
        {name, [&] { return round_trips(trip); }},
    };
    bench::take_turns(contenders, runs);
    report.table("Round trip of " + std::to_string(request.size()) + " and " +
                     std::to_string(answer.size()) + " bytes, both ends on one core",
                 "us", 1e6, contenders, {{name, bare, bench::cost_at_most(1.5)}});
  };
  measure("RpcClient::lock_state", gms::encode_frame(gms::GetLockStateRequest{}),
          gms::encode_frame(client.lock_state()), [&] { client.lock_state(); });
  const auto entry = client.get_metadata("key");
  measure("RpcClient::get_metadata", gms::encode_frame(gms::MetadataGetRequest{"key"}),
          gms::encode_frame(gms::MetadataGetResponse{
              true, id, 0, gms::Bytes{entry.value_or(gms::MetadataEntry{}).value}}),
          [&] { client.get_metadata("key"); });
  measure("RpcClient::put_metadata",
          gms::encode_frame(gms::MetadataPutRequest{{"key", id, 0, gms::Bytes{value}}}),
          gms::encode_frame(gms::MetadataPutResponse{true}),
          [&] { client.put_metadata("key", id, 0, value); });
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run("gms_rpc", argc, argv,
                    [](const bench::Arguments& arguments, bench::Report& report) {
                      run(bench::parse_runs(arguments, 5), report);
                    });
}
