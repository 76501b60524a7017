// Loading a model and saving its layout, on the simulated driver, each against a peer: as many
// threads that pread the same bytes into a fresh mapping of the same kind (a tmpfs file, fully
// allocated, mapped shared), or pwrite them; and dd(1) with iflag=direct for files that are not in
// the page cache. For one big file, 200 shards, and 20,000 small tensors. On a GPU
// (support/driver.h) only loading, of one big sparse file, which needs neither a disk nor memory:
// against as many threads that pread it into buffers, and as many that copy the same amount from
// pinned buffers to the GPU.
// Usage: load [--json FILE] [--quick] [--series] [MIB [RUNS [FOLDER]]]; FOLDER is on the measured
// disk (default: /var/tmp)
#include "weights/load.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "os/file/file.h"
#include "os/process/process.h"
#include "report.h"
#include "support/driver.h"
#include "support/temp_dir.h"
#include "weights/file/model.h"
#include "weights/lane.h"
#include "weights/save.h"

namespace {

using namespace fo;
using base::ByteCount;
using base::Deadline;
using bench::Contender;
using bench::seconds_of;

constexpr ByteCount kChunk = 8 * base::kMiB;

[[noreturn]] void fail(const std::string& what) { base::throw_errno(errno, what); }

enum class Content { kBytes, kHoles };

void write_file(const std::string& path, const std::vector<ByteCount>& sizes,
                const std::string& prefix, Content content = Content::kBytes) {
  std::string header = "{";
  ByteCount end = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    header += (i == 0 ? "\"" : ",\"") + prefix + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[)" + std::to_string(sizes[i]) + R"(],"data_offsets":[)" +
              std::to_string(end) + "," + std::to_string(end + sizes[i]) + "]}";
    end += sizes[i];
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const auto file = os::open_file(path, O_CREAT | O_EXCL | O_WRONLY);
  const std::uint64_t length = header.size();  // little-endian, as this machine is
  os::write_all(file.get(), {reinterpret_cast<const char*>(&length), sizeof length}, "write");
  os::write_all(file.get(), header, "write the model");
  if (content == Content::kHoles) {
    const ByteCount size = sizeof length + length + end;
    if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0) fail("make the model");
    return;
  }
  std::string chunk(kChunk, '\0');
  for (std::size_t i = 0; i < chunk.size(); ++i) chunk[i] = static_cast<char>(i * 2654435761u >> 9);
  for (ByteCount at = 0; at < end; at += kChunk) {
    os::write_all(file.get(), {chunk.data(), std::min(kChunk, end - at)}, "write the model");
  }
  if (::fsync(file.get()) != 0) fail("write the model");
}

// Large tensors, each followed by a small one, as in a transformer.
std::string one_big_file(const std::string& folder, ByteCount bytes,
                         Content content = Content::kBytes) {
  constexpr ByteCount kSmall = 8192;
  std::vector<ByteCount> sizes;
  for (ByteCount at = 0; at < bytes; at += 64 * base::kMiB) {
    sizes.push_back(std::min(64 * base::kMiB, bytes - at) - kSmall);
    sizes.push_back(kSmall);
  }
  std::filesystem::create_directory(folder);
  write_file(folder + "/model.safetensors", sizes, "layer.", content);
  return folder;
}

std::string many_files(const std::string& folder, ByteCount bytes) {
  constexpr std::size_t kFiles = 200;
  std::filesystem::create_directory(folder);
  std::string map;
  for (std::size_t i = 0; i < kFiles; ++i) {
    const std::string name = "model-" + std::to_string(i) + ".safetensors";
    const std::string prefix = "layer." + std::to_string(i) + ".";
    write_file(folder + "/" + name, {bytes / kFiles - 8192, 8192}, prefix);
    for (const char* tensor : {"0", "1"}) {
      map += (map.empty() ? "\"" : ",\"") + prefix + tensor + "\":\"" + name + "\"";
    }
  }
  const auto index = os::open_file(folder + "/model.safetensors.index.json", O_CREAT | O_WRONLY);
  os::write_all(index.get(), R"({"metadata":{},"weight_map":{)" + map + "}}", "write the index");
  return folder;
}

