// What a GMS costs those who use it, on the simulated driver, each beside its peer in one run: a
// reader that imports a layout, against plain clients that ask for each object by itself; one small
// request, against a bare ping-pong of the same bytes; a writer that publishes, against its
// requests alone. Usage: gms_import [ALLOCATIONS [RUNS]]
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/units.h"
#include "bench.h"
#include "cuda/device.h"
#include "gms/memory_manager.h"
#include "gms/protocol.h"
#include "gms/rpc_client.h"
#include "os/fd_passing.h"
#include "os/process.h"
#include "os/unix_socket.h"

namespace {

using namespace fo;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;
using bench::Contender;
using bench::seconds_of;

// Of an allocation, and the simulated device's granularity: what costs here is their number.
constexpr base::ByteCount kSize = 4096;
constexpr int kRoundTrips = 2000;

std::string key_of(std::size_t i) { return "model.layers." + std::to_string(i) + ".weight"; }

const std::string kValue =
    R"({"dtype": "torch.bfloat16", "shape": [32, 64], "stride": [64, 1], "tensor_type": "parameter"})";

// A client by the letter of gms-protocol(7) and nothing more: one request, one answer.
class PlainClient {
 public:
  explicit PlainClient(const std::string& path) : socket_(os::connect_unix(path, soon())) {}

