// What a layout of many allocations and tensors costs those who import or publish it, on the
// simulated driver, against clients that ask for each object by itself, in one run: one reader, 64
// readers at once, one writer; and what one allocation costs as their number grows.
// Usage: gms_import [RUNS]
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <span>

#include "bench.h"
#include "cuda/device.h"
#include "gms/memory_manager.h"
#include "gms/protocol.h"
#include "gms_server.h"
#include "os/fd_passing.h"
#include "os/unix_socket.h"

namespace {

using namespace fo;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;
using bench::Contender;
using bench::expect;
using bench::seconds_of;
using bench::soon;

// Of an allocation, and the simulated device's granularity: what costs here is their number.
constexpr base::ByteCount kSize = 4096;
constexpr std::size_t kObjects = 1000;
constexpr std::size_t kReaders = 64;

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
    client.shake_hands(gms::LockType::kRw);
    for (std::size_t i = 0; i < objects; ++i) {
      const auto made = client.call<gms::AllocateResponse>(
          gms::AllocateRequest{static_cast<std::int64_t>(kSize)});
      map(client, made.allocation_id, kSize, cuda::Access::kReadWrite, ranges, mappings);
      client.call<gms::MetadataPutResponse>(
          gms::MetadataPutRequest{{key_of(i), made.allocation_id, 0, gms::Bytes{kValue}}});
    }
    for (cuda::Mapping& mapping : mappings) mapping.close();
    client.call<gms::CommitResponse>(gms::CommitRequest{});
  }

  // Returns how long it took, without the end: what it costs to give up what was mapped.
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

  double import_one_by_one(std::size_t objects, int& requests) const {
    std::vector<cuda::AddressRange> ranges;
    std::vector<cuda::Mapping> mappings;
    gms::Metadata metadata;
    PlainClient client(socket_);
    const auto start = std::chrono::steady_clock::now();
    client.shake_hands(gms::LockType::kRo);
    client.call<gms::GetMemoryLayoutHashResponse>(gms::GetMemoryLayoutHashRequest{});
    const auto list = client.call<gms::ListAllocationsResponse>(gms::ListAllocationsRequest{});
    for (const auto& one : list.allocations) {
      // As Dynamo's client does.
      client.call<gms::GetAllocationResponse>(gms::GetAllocationRequest{one.allocation_id});
      map(client, one.allocation_id, static_cast<base::ByteCount>(one.aligned_size),
          cuda::Access::kRead, ranges, mappings);
    }
    const auto keys = client.call<gms::MetadataListResponse>(gms::MetadataListRequest{});
    for (const std::string& key : keys.keys) {
      auto entry = client.call<gms::MetadataGetResponse>(gms::MetadataGetRequest{key});
      metadata.emplace(key, gms::MetadataEntry{entry.allocation_id.value_or(""), 0,
                                               std::move(entry.value->data)});
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    expect(mappings.size() == objects && metadata.size() == objects, "import: not all of it");
    requests = client.requests();
    return took.count();
  }

 private:
  void map(PlainClient& client, const std::string& id, base::ByteCount size, cuda::Access access,
           std::vector<cuda::AddressRange>& ranges, std::vector<cuda::Mapping>& mappings) const {
    UniqueFd fd;
    client.call<gms::ExportAllocationResponse>(gms::ExportAllocationRequest{id}, &fd);
    ranges.push_back(cuda::AddressRange::reserve(driver_, size));
    const auto memory = cuda::PhysicalMemory::import_fd(driver_, fd.get(), size);
    const auto address = ranges.back().address();
    mappings.push_back(cuda::Mapping::map(driver_, address, size, memory));
    cuda::set_access(*driver_, address, size, device_.ordinal, access);
  }

  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
  std::string socket_;
};

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) base::throw_errno(errno, "create a pipe");
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
  UniqueFd reader;
  UniqueFd writer;
};

