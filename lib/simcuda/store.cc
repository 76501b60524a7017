// See store.h.
#include "simcuda/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string_view>
#include <system_error>

#include "simcuda/result.h"

namespace fo::simcuda {
namespace {

constexpr const char* kBook = "book";
constexpr const char* kNewborn = "new";
constexpr std::string_view kMemory = "mem-";
constexpr std::string_view kGone = "gone-";

int check(int result) {
  if (result < 0) throw failure_of_errno(errno);
  return result;
}

std::string name_of(FileId id) { return std::string(kMemory) + std::to_string(id); }

/// The same clock in all processes.
std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// Whether "gone-ID-TIME" is at least `delay` old. True for a time in the future, which was written
/// before a reboot.
bool is_over(std::string_view gone, std::chrono::nanoseconds delay) {
  std::int64_t since = 0;
  const auto digits = gone.substr(gone.rfind('-') + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), since);
  const std::int64_t passed = now() - since;
  return passed < 0 || passed >= delay.count();
}

/// Excludes other processes. It is a record lock and not a flock, because it belongs to the
/// process: a child forked meanwhile cannot keep it when this process is killed.
class BookLock {
 public:
  explicit BookLock(const Fd& book) : fd_(book.get()) {
    // EDEADLK is the kernel's guess about locks of other threads, and wrong here: no thread waits
    // while it has this lock.
    while (set(F_WRLCK) < 0) {
      if (errno != EINTR && errno != EDEADLK) throw failure_of_errno(errno);
    }
  }
  BookLock(const BookLock&) = delete;
  BookLock& operator=(const BookLock&) = delete;
  ~BookLock() { set(F_UNLCK); }

 private:
  int set(short type) const {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    return ::fcntl(fd_, F_SETLKW, &lock);
  }
  int fd_;
};

/// Allocates the whole file; returns an errno. In steps, because an interrupted step starts again.
int allocate(const Fd& file, std::uint64_t size) {
  constexpr std::uint64_t kStep = std::uint64_t{64} << 20;
  for (std::uint64_t done = 0; done < size;) {
    const std::uint64_t step = std::min(kStep, size - done);
    const int err =
        ::posix_fallocate(file.get(), static_cast<off_t>(done), static_cast<off_t>(step));
    if (err == EINTR) continue;
    if (err != 0) return err;
    done += step;
  }
  return 0;
}

/// Whether no other description holds the file. The lock taken here ends with `file`.
bool unheld(const Fd& file) { return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0; }

}  // namespace

Fd Fd::duplicate() const { return Fd(check(::fcntl(fd_, F_DUPFD_CLOEXEC, 0))); }