  void shake_hands(gms::LockType type) {
    const auto answer = call<gms::HandshakeResponse>(
        gms::HandshakeRequest{std::string(gms::to_string(type)), 60'000});
    expect(answer.success, "shake hands: no lock");
  }

  template <typename Response, typename Request>
  Response call(const Request& request, UniqueFd* fd = nullptr) {
    const std::string frame = gms::encode_frame(request);
    os::send_with_fds(socket_.get(), std::as_bytes(std::span(frame)), {});
    std::string answer;
    std::vector<UniqueFd> fds;
    while (answer.size() < gms::kPrefixSize ||
           answer.size() < gms::kPrefixSize + gms::read_prefix(answer)) {
      const std::ptrdiff_t got = os::receive_with_fds(socket_.get(), chunk_, fds);
      expect(got > 0, "read an answer: the server is gone");
      answer.append(reinterpret_cast<const char*>(chunk_.data()), static_cast<std::size_t>(got));
    }
    if (fd != nullptr && fds.size() == 1) *fd = std::move(fds.front());
    ++requests_;
    return gms::decode_message<Response>(std::string_view(answer).substr(gms::kPrefixSize));
  }

  [[nodiscard]] int requests() const { return requests_; }

 private:
  UniqueFd socket_;
  std::vector<std::byte> chunk_ = std::vector<std::byte>(64 * 1024);
  int requests_ = 0;
};

class Bench {
 public:
  Bench(std::shared_ptr<const cuda::Driver> driver, std::string socket, std::size_t allocations,
        std::size_t runs)
      : driver_(std::move(driver)),
        device_(cuda::device_info(*driver_, base::DeviceOrdinal(0))),
        socket_(std::move(socket)),
        allocations_(allocations),
        runs_(runs) {}

  void measure_publish() {
    const Server server(socket_);
    std::vector<Contender> contenders{
        {"plain client: allocate, put, commit", [&] { return publish_plainly(); }},
        {"MemoryManager: allocate, map, put, commit", [&] { return publish_with_manager(); }},
    };
    bench::take_turns(contenders, runs_);
    bench::print_table("Publish, per allocation", "us", per_allocation(1e6), contenders);
  }

  void measure_import() {
    const Server server(socket_);
    publish_plainly();
    std::vector<Contender> contenders{
        {"plain client, get_allocation before export", [&] { return import_plainly(true); }},
        {"plain client, the manager's requests", [&] { return import_plainly(false); }},
        {"MemoryManager::import_all, fetch_metadata", [&] { return import_with_manager(); }},
    };
    bench::take_turns(contenders, runs_);
    const std::string count = std::to_string(allocations_);
    bench::print_table("Import of " + count + " allocations and " + count + " tensors", "ms", 1e3,
                       contenders);
    std::printf("requests of the plain clients: %d, %d\n\n", requests_[1], requests_[0]);
  }

 private:
  [[nodiscard]] double per_allocation(double scale) const {
    return scale / static_cast<double>(allocations_);
  }

  double publish_with_manager() const {
    gms::MemoryManager manager(driver_, device_, socket_);
    return seconds_of([&] {
      expect(manager.connect(gms::LockType::kRw, soon()).has_value(), "publish: no lock");
      for (std::size_t i = 0; i < allocations_; ++i) {
        const gms::MappedAllocation& made = manager.allocate(kSize);
        manager.rpc().put_metadata(key_of(i), made.allocation.allocation_id, 0, kValue);
      }
      manager.commit();
    });
  }

  double publish_plainly() const {
    PlainClient client(socket_);
    return seconds_of([&] {
      client.shake_hands(gms::LockType::kRw);
      for (std::size_t i = 0; i < allocations_; ++i) {
        const auto made = client.call<gms::AllocateResponse>(
            gms::AllocateRequest{static_cast<std::int64_t>(kSize)});
        client.call<gms::MetadataPutResponse>(
            gms::MetadataPutRequest{key_of(i), made.allocation_id, 0, gms::Bytes{kValue}});
      }
      client.call<gms::CommitResponse>(gms::CommitRequest{});
    });
  }

  double import_with_manager() const {
    gms::MemoryManager manager(driver_, device_, socket_);
    gms::Metadata metadata;
    const double seconds = seconds_of([&] {
      expect(manager.connect(gms::LockType::kRo, soon()).has_value(), "import: no lock");
      manager.import_all(cuda::Access::kRead);
      metadata = manager.fetch_metadata();
    });
    expect(manager.allocations().size() == allocations_ && metadata.size() == allocations_,
           "import: not all of it");
    return seconds;
  }

  // `thorough`: asks for the record of each allocation too, which the list has told already.
  double import_plainly(bool thorough) {
    std::vector<cuda::AddressRange> ranges;
    std::vector<cuda::Mapping> mappings;
    gms::Metadata metadata;
    PlainClient client(socket_);
    const double seconds = seconds_of([&] {
      client.shake_hands(gms::LockType::kRo);
      client.call<gms::GetMemoryLayoutHashResponse>(gms::GetMemoryLayoutHashRequest{});
      const auto list = client.call<gms::ListAllocationsResponse>(gms::ListAllocationsRequest{});
      for (const auto& allocation : list.allocations) {
        if (thorough) {
          client.call<gms::GetAllocationResponse>(
              gms::GetAllocationRequest{allocation.allocation_id});
        }
        UniqueFd fd;
        client.call<gms::ExportAllocationResponse>(
            gms::ExportAllocationRequest{allocation.allocation_id}, &fd);
        const auto size = static_cast<base::ByteCount>(allocation.aligned_size);
        ranges.push_back(cuda::AddressRange::reserve(driver_, size));
        const auto memory = cuda::PhysicalMemory::import_fd(driver_, fd.get(), size);
        const auto address = ranges.back().address();
        mappings.push_back(cuda::Mapping::map(driver_, address, size, memory));
        cuda::set_access(*driver_, address, size, device_.ordinal, cuda::Access::kRead);
      }
      const auto keys = client.call<gms::MetadataListResponse>(gms::MetadataListRequest{});
      for (const std::string& key : keys.keys) {
        auto entry = client.call<gms::MetadataGetResponse>(gms::MetadataGetRequest{key});
        metadata.emplace(key, gms::MetadataEntry{entry.allocation_id.value_or(""), 0,
                                                 std::move(entry.value->data)});
      }
    });
    expect(mappings.size() == allocations_ && metadata.size() == allocations_,
           "import: not all of it");
    requests_[thorough ? 1 : 0] = client.requests();
    return seconds;
  }

  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
  std::string socket_;
  std::size_t allocations_;
  std::size_t runs_;
  int requests_[2] = {};
};

int run(std::size_t allocations, std::size_t runs) {
  std::string dir = "/dev/shm/fo-bench.XXXXXX";
  if (::mkdtemp(dir.data()) == nullptr) base::throw_errno(errno, "make a folder");
  struct Cleaner {
    const std::string& dir;
    ~Cleaner() { std::filesystem::remove_all(dir); }
  } const cleaner{dir};
  ::setenv("GMS_DRIVER", "sim", 1);
  ::setenv("GMS_SIM_DIR", (dir + "/sim").c_str(), 1);
  ::setenv("GMS_SIM_LIBRARY", FO_BUILD_DIR "/lib/sim/libcuda.so.1", 1);
  ::setenv("GMS_SIM_DEVICES", "1", 1);
  ::setenv("GMS_SIM_GRANULARITY", std::to_string(kSize).c_str(), 1);
  ::setenv("GMS_SIM_VRAM", std::to_string((allocations * kSize) + 64 * base::kMiB).c_str(), 1);
  os::raise_fd_limit();
  Bench bench(cuda::Driver::open("sim"), dir + "/gms.sock", allocations, runs);
  bench.measure_import();
  bench.measure_publish();
  bench.measure_round_trip();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto allocations = argc > 1 ? base::parse_uint(argv[1]) : 1000;
  const auto runs = argc > 2 ? base::parse_uint(argv[2]) : 5;
  if (argc > 3 || !allocations || !runs || *allocations < 1 || *allocations > 100'000 ||
      *runs < 1 || *runs > 1000) {
    std::fprintf(stderr, "usage: gms_import [ALLOCATIONS [RUNS]]\n");
    return base::to_int(ExitStatus::kUsage);
  }
  try {
    return run(*allocations, *runs);
  } catch (const Error& error) {
    std::fprintf(stderr, "gms_import: error: %s\n", error.what());
    return base::to_int(error.status());
  }
}
