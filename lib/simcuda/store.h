// One device's memory as a folder of files, one for each physical allocation, shared by all
// processes of a GMS_SIM_DIR. A file is in use while any open file description of it, in any
// process, holds a shared flock: exported descriptors and mappings keep the description, and with
// it the lock, alive, and the kernel drops it with the last of them, however that ends.
//
// The files are authoritative; the book is an estimate that is never too low. Every change of the
// folder happens under the book's lock, and a process may be killed at any instruction:
//   create  book += size, create the file, lock it, name it, unlock the book, allocate
//   reap    (unheld file) unlink, book -= size
//   scan    reap all unheld files, book = sum of the others
// After a kill in between, the book is too high, and the scan before every refusal corrects it.
//
// With a free delay, memory stays in use for that time after it was first found unheld: from the
// release of its last holder, or from the next scan if that was killed. The file's name contains
// the time, so that all processes agree:
//   reap    (unheld file) rename mem-ID to gone-ID-TIME; the book stays
//   scan    remove the gone files whose delay is over; the others count
// A gone file never becomes live again.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fo::simcuda {

/// Owner of a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  /// A new close-on-exec descriptor of the same description. Throws Failure.
  [[nodiscard]] Fd duplicate() const;

 private:
  int fd_ = -1;
};

/// The file's inode number, which is the same in every process and part of the file's name.
using FileId = ino_t;

/// A held file.
struct Allocation {
  Fd fd;
  FileId id = 0;
  std::uint64_t size = 0;
};

/// Functions throw Failure: kOutOfMemory for a full device or disk, else kOperatingSystem. Calls
/// for the stores of one process must be serialised.
class Store {
 public:
  /// Creates a missing folder. `free_delay` is the time that unheld memory stays in use.
  Store(const std::filesystem::path& dir, std::uint64_t capacity,
        std::chrono::nanoseconds free_delay = {});

  [[nodiscard]] std::uint64_t capacity() const { return capacity_; }

  /// New memory, zeroed and fully allocated.
  Allocation create(std::uint64_t size);

  /// Another reference to the file of `fd`, with the same description; nullopt if it is not a file
  /// of this device.
  std::optional<Allocation> adopt(int fd);

  /// Another reference, with a new description, to a file that this process holds by a mapping.
  Allocation reopen(FileId id);

  /// Releases a reference; removes the file if it was the last one of all processes.
  void release(Allocation allocation);

  /// Removes the file if it is unheld.
  void reap(FileId id);

  /// Memory in use by all processes, including memory within the free delay.
  std::uint64_t used();

 private:
  Allocation place(std::uint64_t size);
  Fd make_file(std::uint64_t size, FileId& id);
  std::optional<std::uint64_t> read_book() const;
  void write_book(std::uint64_t used);
  std::uint64_t scan();
  /// The size for which the file still counts. Removes it if that is 0.
  std::uint64_t scan_file(const std::string& name);
  void remove_unheld(FileId id, std::chrono::nanoseconds delay);
  void mark_gone(const std::string& name, FileId id);

  std::uint64_t capacity_;
  std::chrono::nanoseconds free_delay_;
  Fd dir_;
  Fd book_;
};

/// A file of a device that is memory.
struct DeviceFile {
  std::string name;
  dev_t device = 0;
  FileId id = 0;
  std::uint64_t size = 0;
};

struct DeviceFiles {
  /// Canonical.
  std::filesystem::path dir;
  std::vector<DeviceFile> files;
};

/// The files of an existing device, or only those that a process holds. It changes nothing. Throws
/// std::system_error, or Failure if the book cannot be locked.
DeviceFiles list_files(const std::filesystem::path& dir, bool only_held);

}  // namespace fo::simcuda
