#include "os/process/exec.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "os/process/signals.h"

namespace fo::os {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void set_environment(const std::string& name, const std::string& value) {
  if (::setenv(name.c_str(), value.c_str(), 1) != 0) {
    base::throw_errno(errno, "set environment variable " + base::quoted(name));
  }
}

void exec_command(const std::vector<std::string>& argv, std::span<const int> keep_fds) {
  std::vector<char*> words;
  words.reserve(argv.size() + 1);
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  for (const int fd : keep_fds) {
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags < 0 || ::fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC) != 0) {
      base::throw_errno(errno, "keep descriptor " + std::to_string(fd));
    }
  }
  restore_signals();
  ::execvp(words.front(), words.data());
  const int err = errno;
  const bool absent = err == ENOENT || err == ENOTDIR;
  base::throw_errno(err, absent ? base::ExitStatus::kNotFound : base::ExitStatus::kCannotRun,
                    "run " + base::quoted(argv.front()));
}

}  // namespace fo::os