// As many tensors as a model has, all small.
std::string small_tensors(const std::string& folder, std::size_t count, ByteCount each) {
  std::filesystem::create_directory(folder);
  write_file(folder + "/model.safetensors", std::vector<ByteCount>(count, each - each % 2), "t.");
  return folder;
}

// Reads files into the page cache.
void remember(const std::string& path) {
  std::string chunk(kChunk, '\0');
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    const auto file = os::open_file(entry.path().string(), O_RDONLY);
    while (::read(file.get(), chunk.data(), chunk.size()) > 0) {
    }
  }
}

// Drops files from the page cache, which is possible once they are flushed.
void forget(const std::string& path) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    const auto file = os::open_file(entry.path().string(), O_RDONLY);
    if (::fsync(file.get()) != 0) fail("flush the model");
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

void on_all(std::size_t threads, const std::function<void()>& body) {
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) workers.emplace_back(body);
  for (std::thread& worker : workers) worker.join();
}

// Memory like that of a simulated device.
class Mapping {
 public:
  Mapping(const std::string& path, ByteCount size) : path_(path), size_(size) {
    const auto memory = os::open_file(path, O_CREAT | O_EXCL | O_RDWR);
    if (::fallocate(memory.get(), 0, 0, static_cast<off_t>(size)) != 0) fail("allocate memory");
    address_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (address_ == MAP_FAILED) fail("map memory");
  }
  ~Mapping() {
    unmap();
    ::unlink(path_.c_str());
  }
  /// Unmaps it; the memory stays allocated.
  void unmap() { ::munmap(std::exchange(address_, nullptr), std::exchange(size_, 0)); }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(address_); }

 private:
  std::string path_;
  ByteCount size_;
  void* address_ = nullptr;
};

struct Part {
  const weights::WeightFile* file;
  ByteCount offset;
  ByteCount size;
  ByteCount to;
};

std::vector<Part> parts_of(const weights::Model& model) {
  std::vector<Part> parts;
  ByteCount end = 0;
  for (const weights::WeightFile& file : model.files) {
    for (ByteCount at = 0; at < file.size(); at += kChunk) {
      const ByteCount size = std::min(kChunk, file.size() - at);
      parts.push_back({&file, at, size, end});
      end += size;
    }
  }
  return parts;
}

