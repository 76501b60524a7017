#include "canary/xid/xid_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "os/file/file.h"

namespace fo::canary {

XidLog::XidLog(const std::string& path, OnXid on_xid)
    : what_("read " + base::quoted(path)),
      on_message_([this, on_xid = std::move(on_xid)](const KernelMessage& message) {
        if (const auto xid = reader_.read(message.text)) on_xid(*xid);
      }) {
  base::UniqueFd file = os::open_file(path, O_RDONLY | O_NONBLOCK);
  if (!is_kmsg(file.get())) {
    file_.emplace(path, on_message_, LogFile::From::kEnd);
    return;
  }
  kmsg_ = std::move(file);
  if (::lseek(kmsg_.get(), 0, SEEK_END) < 0) base::throw_errno(errno, what_);
}

void XidLog::read() {
  if (file_) return file_->read();
  const ReadCall read = [this](char* to, std::size_t size) -> ssize_t {
    const ssize_t count = ::read(kmsg_.get(), to, size);
    return count < 0 && errno == EAGAIN ? 0 : count;
  };
  read_kmsg(read, what_, on_message_, [this] { warn_of_lost_messages(what_); });
}

}  // namespace fo::canary
