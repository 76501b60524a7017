// The costs of publishing a layout of many allocations and tensors, of its import and of a wake on
// it, against clients that request each object by itself: one writer, one reader, 64 readers at
// once; and the cost of one allocation as their number grows.
// Usage: gms_import [--json FILE] [--quick] [--series] [RUNS]
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <span>

#include "cuda/device.h"
#include "gms/client/memory_manager.h"
#include "gms/protocol/protocol.h"
#include "gms_server.h"
#include "os/file/pipe.h"
#include "os/socket/fd_passing.h"
#include "os/socket/unix_socket.h"
#include "report.h"

namespace {

using namespace fo;
using base::Deadline;
using base::UniqueFd;
using bench::Contender;
using bench::expect;
using bench::seconds_of;
using bench::soon;

// The size of an allocation, and the device's granularity: only the number of allocations counts.
const base::ByteCount kSize = test::on_gpu() ? 2 * base::kMiB : 4 * base::kKiB;
constexpr std::size_t kObjects = 1000;
constexpr std::size_t kReaders = 64;

std::string key_of(std::size_t i) { return "model.layers." + std::to_string(i) + ".weight"; }

const std::string kValue =
    R"({"dtype": "torch.bfloat16", "shape": [32, 64], "stride": [64, 1], "tensor_type": "parameter"})";

// A client with the basic requests of gms-protocol(7) only: one request, one answer.
class PlainClient {
 public:
  explicit PlainClient(const std::string& path) : socket_(os::connect_unix(path, soon())) {}