// Does not release the memory, like a server.
double bare_load(const std::string& memory_file, const std::string& folder, std::size_t threads) {
  const auto start = std::chrono::steady_clock::now();
  const weights::Model model = weights::open_model(folder);
  const std::vector<Part> parts = parts_of(model);
  const ByteCount end = parts.back().to + parts.back().size;
  Mapping memory(memory_file, end);
  std::atomic<std::size_t> next = 0;
  on_all(threads, [&] {
    for (std::size_t i; (i = next++) < parts.size();) {
      parts[i].file->read({memory.data() + parts[i].to, parts[i].size}, parts[i].offset);
    }
  });
  memory.unmap();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Reads into one buffer per thread.
void bare_read(const std::string& folder, std::size_t threads) {
  const weights::Model model = weights::open_model(folder);
  const std::vector<Part> parts = parts_of(model);
  std::atomic<std::size_t> next = 0;
  on_all(threads, [&] {
    std::vector<std::byte> buffer(kChunk);
    for (std::size_t i; (i = next++) < parts.size();) {
      parts[i].file->read(std::span(buffer).first(parts[i].size), parts[i].offset);
    }
  });
}

// Copies from one pinned buffer per thread to the same device memory again and again.
void bare_copy(const std::shared_ptr<const cuda::Driver>& driver, ByteCount bytes,
               std::size_t threads) {
  constexpr base::DeviceOrdinal kDevice(0);
  const auto& api = driver->api();
  const auto context = cuda::PrimaryContext::retain(driver, kDevice);
  const auto range = cuda::AddressRange::reserve(driver, threads * kChunk);
  const auto memory = cuda::PhysicalMemory::create(driver, kDevice, range.size());
  const auto mapping = cuda::Mapping::map(driver, range.address(), range.size(), memory);
  cuda::set_access(*driver, range.address(), range.size(), kDevice, cuda::Access::kReadWrite);
  std::atomic<ByteCount> next = 0;
  std::atomic<std::size_t> thread = 0;
  on_all(threads, [&] {
    context.make_current();
    const auto to = range.address() + thread++ * kChunk;
    void* from = nullptr;
    cuda::abi::Stream stream = nullptr;
    driver->check(api.cuMemHostAlloc(&from, kChunk, 0), "pin memory");
    driver->check(api.cuStreamCreate(&stream, cuda::abi::kStreamNonBlocking), "make a stream");
    while (next.fetch_add(kChunk) < bytes) {
      driver->check(api.cuMemcpyHtoDAsync_v2(to, from, kChunk, stream), "copy");
      driver->check(api.cuStreamSynchronize(stream), "copy");
    }
    api.cuStreamDestroy_v2(stream);
    api.cuMemFreeHost(from);
  });
}

// Writes the content of a mapping, and waits until it is on the disk.
void bare_save(const Mapping& memory, ByteCount bytes, const std::string& path, std::size_t threads,
               int flags) {
  const auto file = os::open_file(path, O_CREAT | O_EXCL | O_WRONLY | flags);
  if (::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0) fail("allocate a file");
  std::atomic<ByteCount> next = 0;
  on_all(threads, [&] {
    for (ByteCount at; (at = next.fetch_add(kChunk)) < bytes;) {
      const ByteCount size = std::min(kChunk, bytes - at);
      if (::pwrite(file.get(), memory.data() + at, size, static_cast<off_t>(at)) !=
          static_cast<ssize_t>(size)) {
        fail("write a file");
      }
    }
  });
  if (::fsync(file.get()) != 0) fail("flush a file");
}

void dd(const std::string& folder) {
  const os::Child child = os::spawn(
      {"/bin/sh", "-c",
       "for file in \"$0\"/*.safetensors; do dd if=\"$file\" of=/dev/null bs=8M iflag=direct "
       "status=none || exit; done",
       folder});
  if (child.wait(Deadline::never()) != 0) throw base::Error(base::ExitStatus::kOsError, "run dd");
}

// A new server for each run, so that dropping the last layout is not measured.
class Server {
 public:
  explicit Server(const std::string& socket)
      : child_(os::spawn({FO_BUILD_DIR "/bin/gms-serve", "--socket-path", socket, "-q"},
                         {.parent_death_signal = SIGKILL})) {
    while (!std::filesystem::exists(socket)) std::this_thread::yield();
  }
  ~Server() {
    child_.signal(SIGTERM);
    static_cast<void>(child_.wait(Deadline::never()));
  }

 private:
  os::Child child_;
};

// Runs one program alone to measure its memory: its peak resident memory, without what it shares
// with the device.
long host_memory_of(const std::vector<std::string>& program) {
  std::vector<std::string> argv{
      "/bin/sh", "-c",
      "\"$@\" >/dev/null & pid=$!; most=0; while kill -0 $pid 2>/dev/null; do "
      "anon=$(awk '/^RssAnon/ {print $2}' /proc/$pid/status 2>/dev/null); "
      "[ \"${anon:-0}\" -gt $most ] && most=$anon; done; exit $((most / 1024))",
      "sh"};
  argv.insert(argv.end(), program.begin(), program.end());
  return os::spawn(argv).wait(Deadline::never()).value_or(-1);
}

class Bench {
 public:
  Bench(ByteCount bytes, std::size_t runs, const std::string& disk, bench::Report& report)
      : bytes_(bytes), runs_(runs), report_(report), disk_(disk) {
    ::setenv("GMS_DRIVER", test::driver().c_str(), 1);
    ::setenv("GMS_SIM_DIR", shm_.path("sim").c_str(), 1);
    ::setenv("GMS_SIM_VRAM", std::to_string(2 * bytes + base::kGiB).c_str(), 1);
    driver_ = cuda::Driver::open(test::driver());
    threads_ = weights::lane_config(driver_, 0, std::nullopt).threads;
    device_ =
        std::make_unique<cuda::DeviceInfo>(cuda::device_info(*driver_, base::DeviceOrdinal(0)));
    socket_ = shm_.path("gms.sock");
  }

  void run(bool quick) {
    measure("one big file", one_big_file(disk_.path("big"), bytes_));
    if (!quick) {
      measure("200 shards", many_files(disk_.path("shards"), bytes_));
      measure("20,000 small tensors", small_tensors(disk_.path("small"), 20'000, bytes_ / 20'000));
    }
    measure_snapshots();
  }

  void run_on_gpu() {
    const std::string folder = one_big_file(shm_.path("big"), bytes_, Content::kHoles);
    print("one big file, on a GPU",
          {{"pread alone", [&] { return seconds_of([&] { bare_read(folder, threads_); }); }},
           {"copies alone",
            [&] { return seconds_of([&] { bare_copy(driver_, bytes_, threads_); }); }},
           {"load", [&] { return load(folder); }}},
          {});
  }

  void show_scaling() {
    for (ByteCount mib = bytes_ / 16 / base::kMiB; mib * base::kMiB <= bytes_; mib *= 2) {
      show_point("Load of N MiB", "MiB", mib, one_big_file(disk_.path("big"), mib * base::kMiB));
    }
    constexpr ByteCount kTensor = 32 * base::kKiB;
    for (ByteCount n = bytes_ / kTensor / 16; n * kTensor <= bytes_; n *= 2) {
      show_point("Load of N tensors of 32 KiB", "tensors", n,
                 small_tensors(disk_.path("small"), n, kTensor));
    }
  }

 private:
  // Compares all others with the first contender.
  void print(const std::string& title, std::vector<Contender> contenders, bench::Aim aim) const {
    bench::take_turns(contenders, runs_);
    std::vector<bench::Comparison> comparisons;
    for (std::size_t i = 1; i < contenders.size(); ++i) {
      comparisons.push_back({contenders[i].name, contenders[0].name, aim});
    }
    report_.table(title, "ms", 1e3, contenders, comparisons);
  }

  void show_point(const std::string& title, const std::string& unit, std::size_t n,
                  const std::string& folder) const {
    remember(folder);
    std::vector<Contender> both{
        {"pread", [&] { return bare_load(shm_.path("bare"), folder, threads_); }},
        {"load", [&] { return load(folder); }}};
    bench::take_turns(both, runs_);
    report_.points(title, unit, n, "ms", 1e3, both);
    std::filesystem::remove_all(folder);
  }

  double load(const std::string& model, const std::string& snapshot = {},
              weights::Checksums checksums = weights::Checksums::kCheck) const {
    const Server server(socket_);
    weights::LoadOptions options;
    options.model = model;
    options.snapshot = snapshot;
    options.checksums = checksums;
    options.role = gms::LockType::kRw;
    options.timeout = std::chrono::seconds(60);
    return seconds_of(
        [&] { weights::load(weights::open_source(options), driver_, *device_, socket_, options); });
  }

  void measure(const std::string& what, const std::string& folder) {
    remember(folder);
    print(what + ", cached",
          {{"pread", [&] { return bare_load(shm_.path("bare"), folder, threads_); }},
           {"load", [&] { return load(folder); }}},
          bench::speed_at_least(0.9));
    print(what + ", cold",
          {{"dd iflag=direct",
            [&] {
              forget(folder);
              return seconds_of([&] { dd(folder); });
            }},
           {"load",
            [&] {
              forget(folder);
              return load(folder);
            }}},
          bench::speed_at_least(0.9));
    std::filesystem::remove_all(folder);
  }

  void measure_snapshots() {
    const std::string folder = one_big_file(disk_.path("big"), bytes_);
    const std::string snapshot = disk_.path("snapshot");
    {
      const Server server(socket_);
      weights::LoadOptions loading;
      loading.model = folder;
      loading.role = gms::LockType::kRw;
      loading.timeout = std::chrono::seconds(60);
      weights::load(weights::open_source(loading), driver_, *device_, socket_, loading);
      weights::SaveOptions saving;
      saving.folder = snapshot;
      saving.replace = weights::Replace::kYes;
      const Mapping memory(shm_.path("bare"), bytes_);
      std::fill_n(memory.data(), bytes_, std::byte{1});
      const auto bare = [&](int flags) {
        ::unlink((disk_.path("bare")).c_str());
        return seconds_of([&] { bare_save(memory, bytes_, disk_.path("bare"), threads_, flags); });
      };
      print("save",
            {{"pwrite O_DIRECT, fsync", [&] { return bare(O_DIRECT); }},
             {"pwrite, fsync", [&] { return bare(0); }},
             {"save",
              [&] {
                std::filesystem::remove_all(snapshot);
                return seconds_of([&] { weights::save(driver_, *device_, socket_, saving); });
              }}},
            {});
      ::unlink((disk_.path("bare")).c_str());
    }
    for (const bool cold : {false, true}) {
      const auto prepare = [&] {
        if (cold) {
          forget(snapshot);
        } else {
          remember(snapshot);
        }
      };
      const std::string shards = snapshot + "/shards";
      const Contender peer =
          cold ? Contender{"dd iflag=direct",
                           [&] {
                             prepare();
                             return seconds_of([&] {
                               const os::Child child = os::spawn(
                                   {"dd", "if=" + shards + "/shard_0000.bin", "of=/dev/null",
                                    "bs=8M", "iflag=direct", "status=none"});
                               static_cast<void>(child.wait(Deadline::never()));
                             });
                           }}
               : Contender{"pread", [&] { return bare_load(shm_.path("bare"), folder, threads_); }};
      print(std::string("snapshot, ") + (cold ? "cold" : "cached"),
            {peer,
             {"load --snapshot",
              [&] {
                prepare();
                return load({}, snapshot);
              }},
             {"load --snapshot --no-verify",
              [&] {
                prepare();
                return load({}, snapshot, weights::Checksums::kIgnore);
              }}},
            {});
    }
    report_memory(folder, snapshot);
  }

  void report_memory(const std::string& folder, const std::string& snapshot) const {
    const Server server(socket_);
    const std::string load = FO_BUILD_DIR "/bin/gms-load";
    const auto show = [&](const std::string& what, const std::vector<std::string>& argv) {
      const long mib = host_memory_of(argv);
      std::printf("host memory, %s: %ld MiB\n", what.c_str(), mib);
      report_.row("host memory", "MiB", {what, {static_cast<double>(mib)}});
    };
    forget(folder);
    show("load cold", {load, folder, "--socket", socket_, "--role", "rw", "-q"});
    remember(folder);
    show("load cached", {load, folder, "--socket", socket_, "--role", "rw", "-q"});
    show("save", {FO_BUILD_DIR "/bin/gms-save", snapshot, "--socket", socket_, "--replace", "-q"});
  }

  const ByteCount bytes_;
  const std::size_t runs_;
  bench::Report& report_;
  std::size_t threads_ = 1;
  const test::TempDir shm_{"/dev/shm"};
  const test::TempDir disk_;
  std::shared_ptr<const cuda::Driver> driver_;
  std::unique_ptr<cuda::DeviceInfo> device_;
  std::string socket_;
};

}  // namespace

