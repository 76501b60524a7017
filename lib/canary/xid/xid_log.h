// Follows a log of the kernel, and reports new errors of GPUs. It never waits, for use in a loop.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "canary/xid/kernel_log.h"
#include "canary/xid/xid.h"

namespace fo::canary {

class XidLog {
 public:
  using OnXid = std::function<void(const Xid&)>;

  /// Opens /dev/kmsg, or a file to which the kernel's messages are appended, at its end. Throws
  /// with the errno's status, and kNoInput if it is neither.
  XidLog(const std::string& path, OnXid on_xid);
  XidLog(const XidLog&) = delete;
  XidLog& operator=(const XidLog&) = delete;

  /// Readable when there may be more to read.
  [[nodiscard]] int fd() const { return file_ ? file_->fd() : kmsg_.get(); }
  /// Reads all present messages, and never waits. Throws with the errno's status; the next call
  /// continues where this one ended.
  void read();

 private:
  std::string what_;
  XidReader reader_;
  OnMessage on_message_;
  base::UniqueFd kmsg_;
  /// The log, if it is not /dev/kmsg.
  std::optional<LogFile> file_;
};

}  // namespace fo::canary
