// Imitates Dynamo's discovery for the clients of a test: a file of JSON lines, $STAND_IN_DISCOVERY,
// to which all engines append, in any pid namespace.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace fo::stand_in {

/// Events are {"event":NAME,"engine":ENGINE_ID,"pid":N,"time":SECONDS}:
///   serving, stopped          requests may come, and may not. Of an engine that is killed there is
///                             only the first
///   registered, unregistered  Dynamo's workers alone; with the "port" of their requests, and in
///                             "env" what they were told of pod and discovery
///   two_serve                 in place of serving: another engine serves at this moment
/// An engine that serves holds a lock on FILE.serving, which the kernel frees when it dies: that
/// two serve is seen whenever it is so, however short.
class Discovery {
 public:
  explicit Discovery(std::string engine_id);

  void serve();
  /// Does nothing if it does not serve.
  void stop();
  void enroll(std::uint16_t port);
  void withdraw();

 private:
  void append(std::string_view event, std::uint16_t port = 0);

  std::string engine_id_;
  std::string path_;
  /// Open while it serves.
  base::UniqueFd serving_;
  bool enrolled_ = false;
};

}  // namespace fo::stand_in
