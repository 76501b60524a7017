// One device's memory as a folder of files, one for each physical allocation, shared by all
// processes of a GMS_SIM_DIR. A file counts as used while any open file description of it, in any
// process, holds a shared flock: exported fds and mappings keep the description, and with it the
// lock, alive, and the kernel drops it when the last of them is gone, however it goes.
//
// The files are the truth, the book is an estimate that is never below it. Every change of the
// folder happens under the book's lock; a process may be killed at any instruction:
//   create  book += size, make the file, lock it, give it its name, unlock the book, allocate
//   reap    (unheld file) unlink, book -= size
//   scan    reap all that is unheld, book = sum of the rest
// Killed in between, the book is too high, and the scan that precedes every refusal puts it right.
//
// With a free delay, memory counts as used for so long after it was first found unheld: at once
// where its last holder released it, by the next scan of any process where that was killed. The
// file's name says since when, so that all processes agree:
//   reap    (unheld file) rename mem-ID to gone-ID-TIME; the book stays
//   scan    remove the gone files whose delay is over; the others count
// Nothing makes a gone file a live one again.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

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

/// The file's inode number: the same in every process, and the file's name.
using FileId = ino_t;

/// A held file.
struct Allocation {
  Fd fd;
  FileId id = 0;
  std::uint64_t size = 0;
};

/// Functions throw Failure: out of memory for a full device or disk, else 304. Calls on the stores
/// of one process must be serialised.
class Store {
 public:
  /// Makes the folder if need be. `free_delay`: how long memory that nobody holds counts as used.
  Store(const std::filesystem::path& dir, std::uint64_t capacity,
        std::chrono::nanoseconds free_delay = {});

  [[nodiscard]] std::uint64_t capacity() const { return capacity_; }

  /// New memory, zero, backed in full.
  Allocation create(std::uint64_t size);

  /// Another reference to the file behind `fd`, of the same description; nullopt when it is not one
  /// of this device's.
  std::optional<Allocation> adopt(int fd);

  /// Another reference, of a new description, to a file that this process holds by a mapping.
  Allocation reopen(FileId id);

  /// Gives a reference up; removes the file if it was the last one anywhere.
  void release(Allocation allocation);

  /// Removes the file if nobody holds it.
  void reap(FileId id);

  /// What is held, by all processes, or was until less than the free delay ago.
  std::uint64_t used();

 private:
  Allocation place(std::uint64_t size);
  Fd make_file(std::uint64_t size, FileId& id);
  std::optional<std::uint64_t> read_book() const;
  void write_book(std::uint64_t used);
  std::uint64_t scan();
  /// What the file still counts for. Removes it where that is nothing.
  std::uint64_t scan_file(const std::string& name);
  void remove_unheld(FileId id, std::chrono::nanoseconds delay);
  void mark_gone(const std::string& name, FileId id);

  std::uint64_t capacity_;
  std::chrono::nanoseconds free_delay_;
  Fd dir_;
  Fd book_;
};

}  // namespace fo::simcuda
