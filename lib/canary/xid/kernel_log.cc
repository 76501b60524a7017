#include "canary/xid/kernel_log.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/hex.h"
#include "os/file/file.h"
#include "os/log.h"
#include "text/ascii.h"

namespace fo::canary {
namespace {

constexpr std::string_view kDriver = "NVRM: ";

// Reads "\x0a", with which the kernel writes control characters and backslashes.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "\\x" && i + 3 < text.size()) {
      const int high = base::hex_value(text[i + 2]);
      const int low = base::hex_value(text[i + 3]);
      if (high >= 0 && low >= 0) {
        out += static_cast<char>(high * 16 + low);
        i += 3;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

// "168423.771092" seconds.
std::optional<base::Duration> read_uptime(std::string_view text) {
  // Other texts in brackets, such as the id of a process, have no point.
  const bool is_decimal = text.find_first_not_of("0123456789.") == std::string_view::npos;
  if (!is_decimal || text.find('.') == std::string_view::npos) return std::nullopt;
  return base::parse_duration(std::string(text) + "s");
}

// Whether `text` begins with `form`, in which d is a digit, a is a letter, b is a blank or a digit,
// and any other character is itself.
bool begins_with(std::string_view text, std::string_view form) {
  return text.size() >= form.size() &&
         std::equal(form.begin(), form.end(), text.begin(), [](char expected, char c) {
           if (expected == 'a') return text::is_letter(c);
           if (expected == 'b') return text::is_digit(c) || c == ' ';
           return expected == 'd' ? text::is_digit(c) : expected == c;
         });
}

// "2026-02-14T05:03:41.123+01:00".
bool is_iso_time(std::string_view word) { return begins_with(word, "dddd-dd-ddTdd:dd:dd"); }

// Whether `before`, the part of a line before the driver's text, was written by the kernel's log.
// An application may log the same text.
bool is_kernels(std::string_view before) {
  before = text::trimmed(before);
  return before.empty() || before.ends_with(']') || before.ends_with('>') ||
         before.ends_with("kernel:") || is_iso_time(before);
}

void read_time(std::string_view before, KernelMessage& message) {
  const std::string_view first = before.substr(0, before.find(' '));
  if (is_iso_time(first)) {
    message.time = first;
  } else if (begins_with(before, "aaa bd dd:dd:dd ")) {
    message.time = before.substr(0, 15);
  }
  const std::size_t open = before.find('[');
  const std::size_t close = before.find(']', open);
  if (open == std::string_view::npos || close == std::string_view::npos) return;
  const std::string_view inside = text::trimmed(before.substr(open + 1, close - open - 1));
  message.uptime = read_uptime(inside);
  // "[Fri Aug 30 11:43:09 2024]".
  if (!message.uptime && message.time.empty() && inside.find(':') != std::string_view::npos) {
    message.time = inside;
  }
}

}  // namespace

void parse_kmsg(std::string_view record, const OnMessage& on_message) {
  // "6,339,5140900,-;text" and then lines " KEY=value".
  const std::size_t end = record.find(';');
  if (end == std::string_view::npos) return;
  std::string_view head = record.substr(0, end);
  for (int field = 0; field < 2; ++field) {
    const std::size_t comma = head.find(',');
    if (comma == std::string_view::npos) return;
    head.remove_prefix(comma + 1);
  }
  const auto micros = base::parse_uint(head.substr(0, head.find(',')));
  constexpr std::uint64_t kMaxMicros = 1ULL << 52;
  if (!micros || *micros > kMaxMicros) return;
  std::string_view text = record.substr(end + 1);
  text = text.substr(0, text.find('\n'));
  const std::string lines = unescaped(text);
  for (std::string_view left = lines; !left.empty();) {
    const std::string_view line = left.substr(0, left.find('\n'));
    on_message(
        {.text = std::string(text::trimmed(line)), .uptime = std::chrono::microseconds(*micros)});
    left.remove_prefix(std::min(line.size() + 1, left.size()));
  }
}

KernelMessage parse_log_line(std::string_view line) {
  line = text::trimmed(line);
  KernelMessage message;
  const std::size_t at = line.find(kDriver);
  if (at == std::string_view::npos || !is_kernels(line.substr(0, at))) {
    message.text = line;
    return message;
  }
  message.text = line.substr(at);
  read_time(line.substr(0, at), message);
  return message;
}

void LogLines::add(std::string_view bytes) {
  line_ += bytes.substr(0, std::min(bytes.size(), kMaxBytes - line_.size()));
}

void LogLines::append(std::string_view bytes) {
  for (std::size_t end; (end = bytes.find('\n')) != std::string_view::npos;) {
    add(bytes.substr(0, end));
    finish();
    bytes.remove_prefix(end + 1);
  }
  add(bytes);
}

void LogLines::finish() {
  if (!line_.empty()) on_message_(parse_log_line(line_));
  line_.clear();
}

namespace {

bool is_kmsg(const struct stat& status) {
  constexpr unsigned kMemoryDevices = 1;
  constexpr unsigned kKmsg = 11;
  return S_ISCHR(status.st_mode) && status.st_rdev == ::makedev(kMemoryDevices, kKmsg);
}

void warn_of_rest(std::string_view reason) {
  os::log(os::LogLevel::kWarning, "{}; the rest of the old file is left out", reason);
}

// The result of a read(2); nullopt if it must be repeated.
std::optional<std::size_t> checked(ssize_t count, const std::string& what) {
  if (count >= 0) return static_cast<std::size_t>(count);
  const int err = errno;
  if (err == EINTR) return std::nullopt;
  base::throw_errno(err, what);
}

}  // namespace

void read_kmsg(const ReadCall& read, const std::string& what, const OnMessage& on_message,
               const std::function<void()>& on_lost) {
  // read(2) fails for a record that does not fit; the kernel's records have up to 8 KiB.
  std::array<char, 16384> record{};
  for (;;) {
    const ssize_t count = read(record.data(), record.size());
    if (count < 0 && errno == EPIPE) {
      on_lost();
      continue;
    }
    const auto size = checked(count, what);
    if (!size) continue;
    if (*size == 0) return;
    parse_kmsg({record.data(), *size}, on_message);
  }
}

void warn_of_lost_messages(const std::string& what) {
  os::log(os::LogLevel::kWarning, "{}: messages were overwritten before they were read", what);
}

void read_log(const ReadCall& read, const std::string& what, LogLines& lines) {
  std::array<char, 65536> buffer{};
  for (;;) {
    const auto size = checked(read(buffer.data(), buffer.size()), what);
    if (!size) continue;
    if (*size == 0) return;
    lines.append({buffer.data(), *size});
  }
}

void check_can_follow(const std::string& path, const std::string& option) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) base::throw_errno(errno, "open " + base::quoted(path));
  if (S_ISREG(status.st_mode) || is_kmsg(status)) return;
  throw base::Error(base::ExitStatus::kUsage,
                    option + ": " + base::quoted(path) + " is neither a file nor the kernel's log");
}

