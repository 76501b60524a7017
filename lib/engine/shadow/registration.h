// Lets clients find the engine while it is active: the published address and the commands that
// register and deregister it.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "engine/publish/publisher.h"
#include "engine/publish/socket_handover.h"
#include "engine/shadow/course.h"
#include "engine/shadow/engine_process.h"
#include "engine/shadow/shadow.h"
#include "loop/children.h"
#include "os/socket/status_fd.h"

namespace fo::engine {

class Registration {
 public:
  /// Clients of the published address use a part of `max_fds`, the descriptors that this process
  /// may have. All references outlive this object. Throws kUsage for a bad address.
  Registration(boost::asio::any_io_executor executor, const ShadowOptions& options,
               std::size_t max_fds, Course& course, loop::Children& children, EngineProcess& engine,
               const os::StatusFd& events);

  /// The generation in the environment of commands; 0 for none.
  void set_generation(std::uint64_t generation) { generation_ = generation; }

  /// Publishes the address, on the sockets of the last active engine if it has left any, and
  /// registers. Throws kUnavailable if the register command fails, what Publisher::start throws,
  /// Ended.
  boost::asio::awaitable<void> open(base::Deadline deadline);
  /// Reports that it drains, deregisters, and lets requests in flight end. New clients wait for the
  /// successor.
  boost::asio::awaitable<void> suspend();
  /// Undoes suspend() if no engine took over. Throws like open().
  boost::asio::awaitable<void> resume();
  /// After suspend() and before the lock is released: offers the published sockets to the next
  /// active engine, which may be this one, until they are taken. An engine that becomes active and
  /// finds no offer listens on the address itself.
  void hand_over();

  /// The end: waits for running commands, deregisters, and lets requests in flight end if the
  /// course is graceful; then waits until the successor has the sockets.
  boost::asio::awaitable<void> close();
  /// Closes the published address at once.
  void cut() { publisher_.reset(); }

 private:
  enum class State {
    kClosed,
    kOpen,        // published, or about to be
    kRegistered,  // the register command ran, too
  };

  boost::asio::awaitable<void> enroll();
  boost::asio::awaitable<void> deregister();
  boost::asio::awaitable<void> drain(base::Deadline deadline, Successor successor);
  // The reason of a failure; empty if the command succeeded.
  boost::asio::awaitable<std::string> run_command(std::string command);
  boost::asio::awaitable<PublishedSockets> inherit(base::Deadline deadline);
  boost::asio::awaitable<void> offer(os::ServerSocket server);

  boost::asio::any_io_executor executor_;
  const ShadowOptions& options_;
  Course& course_;
  loop::Children& children_;
  EngineProcess& engine_;
  const os::StatusFd& events_;
  State state_ = State::kClosed;
  std::unique_ptr<Publisher> publisher_;
  // Sockets that the next active engine has not received yet.
  PublishedSockets offered_;
  bool is_offering_ = false;
  int running_commands_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace fo::engine
