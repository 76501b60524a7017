// Whole files: bounded reading, and atomic writing.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/strong.h"
#include "base/unique_fd.h"

namespace fo::os {

/// open(2) with CLOEXEC added. Throws with the errno's status: "open 'path': reason".
base::UniqueFd open_file(const std::string& path, int flags, mode_t mode = 0644);

/// Opens, or with O_CREAT in `flags` creates, a regular file. Refuses a symbolic link at the end of
/// `path` and a file with more than one hard link, because another user may have put it there to
/// have a file overwritten. Never waits for the other end of a FIFO. Throws "`what`: reason":
/// kCannotCreate for a refused file; with O_CREAT kNotPermitted or kCannotCreate, with a reason
/// that names a missing folder; else the status of the errno.
base::UniqueFd open_plain_file(const std::string& path, int flags, const std::string& what,
                               mode_t mode = 0644);

/// The parent folder of `path`, if it does not exist.
std::optional<std::string> find_missing_folder(const std::string& path);

/// The file's content. Throws kNoInput, kNotPermitted …; kBadData if it is longer than `limit`.
std::string read_file(const std::string& path, base::ByteCount limit);

/// Replaces `path` by a new file with this content: a temporary file beside it, fsync, rename,
/// fsync of the folder. If it throws, the old file is unchanged, unless only the last step failed.
/// Throws kCannotCreate, also for a path that is not a regular file (a link, a device),
/// kNotPermitted or kIoError.
void write_file_atomic(const std::string& path, std::string_view content, mode_t mode = 0644);

/// Writes all bytes to a blocking descriptor. Throws with the errno's status, and `what`.
void write_all(int fd, std::string_view bytes, const std::string& what);

/// Why another user may change the file or folder with this status: "it belongs to user 7" or
/// "other users may write to it". nullopt if only this user and root may.
std::optional<std::string> find_other_writer(const struct stat& status);

/// A file's time, as stat(2) returns it.
std::int64_t nanoseconds(const timespec& time);

/// Whether a read from `fd`, or an accept, would not block now.
bool is_readable(int fd);

}  // namespace fo::os