Store::Store(const std::filesystem::path& dir, std::uint64_t capacity,
             std::chrono::nanoseconds free_delay)
    : capacity_(capacity), free_delay_(free_delay) {
  if (::mkdir(dir.c_str(), 0700) < 0 && errno != EEXIST) throw failure_of_errno(errno);
  dir_ = Fd(check(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  book_ = Fd(check(::openat(dir_.get(), kBook, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)));
}

Allocation Store::create(std::uint64_t size) {
  Allocation made = place(size);
  // Outside the lock, because it is slow; the file is held and has its size, so it counts.
  int err = allocate(made.fd, size);
  if (err == ENOSPC) {
    used();  // dead processes may hold the missing memory
    err = allocate(made.fd, size);
  }
  if (err != 0) {
    made.fd.reset();
    remove_unheld(made.id, {});  // nothing used it, so there is no delay
    throw failure_of_errno(err);
  }
  return made;
}

Allocation Store::place(std::uint64_t size) {
  require(size <= capacity_, Result::kOutOfMemory);
  const BookLock lock(book_);
  std::optional<std::uint64_t> used = read_book();
  if (!used || *used > capacity_ - size) used = scan();
  require(*used <= capacity_ - size, Result::kOutOfMemory);
  write_book(*used + size);
  Allocation made;
  made.size = size;
  made.fd = make_file(size, made.id);
  return made;
}

Fd Store::make_file(std::uint64_t size, FileId& id) {
  // Only the holder of the book's lock creates files, so a file with this name was left by a killed
  // process.
  ::unlinkat(dir_.get(), kNewborn, 0);
  Fd file(check(::openat(dir_.get(), kNewborn, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)));
  check(::flock(file.get(), LOCK_SH | LOCK_NB));
  check(::ftruncate(file.get(), static_cast<off_t>(size)));
  struct stat status {};
  check(::fstat(file.get(), &status));
  id = status.st_ino;
  check(::renameat2(dir_.get(), kNewborn, dir_.get(), name_of(id).c_str(), RENAME_NOREPLACE));
  return file;
}

std::optional<Allocation> Store::adopt(int fd) {
  struct stat given {};
  check(::fstat(fd, &given));
  struct stat ours {};
  if (!S_ISREG(given.st_mode) ||
      ::fstatat(dir_.get(), name_of(given.st_ino).c_str(), &ours, AT_SYMLINK_NOFOLLOW) < 0 ||
      ours.st_dev != given.st_dev || ours.st_ino != given.st_ino) {
    return std::nullopt;  // left alone, because it may be a lock file of another program
  }
  Allocation allocation;
  allocation.fd = Fd(check(::fcntl(fd, F_DUPFD_CLOEXEC, 0)));
  allocation.id = given.st_ino;
  allocation.size = static_cast<std::uint64_t>(given.st_size);
  // No change for an exported fd. A file that was opened by name was not held until now, and may
  // have been removed.
  check(::flock(allocation.fd.get(), LOCK_SH | LOCK_NB));
  if (::fstatat(dir_.get(), name_of(given.st_ino).c_str(), &ours, AT_SYMLINK_NOFOLLOW) < 0) {
    return std::nullopt;
  }
  return allocation;
}

Allocation Store::reopen(FileId id) {
  Allocation allocation;
  allocation.fd = Fd(check(::openat(dir_.get(), name_of(id).c_str(), O_RDWR | O_CLOEXEC)));
  allocation.id = id;
  check(::flock(allocation.fd.get(), LOCK_SH | LOCK_NB));
  struct stat status {};
  check(::fstat(allocation.fd.get(), &status));
  allocation.size = static_cast<std::uint64_t>(status.st_size);
  return allocation;
}

void Store::release(Allocation allocation) {
  allocation.fd.reset();
  reap(allocation.id);
}

void Store::reap(FileId id) { remove_unheld(id, free_delay_); }

void Store::remove_unheld(FileId id, std::chrono::nanoseconds delay) {
  const BookLock lock(book_);
  const Fd file(::openat(dir_.get(), name_of(id).c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || !unheld(file) || ::fstat(file.get(), &status) < 0) return;
  if (delay.count() > 0) return mark_gone(name_of(id), id);
  if (::unlinkat(dir_.get(), name_of(id).c_str(), 0) < 0) return;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (const auto used = read_book()) write_book(*used - std::min(*used, size));
}

std::uint64_t Store::used() {
  const BookLock lock(book_);
  return scan();
}

std::uint64_t Store::scan() {
  const int listed = check(::openat(dir_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(listed), ::closedir);
  if (!dir) {
    const int error = errno;
    ::close(listed);
    throw failure_of_errno(error);
  }
  // All names before the first change, because a file renamed meanwhile could be listed twice.
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && name != kBook) names.emplace_back(name);
  }
  std::uint64_t used = 0;
  for (const std::string& name : names) used += scan_file(name);
  write_book(used);
  return used;
}

std::uint64_t Store::scan_file(const std::string& name) {
  const Fd file(check(::openat(dir_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)));
  struct stat status {};
  check(::fstat(file.get(), &status));
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (name.starts_with(kGone)) {
    if (!is_over(name, free_delay_)) return size;
  } else {
    if (!unheld(file)) return size;
    if (free_delay_.count() > 0 && name.starts_with(kMemory)) {
      mark_gone(name, status.st_ino);
      return size;
    }
  }
  check(::unlinkat(dir_.get(), name.c_str(), 0));
  return 0;
}

void Store::mark_gone(const std::string& name, FileId id) {
  const std::string gone = std::string(kGone) + std::to_string(id) + "-" + std::to_string(now());
  check(::renameat(dir_.get(), name.c_str(), dir_.get(), gone.c_str()));
}

std::optional<std::uint64_t> Store::read_book() const {
  std::uint64_t used = 0;
  const ssize_t got = ::pread(book_.get(), &used, sizeof used, 0);
  if (got != static_cast<ssize_t>(sizeof used)) return std::nullopt;  // a new book
  return used;
}

void Store::write_book(std::uint64_t used) {
  const ssize_t put = ::pwrite(book_.get(), &used, sizeof used, 0);
  if (put != static_cast<ssize_t>(sizeof used)) throw failure_of_errno(put < 0 ? errno : ENOSPC);
}

DeviceFiles list_files(const std::filesystem::path& dir, bool only_held) {
  DeviceFiles found{std::filesystem::canonical(dir), {}};
  for (const auto& entry : std::filesystem::directory_iterator(found.dir)) {
    const std::string name = entry.path().filename();
    struct stat status {};
    if (!name.starts_with(kMemory) || ::lstat(entry.path().c_str(), &status) != 0 ||
        !S_ISREG(status.st_mode)) {
      continue;
    }
    found.files.push_back(
        {name, status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size)});
  }
  if (!only_held) return found;
  const Fd book(::open((found.dir / kBook).c_str(), O_RDWR | O_CLOEXEC));
  if (!book.valid()) throw std::system_error(errno, std::generic_category());
  const BookLock lock(book);
  std::erase_if(found.files, [&](const DeviceFile& file) {
    const Fd fd(::open((found.dir / file.name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    return !fd.valid() || unheld(fd);
  });
  return found;
}

}  // namespace fo::simcuda