// What this program does as one of many readers: says that it is ready, waits for the word,
// imports, and says that it has.
int read_once(const std::string& socket, const std::string& how) {
  os::raise_fd_limit();
  const Client client(cuda::Driver::open("sim"), socket);
  char byte = 'r';
  expect(::write(STDOUT_FILENO, &byte, 1) == 1 && ::read(STDIN_FILENO, &byte, 1) == 1,
         "wait for the word");
  int requests = 0;
  how == "import" ? client.import(kObjects) : client.import_one_by_one(kObjects, requests);
  expect(::write(STDOUT_FILENO, &byte, 1) == 1, "say that it is done");
  return 0;
}

double import_at_once(const std::string& socket, const std::string& how) {
  Pipe word;
  Pipe said;
  std::vector<os::Child> readers;
  os::SpawnOptions options;
  options.parent_death_signal = SIGKILL;
  options.stdin_fd = word.reader.get();
  options.stdout_fd = said.writer.get();
  for (std::size_t i = 0; i < kReaders; ++i) {
    readers.push_back(os::spawn({"/proc/self/exe", "--reader", socket, how}, options));
  }
  said.writer.reset();
  const auto hear_all = [&] {
    for (std::size_t i = 0; i < kReaders; ++i) {
      char byte = 0;
      expect(::read(said.reader.get(), &byte, 1) == 1, "a reader failed");
    }
  };
  hear_all();
  const double seconds = seconds_of([&] {
    const std::string go(kReaders, 'g');
    expect(::write(word.writer.get(), go.data(), go.size()) == static_cast<ssize_t>(go.size()),
           "give the word");
    hear_all();
  });
  for (const os::Child& reader : readers) {
    expect(reader.wait(Deadline::never()) == 0, "a reader failed");
  }
  return seconds;
}

int run(std::size_t runs) {
  const bench::SimulatedGpu gpu(128 * base::kMiB, kSize);
  const std::string socket = gpu.path("gms.sock");
  const bench::Server server(socket);
  const Client client(cuda::Driver::open("sim"), socket);
  int requests = 0;
  const auto compare = [&](const std::string& title, std::vector<Contender> contenders) {
    bench::take_turns(contenders, runs);
    bench::print_table(title, "ms", 1e3, contenders);
  };
  compare("A writer publishes 1,000 allocations and 1,000 tensors",
          {{"one request per object",
            [&] { return seconds_of([&] { client.publish_one_by_one(kObjects); }); }},
           {"MemoryManager", [&] { return seconds_of([&] { client.publish(kObjects); }); }}});
  compare("A reader imports 1,000 allocations and 1,000 tensors",
          {{"one request per object", [&] { return client.import_one_by_one(kObjects, requests); }},
           {"MemoryManager", [&] { return client.import(kObjects); }}});
  std::printf("requests of the first: %d\n\n", requests);
  compare("64 readers at once",
          {{"one request per object", [&] { return import_at_once(socket, "one-by-one"); }},
           {"MemoryManager", [&] { return import_at_once(socket, "import"); }}});
  // In turns of their own: to drop the layout of another size costs as much as to make it.
  for (const std::size_t objects : std::vector<std::size_t>{100, 1000, 10'000}) {
    const auto each = static_cast<double>(objects);
    std::vector<Contender> both{
        {"publish", [&] { return seconds_of([&] { client.publish(objects); }) / each; }},
        {"import", [&] { return client.import(objects) / each; }}};
    bench::take_turns(both, runs);
    bench::print_table("One allocation and tensor, of " + std::to_string(objects), "us", 1e6, both);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 3 && arguments[0] == "--reader") {
      return read_once(arguments[1], arguments[2]);
    }
    const auto runs = arguments.empty() ? 5 : base::parse_uint(arguments[0]);
    if (arguments.size() > 1 || !runs || *runs < 1 || *runs > 1000) {
      std::fprintf(stderr, "usage: gms_import [RUNS]\n");
      return base::to_int(ExitStatus::kUsage);
    }
    return run(*runs);
  } catch (const Error& error) {
    std::fprintf(stderr, "gms_import: error: %s\n", error.what());
    return base::to_int(error.status());
  }
}