  void request_lock(gms::LockType type) {
    const auto answer = call<gms::HandshakeResponse>(
        gms::HandshakeRequest{std::string(gms::to_string(type)), 60'000});
    expect(answer.success, "request a lock: not granted");
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

// A process that uses a GMS.
class Client {
 public:
  Client(std::shared_ptr<const cuda::Driver> driver, std::string socket)
      : driver_(std::move(driver)),
        device_(cuda::device_info(*driver_, base::DeviceOrdinal(0))),
        socket_(std::move(socket)) {}

  void publish(std::size_t objects) const {
    gms::MemoryManager manager(driver_, device_, socket_);
    expect(manager.connect(gms::LockType::kRw, soon()).has_value(), "publish: no lock");
    const auto made = manager.allocate_many(std::vector<base::ByteCount>(objects, kSize));
    gms::Metadata metadata;
    for (std::size_t i = 0; i < objects; ++i) {
      metadata[key_of(i)] = {made[i].allocation.allocation_id, 0, kValue};
    }
    manager.rpc().put_metadata_many(metadata);
    manager.commit();
  }

  void publish_one_by_one(std::size_t objects) const {
    std::vector<cuda::AddressRange> ranges;
    std::vector<cuda::Mapping> mappings;
    PlainClient client(socket_);
    client.request_lock(gms::LockType::kRw);
    for (std::size_t i = 0; i < objects; ++i) {
      const auto made = client.call<gms::AllocateResponse>(
          gms::AllocateRequest{static_cast<std::int64_t>(kSize)});
      ranges.push_back(cuda::AddressRange::reserve(driver_, kSize));
      map(client, made.allocation_id, ranges.back().address(), kSize, cuda::Access::kReadWrite,
          mappings);
      client.call<gms::MetadataPutResponse>(
          gms::MetadataPutRequest{{key_of(i), made.allocation_id, 0, gms::Bytes{kValue}}});
    }
    for (cuda::Mapping& mapping : mappings) mapping.close();
    client.call<gms::CommitResponse>(gms::CommitRequest{});
  }

  // Returns the time without the release of the mappings at the end.
  double import(std::size_t objects) const {
    gms::MemoryManager manager(driver_, device_, socket_);
    gms::Metadata metadata;
    const double seconds = seconds_of([&] {
      expect(manager.connect(gms::LockType::kRo, soon()).has_value(), "import: no lock");
      manager.import_all(cuda::Access::kRead);
      metadata = manager.fetch_metadata();
    });
    expect(manager.allocations().size() == objects && metadata.size() == objects,
           "import: not all of it");
    return seconds;
  }

  // `asleep` has no connection before.
  double remap(gms::MemoryManager& asleep) const {
    const double seconds = seconds_of([&] {
      expect(asleep.remap_all(soon()).result == gms::RemapResult::kOk, "remap: not all of it");
    });
    asleep.unmap_all();
    return seconds;
  }
  [[nodiscard]] gms::MemoryManager asleep() const {
    gms::MemoryManager manager(driver_, device_, socket_);
    expect(manager.connect(gms::LockType::kRo, soon()).has_value(), "import: no lock");
    manager.import_all(cuda::Access::kRead);
    manager.unmap_all();
    return manager;
  }

  // Maps the layout at its previous addresses.
  double remap_one_by_one(std::size_t objects) const {
    std::vector<cuda::AddressRange> ranges;
    std::vector<gms::AllocationId> ids;
    {
      PlainClient client(socket_);
      client.request_lock(gms::LockType::kRo);
      for (auto& one :
           client.call<gms::ListAllocationsResponse>(gms::ListAllocationsRequest{}).allocations) {
        ids.push_back(std::move(one.allocation_id));
        ranges.push_back(cuda::AddressRange::reserve(driver_, kSize));
      }
    }
    expect(ids.size() == objects, "remap: not all of it");
    std::vector<cuda::Mapping> mappings;
    return seconds_of([&] {
      PlainClient client(socket_);
      client.request_lock(gms::LockType::kRo);
      client.call<gms::GetMemoryLayoutHashResponse>(gms::GetMemoryLayoutHashRequest{});
      for (std::size_t i = 0; i < objects; ++i) {
        map(client, ids[i], ranges[i].address(), kSize, cuda::Access::kRead, mappings);
      }
    });
  }

  double import_one_by_one(std::size_t objects, int& requests) const {
    std::vector<cuda::AddressRange> ranges;
    std::vector<cuda::Mapping> mappings;
    gms::Metadata metadata;
    PlainClient client(socket_);
    const auto start = std::chrono::steady_clock::now();
    client.request_lock(gms::LockType::kRo);
    client.call<gms::GetMemoryLayoutHashResponse>(gms::GetMemoryLayoutHashRequest{});
    const auto list = client.call<gms::ListAllocationsResponse>(gms::ListAllocationsRequest{});
    for (const auto& one : list.allocations) {
      // Like Dynamo's client.
      client.call<gms::GetAllocationResponse>(gms::GetAllocationRequest{one.allocation_id});
      const auto size = static_cast<base::ByteCount>(one.aligned_size);
      ranges.push_back(cuda::AddressRange::reserve(driver_, size));
      map(client, one.allocation_id, ranges.back().address(), size, cuda::Access::kRead, mappings);
    }
    const auto keys = client.call<gms::MetadataListResponse>(gms::MetadataListRequest{});
    for (const std::string& key : keys.keys) {
      auto entry = client.call<gms::MetadataGetResponse>(gms::MetadataGetRequest{key});
      metadata.emplace(key, gms::MetadataEntry{entry.allocation_id.value_or(gms::AllocationId()), 0,
                                               std::move(entry.value->data)});
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    expect(mappings.size() == objects && metadata.size() == objects, "import: not all of it");
    requests = client.requests();
    return took.count();
  }

 private:
  void map(PlainClient& client, const gms::AllocationId& id, cuda::abi::DevicePtr address,
           base::ByteCount size, cuda::Access access, std::vector<cuda::Mapping>& mappings) const {
    UniqueFd fd;
    client.call<gms::ExportAllocationResponse>(gms::ExportAllocationRequest{id}, &fd);
    const auto memory = cuda::PhysicalMemory::import_fd(driver_, fd.get(), size);
    mappings.push_back(cuda::Mapping::map(driver_, address, size, memory));
    cuda::set_access(*driver_, address, size, device_.ordinal, access);
  }

  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
  std::string socket_;
};

// One of many readers, each a process of this program: reports that it is ready, waits for the
// start, imports, and reports the end.
void read_once(const std::string& socket, const std::string& how) {
  os::raise_fd_limit();
  const Client client(cuda::Driver::open(test::driver()), socket);
  char byte = 'r';
  expect(::write(STDOUT_FILENO, &byte, 1) == 1 && ::read(STDIN_FILENO, &byte, 1) == 1,
         "wait for the word");
  int requests = 0;
  how == "import" ? client.import(kObjects) : client.import_one_by_one(kObjects, requests);
  expect(::write(STDOUT_FILENO, &byte, 1) == 1, "say that it is done");
}

double import_at_once(const std::string& socket, const std::string& how, std::size_t count) {
  os::Pipe word;
  os::Pipe said;
  std::vector<os::Child> readers;
  os::SpawnOptions options;
  options.parent_death_signal = SIGKILL;
  options.stdin_fd = word.reader.get();
  options.stdout_fd = said.writer.get();
  for (std::size_t i = 0; i < count; ++i) {
    readers.push_back(os::spawn({"/proc/self/exe", "--reader", socket, how}, options));
  }
  said.writer.reset();
  const auto hear_all = [&] {
    for (std::size_t i = 0; i < count; ++i) {
      char byte = 0;
      expect(::read(said.reader.get(), &byte, 1) == 1, "a reader failed");
    }
  };
  hear_all();
  const double seconds = seconds_of([&] {
    const std::string go(count, 'g');
    expect(::write(word.writer.get(), go.data(), go.size()) == static_cast<ssize_t>(go.size()),
           "give the word");
    hear_all();
  });
  for (const os::Child& reader : readers) {
    expect(reader.wait(Deadline::never()) == 0, "a reader failed");
  }
  return seconds;
}

class Bench {
 public:
  Bench(const bench::Arguments& arguments, bench::Report& report)
      : quick_(arguments.quick), runs_(bench::parse_runs(arguments, 5)), report_(report) {}

  void compare() {
    const std::string plain = "one request per object";
    const std::string ours = "MemoryManager";
    const auto take_turns = [&](const std::string& title, std::vector<Contender> contenders,
                                bench::Aim aim) {
      bench::take_turns(contenders, runs_);
      report_.table(title, "ms", 1e3, contenders, {{ours, plain, aim}});
    };
    take_turns("A writer publishes 1,000 allocations and 1,000 tensors",
               {{plain, [&] { return seconds_of([&] { client_.publish_one_by_one(kObjects); }); }},
                {ours, [&] { return seconds_of([&] { client_.publish(kObjects); }); }}},
               {});
    int requests = 0;
    take_turns("A reader imports 1,000 allocations and 1,000 tensors",
               {{plain, [&] { return client_.import_one_by_one(kObjects, requests); }},
                {ours, [&] { return client_.import(kObjects); }}},
               bench::speed_at_least(10));
    std::printf("requests of the first: %d\n\n", requests);
    gms::MemoryManager asleep = client_.asleep();
    take_turns("A reader that slept wakes on 1,000 allocations",
               {{plain, [&] { return client_.remap_one_by_one(kObjects); }},
                {ours, [&] { return client_.remap(asleep); }}},
               {});
    const std::size_t readers = quick_ ? 4 : kReaders;
    take_turns(std::to_string(readers) + " readers at once",
               {{plain, [&] { return import_at_once(socket_, "one-by-one", readers); }},
                {ours, [&] { return import_at_once(socket_, "import", readers); }}},
               {});
  }

  // These contenders run in their own turns, because a layout of another size is slow to drop.
  void show_scaling() {
    std::vector<std::size_t> numbers{100, 300, 1000, 3000, 10'000};
    if (quick_) numbers = {30, 100};
    for (const std::size_t n : numbers) {
      int requests = 0;
      std::vector<Contender> contenders{
          {"publish", [&] { return seconds_of([&] { client_.publish(n); }); }},
          {"import", [&] { return client_.import(n); }},
          {"import, one request per object",
           [&] { return client_.import_one_by_one(n, requests); }}};
      bench::take_turns(contenders, runs_);
      report_.points("N allocations and tensors", "allocations", n, "ms", 1e3, contenders);
      report_.points("One of N allocations and tensors", "allocations", n, "us",
                     1e6 / static_cast<double>(n), contenders);
    }
  }

 private:
  const bool quick_;
  const std::size_t runs_;
  bench::Report& report_;
  const bench::Device gpu_{128 * base::kMiB, kSize};
  const std::string socket_ = gpu_.path("gms.sock");
  const bench::Server server_{socket_};
  const Client client_{cuda::Driver::open(test::driver()), socket_};
};

}  // namespace

int main(int argc, char** argv) {
  return bench::run("gms_import", argc, argv,
                    [](const bench::Arguments& arguments, bench::Report& report) {
                      if (arguments.rest.size() == 3 && arguments.rest[0] == "--reader") {
                        read_once(arguments.rest[1], arguments.rest[2]);
                      } else if (arguments.series) {
                        Bench(arguments, report).show_scaling();
                      } else {
                        Bench(arguments, report).compare();
                      }
                    });
}