LogFile::LogFile(std::string path, OnMessage on_message, From from)
    : path_(std::move(path)),
      what_("read " + base::quoted(path_)),
      on_message_(std::move(on_message)),
      changes_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      file_{.lines = LogLines(on_message_)} {
  // The folder is also watched, because a new file may get the name.
  const std::size_t slash = path_.rfind('/');
  watch(slash == std::string::npos ? "." : path_.substr(0, slash + 1), IN_CREATE | IN_MOVED_TO);
  file_ = open();
  if (from == From::kEnd && ::lseek(file_.fd.get(), 0, SEEK_END) < 0) {
    base::throw_errno(errno, what_);
  }
}

void LogFile::watch(const std::string& watched, std::uint32_t events) {
  if (!changes_ || ::inotify_add_watch(changes_.get(), watched.c_str(), events) < 0) {
    base::throw_errno(errno, "watch " + base::quoted(watched));
  }
}

LogFile::File LogFile::open() {
  // O_NONBLOCK, because a pipe may have got the name, and opening it must not wait.
  File file{.fd = os::open_file(path_, O_RDONLY | O_NONBLOCK), .lines = LogLines(on_message_)};
  if (::fstat(file.fd.get(), &file.status) != 0) base::throw_errno(errno, what_);
  if (!S_ISREG(file.status.st_mode)) {
    throw base::Error(base::ExitStatus::kNoInput, what_ + ": not a regular file");
  }
  watch(path_, IN_MODIFY | IN_ATTRIB);
  return file;
}

bool LogFile::is_replaced() const {
  struct stat named {};
  return ::stat(path_.c_str(), &named) == 0 &&
         (file_.has_failed || named.st_ino != file_.status.st_ino ||
          named.st_dev != file_.status.st_dev);
}

void LogFile::read_to_end(File& file) {
  const int fd = file.fd.get();
  const ReadCall read = [fd](char* to, std::size_t size) { return ::read(fd, to, size); };
  file.has_failed = true;
  read_log(read, what_, file.lines);
  struct stat status {};
  if (::fstat(fd, &status) != 0) base::throw_errno(errno, what_);
  if (::lseek(fd, 0, SEEK_CUR) > status.st_size) {
    // It was truncated.
    file.lines.finish();
    if (::lseek(fd, 0, SEEK_SET) < 0) base::throw_errno(errno, what_);
    read_log(read, what_, file.lines);
  }
  file.has_failed = false;
}

void LogFile::read_old() {
  // This is checked before the file is read, because lines may be appended until it is removed.
  struct stat status {};
  const bool is_removed = ::fstat(old_->fd.get(), &status) != 0 || status.st_nlink == 0;
  try {
    read_to_end(*old_);
  } catch (const base::Error& error) {
    warn_of_rest(error.what());
  }
  if (!is_removed && !old_->has_failed) return;
  old_->lines.finish();
  old_.reset();
}

void LogFile::replace() {
  // The old file is read before the new one is opened, because opening may fail.
  std::string reason;
  try {
    read_to_end(file_);
  } catch (const base::Error& error) {
    reason = error.what();
  }
  File next = open();
  const bool has_failed = file_.has_failed;
  // A file system that was mounted again may have another device.
  if (next.status.st_ino == file_.status.st_ino &&
      (has_failed || next.status.st_dev == file_.status.st_dev)) {
    if (has_failed) reopen(std::move(next));
    return;
  }
  if (old_) old_->lines.finish();
  old_.reset();
  if (has_failed) {
    warn_of_rest(reason);
    file_.lines.finish();
  } else {
    old_ = std::move(file_);
  }
  file_ = std::move(next);
}

void LogFile::reopen(File next) {
  const off_t end = ::lseek(file_.fd.get(), 0, SEEK_CUR);
  if (end >= 0 && end <= next.status.st_size) {
    if (::lseek(next.fd.get(), end, SEEK_SET) < 0) base::throw_errno(errno, what_);
    next.lines = std::move(file_.lines);
  } else {
    file_.lines.finish();
  }
  file_ = std::move(next);
}

void LogFile::read() {
  std::array<char, 4096> events{};
  while (::read(changes_.get(), events.data(), events.size()) > 0) {
  }
  if (old_) read_old();
  while (is_replaced()) replace();
  read_to_end(file_);
}

bool is_kmsg(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && is_kmsg(status);
}

}  // namespace fo::canary
