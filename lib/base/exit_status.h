// The one table of exit statuses, as fo-exit-status(7) prints it. Every tool reports through it.
#pragma once

namespace fo::base {

enum class ExitStatus : int {
  kOk = 0,             // done; the answer is yes
  kNo = 1,             // the answer is no, without an error
  kUsage = 64,         // bad command line
  kBadData = 65,       // bad or stale data
  kNoInput = 66,       // a named input is missing
  kUnavailable = 69,   // server not answering, no driver, no such device
  kSoftware = 70,      // a bug of ours, or a GPU that cannot be trusted
  kOsError = 71,       // a system call failed
  kCannotCreate = 73,  // output cannot be created
  kIoError = 74,       // a write failed
  kTryAgain = 75,      // busy, timed out, or out of a resource
  kProtocol = 76,      // the peer broke the protocol, or a held lock was lost
  kNotPermitted = 77,  // not permitted
  kConfig = 78,        // bad configuration
  kCannotRun = 126,    // the command cannot be run
  kNotFound = 127,     // the command is not found
};

constexpr int to_int(ExitStatus status) { return static_cast<int>(status); }

}  // namespace fo::base
