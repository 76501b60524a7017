// Imitates Dynamo's discovery for the clients of a test: a file of JSON lines, $STAND_IN_DISCOVERY,
// to which all engines append, in any pid namespace.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace fo::stand_in {

/// Events are {"event":NAME,"engine":ENGINE_ID,"pid":N,"time":SECONDS}:
///   serving, stopped          the engine begins and ends to serve requests; a killed engine
///                             does not write the second
///   registered, unregistered  only Dynamo's workers; with the "port" for requests, and in
///                             "env" the variables for pod and discovery
///   two_serve                 instead of serving: another engine serves at this moment
/// An engine that serves holds a lock on FILE.serving, which the kernel releases when the engine
/// dies. So any overlap of two serving engines is detected, however short.
class Discovery {
 public:
  explicit Discovery(std::string engine_id);

  void serve();
  /// Does nothing unless the engine serves.
  void stop();
  void enroll(std::uint16_t port);
  void withdraw();

 private:
  void append(std::string_view event, std::uint16_t port = 0);

  std::string engine_id_;
  std::string path_;
  /// Open while the engine serves.
  base::UniqueFd serving_;
  bool enrolled_ = false;
};

}  // namespace fo::stand_in