int main(int argc, char** argv) {
  return bench::run(
      "load", argc, argv, [](const bench::Arguments& arguments, bench::Report& report) {
        const auto number = [&](std::size_t at, std::uint64_t usual) {
          if (at >= arguments.rest.size()) return usual;
          const auto given = base::parse_uint(arguments.rest[at]);
          if (!given || *given < 1 || *given > 1'000'000) {
            throw base::Error(base::ExitStatus::kUsage, "want MIB and RUNS");
          }
          return *given;
        };
        const ByteCount bytes = number(0, arguments.quick ? 16 : 2048) * base::kMiB;
        const std::size_t runs = number(1, arguments.quick ? 1 : 5);
        const std::string folder = arguments.rest.size() > 2 ? arguments.rest[2] : "/var/tmp";
        const auto has_room = [&](const std::string& path, ByteCount size) {
          if (std::filesystem::space(path).available > size) return true;
          report.skip("load of " + base::format_size(bytes),
                      "no room for " + base::format_size(size) + " in " + path);
          return false;
        };
        if (test::on_gpu()) return Bench(bytes, runs, folder, report).run_on_gpu();
        // Space for a device and the peer's memory, and for a model, its snapshot and the peer's.
        if (!has_room("/dev/shm", 2 * bytes + 64 * base::kMiB) || !has_room(folder, 3 * bytes))
          return;
        Bench bench(bytes, runs, folder, report);
        arguments.series ? bench.show_scaling() : bench.run(arguments.quick);
      });
}
