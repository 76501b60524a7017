// Publishing a model from the page cache on the simulated driver and, beside it in one run, its
// peer: as many threads that pread the same bytes into a fresh mapping of the same kind (a tmpfs
// file, allocated in full, mapped shared). Usage: load_publish [MIB [RUNS]]
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cuda/device.h"
#include "os/file.h"
#include "os/process.h"
#include "weights/load.h"
#include "weights/model.h"

namespace {

using namespace fo;
using base::ByteCount;
using base::Deadline;

constexpr ByteCount kChunk = 8 * base::kMiB;

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Large tensors, each with a small one beside it, as a transformer has them.
std::string write_model(const std::string& path, ByteCount bytes) {
  constexpr ByteCount kSmall = 8192;
  const ByteCount large = 64 * base::kMiB - kSmall;
  std::string header = "{";
  ByteCount end = 0;
  for (int i = 0; end < bytes; ++i) {
    for (const ByteCount size : {large, kSmall}) {
      header += (end == 0 ? "" : ",") + ("\"layer." + std::to_string(i)) + "." +
                std::to_string(size) + R"(":{"dtype":"U8","shape":[)" + std::to_string(size) +
                R"(],"data_offsets":[)" + std::to_string(end) + "," + std::to_string(end + size) +
                "]}";
      end += size;
    }
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const auto file = os::open_file(path, O_CREAT | O_EXCL | O_WRONLY);
  const std::uint64_t length = header.size();  // little-endian, as this machine is
  os::write_all(file.get(), {reinterpret_cast<const char*>(&length), sizeof length}, "write");
  os::write_all(file.get(), header, "write the model");
  std::string chunk(kChunk, '\0');
  for (std::size_t i = 0; i < chunk.size(); ++i) chunk[i] = static_cast<char>(i * 2654435761u >> 9);
  for (ByteCount at = 0; at < end; at += kChunk) {
    os::write_all(file.get(), {chunk.data(), std::min(kChunk, end - at)}, "write the model");
  }
  return path;
}

void bare(const std::string& dir, const std::string& model_path, std::size_t threads) {
  const weights::Model model = weights::open_model(model_path);
  const weights::ModelFile& file = model.files.front();
  const std::string path = dir + "/bare";
  const auto memory = os::open_file(path, O_CREAT | O_EXCL | O_RDWR);
  if (::fallocate(memory.get(), 0, 0, static_cast<off_t>(file.size())) != 0) {
    base::throw_errno(errno, "allocate the peer's memory");
  }
  void* const mapped =
      ::mmap(nullptr, file.size(), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) base::throw_errno(errno, "map the peer's memory");
  std::atomic<ByteCount> next = 0;
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      for (ByteCount at; (at = next.fetch_add(kChunk)) < file.size();) {
        file.read({static_cast<std::byte*>(mapped) + at, std::min(kChunk, file.size() - at)}, at);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  ::munmap(mapped, file.size());
  ::unlink(path.c_str());
}

// A server of its own for each run: dropping the last layout is not what is measured.
class Server {
 public:
  explicit Server(const std::string& socket)
      : child_(os::spawn({FO_BUILD_DIR "/bin/gms-serve", "--socket-path", socket, "-q"},
                         {.parent_death_signal = SIGKILL})) {}
  ~Server() {
    child_.signal(SIGTERM);
    static_cast<void>(child_.wait(Deadline::never()));
  }

 private:
  os::Child child_;
};

int measure(ByteCount bytes, std::size_t runs) {
  std::string dir = "/dev/shm/fo-bench-XXXXXX";
  std::string disk = "/var/tmp/fo-bench-XXXXXX";
  if (::mkdtemp(dir.data()) == nullptr || ::mkdtemp(disk.data()) == nullptr) {
    base::throw_errno(errno, "make folders");
  }
  ::setenv("GMS_DRIVER", "sim", 1);
  ::setenv("GMS_SIM_DIR", (dir + "/sim").c_str(), 1);
  ::setenv("GMS_SIM_VRAM", std::to_string(2 * bytes + base::kGiB).c_str(), 1);
  const auto driver = cuda::Driver::open("sim");
  const auto device = cuda::device_info(*driver, base::DeviceOrdinal(0));
  const std::string socket = dir + "/gms.sock";
  weights::LoadOptions options;
  options.model = write_model(disk + "/model.safetensors", bytes);
  options.role = gms::LockType::kRw;
  options.timeout = std::chrono::seconds(60);
  options.copy_threads = std::max(1u, std::thread::hardware_concurrency());

  std::vector<double> ours;
  std::vector<double> peers;
  for (std::size_t run = 0; run <= runs; ++run) {
    const double peer = seconds_of([&] { bare(dir, options.model, options.copy_threads); });
    const Server server(socket);
    while (!std::filesystem::exists(socket)) std::this_thread::yield();
    const double own = seconds_of([&] { weights::load(driver, device, socket, options); });
    if (run == 0) continue;  // brings the file into the page cache
    std::printf("run %zu: publish %.3f s, bare pread %.3f s\n", run, own, peer);
    ours.push_back(own);
    peers.push_back(peer);
  }
  std::filesystem::remove_all(dir);
  std::filesystem::remove_all(disk);
  const double gib = static_cast<double>(bytes) / static_cast<double>(base::kGiB);
  std::printf("%.2f GiB, %zu threads: publish %.2f GiB/s, bare pread %.2f GiB/s, ratio %.2f\n", gib,
              options.copy_threads, gib / median(ours), gib / median(peers),
              median(peers) / median(ours));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const ByteCount bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 4096) * base::kMiB;
  const std::size_t runs = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 5;
  try {
    if (bytes == 0 || runs == 0) throw base::Error(base::ExitStatus::kUsage, "want MIB and RUNS");
    return measure(bytes, runs);
  } catch (const base::Error& error) {
    std::fprintf(stderr, "load_publish: %s\n", error.what());
    return base::to_int(error.status());
  }
}
