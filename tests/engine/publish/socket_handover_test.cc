#include "engine/publish/socket_handover.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "loop/run.h"
#include "os/socket/server_socket.h"
#include "os/socket/unix_socket.h"
#include "support/fds.h"
#include "support/soon.h"
#include "support/temp_dir.h"

namespace fo::engine {
namespace {

using test::soon;

// That both sides get on with each other is tested with publishers (publisher_test.cc).
class PublishedHandover : public test::FdCounting {
 protected:
  [[nodiscard]] PublishedSockets take() const {
    return loop::run_to_end(take_sockets(path_, soon()));
  }

  test::TempDir folder_;
  const std::string path_ = folder_.path("handover.sock");
};

TEST_F(PublishedHandover, WhatADeadGiverLeftIsRemoved) {
  static_cast<void>(os::listen_unix(path_));
  ASSERT_TRUE(std::filesystem::is_socket(path_));
  EXPECT_FALSE(take().listener);
  EXPECT_FALSE(std::filesystem::exists(path_));
  // The socket of a giver that has the lock already, but does not listen yet.
  static_cast<void>(os::listen_unix(path_));
  const auto giver = os::try_lock_path(path_ + ".lock");
  EXPECT_FALSE(take().listener);
  EXPECT_TRUE(std::filesystem::is_socket(path_));
}

}  // namespace
}  // namespace fo::engine
