// A registry: records that the processes of a fleet share. A record is a key (key.h) and
// one JSON object. Coroutines of one loop.
//
// All calls throw, in addition to what each documents, kUnavailable or kTryAgain if the registry
// cannot be reached now, and kNotPermitted.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/strong.h"

namespace fo::fleet {

/// The maximum size of a record's text.
inline constexpr base::ByteCount kMaxRecordBytes = 64 * base::kKiB;

struct Record {
  std::string key;
  std::string text;
  friend bool operator==(const Record&, const Record&) = default;
};

/// Another process keeps the record with this key; kTryAgain.
class KeyInUse final : public base::Error {
 public:
  explicit KeyInUse(const std::string& key)
      : Error(base::ExitStatus::kTryAgain,
              "record " + base::quoted(key) + ": another process keeps it") {}
};

/// Throws kUsage if `key` is not a key of a registry, and kSoftware unless is_ephemeral(key) is
/// `ephemeral`.
void check_key(const std::string& key, bool ephemeral);
/// Throws like check_key for the record's key, and kBadData if the record is invalid.
void check(const Record& record, bool ephemeral);

/// Returns the life in a record, as it is written there; empty if it has none. Throws json::Misfit
/// for an invalid record, which a registry must not report: its text is too long or not a JSON
/// object, or its id is not the one in its key.
std::string checked_life(const Record& record);

struct RegistryChange {
  enum class Kind {
    kPut,     // the record is new, or has changed
    kStale,   // it has vanished, or is out of reach, but its process may live
    kGone,    // it was removed, or its process has ended or deregistered
    kListed,  // all records that were present at the beginning have been reported
  };
  Kind kind = Kind::kPut;
  /// The record; only its key for kStale and kGone; empty for kListed.
  Record record = {};
};

/// Returns the new text of a record for its present text. It may be called more than once.
using Edit = std::function<std::string(const std::string& text)>;

/// A record that this process keeps. It counts while this object exists. Without deregister(), a
/// record in a folder stops counting when the object or the process ends, and one in etcd when its
/// lease expires.
class RegisteredRecord {
 public:
  RegisteredRecord() = default;
  RegisteredRecord(const RegisteredRecord&) = delete;
  RegisteredRecord& operator=(const RegisteredRecord&) = delete;
  virtual ~RegisteredRecord() = default;

  /// Changes the record, which other processes may change, too. If the registry has lost it,
  /// maintain() writes it again with this change.
  virtual boost::asio::awaitable<void> edit(Edit edit, base::Deadline deadline) = 0;
  /// Deregisters: watches report the record as kGone. No other call may follow.
  virtual boost::asio::awaitable<void> deregister(base::Deadline deadline) = 0;
  /// Keeps the record in the registry until it is cancelled, and writes it again if the registry
  /// has lost it. Errors are logged, and the attempt is repeated.
  virtual boost::asio::awaitable<void> maintain() = 0;
};

/// A registry that can be read. Some registries are written only by other systems, such as
/// Kubernetes.
class RecordReader {
 public:
  RecordReader() = default;
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;
  virtual ~RecordReader() = default;

  /// The records whose keys begin with `prefix`, sorted by key. Invalid ones are left out, with a
  /// warning in the log, and so are those whose process has ended.
  virtual boost::asio::awaitable<std::vector<Record>> list(std::string prefix,
                                                           base::Deadline deadline) = 0;
  /// Calls `on_change`, which must not throw, for the present records, for kListed, and then for
  /// each change, until it is cancelled. Throws only before kListed.
  virtual boost::asio::awaitable<void> watch(
      std::string prefix, std::function<void(const RegistryChange&)> on_change) = 0;
};

class Registry : public RecordReader {
 public:
  /// Writes a record of an ephemeral kind, and keeps it. Throws KeyInUse, and kBadData for an
  /// invalid record.
  virtual boost::asio::awaitable<std::unique_ptr<RegisteredRecord>> register_record(
      Record record, base::Deadline deadline) = 0;
  /// Writes a record of a persistent kind, and replaces a present one. Throws kBadData like
  /// register_record().
  virtual boost::asio::awaitable<void> put(Record record, base::Deadline deadline) = 0;
  /// Changes a record of any kind; false if there is none. Throws kBadData like register_record().
  virtual boost::asio::awaitable<bool> edit(std::string key, Edit edit,
                                            base::Deadline deadline) = 0;
  /// Changes a record of a persistent kind. If there is none, `edit` gets an empty text, and the
  /// record is created unless the new text is empty, too. Throws kBadData like register_record().
  virtual boost::asio::awaitable<void> edit_or_create(std::string key, Edit edit,
                                                      base::Deadline deadline) = 0;
  /// Removes a record of a persistent kind; false if there is none. Throws kSoftware for an
  /// ephemeral kind.
  virtual boost::asio::awaitable<bool> remove(std::string key, base::Deadline deadline) = 0;
};

}  // namespace fo::fleet
