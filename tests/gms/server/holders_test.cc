#include "gms/server/holders.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gms/client/rpc_client.h"
#include "gms/gms_process.h"
#include "os/socket/fd_passing.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/temp_dir.h"

namespace fo::gms {
namespace {

namespace fs = std::filesystem;
using base::ExitStatus;
using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr base::ByteCount kMiB = base::kMiB;

base::ByteCount size_of(const base::UniqueFd& fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd.get(), &info), 0);
  return static_cast<base::ByteCount>(info.st_size);
}

// A server on simulated device 0; this process holds its memory wrongly.
class Holding : public OneServer {
 protected:
  /// Publishes allocations of these sizes; returns exported descriptors of them.
  std::vector<base::UniqueFd> publish(const std::vector<base::ByteCount>& sizes) const {
    RpcClient writer = enter(LockType::kRw);
    std::vector<base::UniqueFd> exported;
    for (const base::ByteCount size : sizes) {
      exported.push_back(writer.export_allocation(writer.allocate(size, "t").allocation_id));
    }
    writer.commit();
    return exported;
  }
  /// Returns when the server has released it.
  void drop_layout() const {
    { RpcClient writer = enter(LockType::kRw); }
    test::await([&] { return find().layout.allocations == 0; });
  }
  [[nodiscard]] MemoryHolders find() const {
    return find_memory_holders("sim", 0, find_servers({socket_}, soon()), soon());
  }
  [[nodiscard]] static const MemoryHolder* self(const MemoryHolders& found) {
    for (const MemoryHolder& holder : found.holders) {
      if (holder.process.pid == ::getpid()) return &holder;
    }
    return nullptr;
  }
};

TEST_F(Holding, NobodyHoldsAnythingOfAnEmptyServer) {
  start();
  const MemoryHolders found = find();
  EXPECT_THAT(found.holders, IsEmpty());
  EXPECT_EQ(found.layout.allocations + found.no_layout.allocations + found.unseen.allocations, 0u);
}

TEST_F(Holding, WhatTheServerHoldsIsOfALayoutInEveryProcess) {
  start();
  const auto exported = publish({1, 3 * kMiB});
  const MemoryHolders found = find();
  EXPECT_EQ(found.layout.allocations, 2u);
  EXPECT_EQ(found.layout.bytes, 6 * kMiB);
  EXPECT_EQ(found.no_layout.allocations, 0u);
  EXPECT_EQ(found.unseen.allocations, 0u);
  const MemoryHolder* mine = self(found);
  ASSERT_NE(mine, nullptr);
  EXPECT_FALSE(mine->process.is_server);
  EXPECT_EQ(mine->layout.allocations, 2u);
  EXPECT_EQ(mine->layout.bytes, 6 * kMiB);
  EXPECT_EQ(mine->layout.fds, 2u);
  EXPECT_EQ(mine->layout.mappings, 0u);
  base::ByteCount of_servers = 0;
  for (const MemoryHolder& holder : found.holders) {
    if (!holder.process.is_server) continue;
    EXPECT_EQ(holder.process.command, "gms-serve");
    of_servers = std::max(of_servers, holder.layout.bytes);
  }
  EXPECT_EQ(of_servers, 6 * kMiB);
}

TEST_F(Holding, LeakedDescriptorIsOfNoLayout) {
  start();
  auto exported = publish({kMiB, 3 * kMiB});
  exported.emplace_back(::fcntl(exported[0].get(), F_DUPFD_CLOEXEC, 0));
  drop_layout();
  MemoryHolders found = find();
  EXPECT_EQ(found.layout.allocations, 0u);
  EXPECT_EQ(found.no_layout.allocations, 2u);
  EXPECT_EQ(found.no_layout.bytes, 6 * kMiB);
  ASSERT_THAT(found.holders, SizeIs(1));
  EXPECT_EQ(found.holders[0].no_layout.fds, 3u);
  exported.clear();
  EXPECT_THAT(find().holders, IsEmpty());
}

TEST_F(Holding, MappingHoldsWithoutADescriptor) {
  start();
  auto exported = publish({3 * kMiB});
  const base::ByteCount size = size_of(exported[0]);
  void* mapped = ::mmap(nullptr, size, PROT_NONE, MAP_SHARED, exported[0].get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  // Two areas in the process's maps, one allocation.
  ASSERT_EQ(::mprotect(mapped, kMiB, PROT_READ), 0);
  exported.clear();
  drop_layout();
  const MemoryHolders found = find();
  const MemoryHolder* mine = self(found);
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(mine->no_layout.mappings, 1u);
  EXPECT_EQ(mine->no_layout.fds, 0u);
  EXPECT_EQ(mine->no_layout.bytes, 4 * kMiB);
  EXPECT_EQ(found.unseen.allocations, 0u);
  ASSERT_EQ(::munmap(mapped, size), 0);
  EXPECT_THAT(find().holders, IsEmpty());
}

TEST_F(Holding, DescriptorInFlightIsHeldWhereItIsNotToBeSeen) {
  start();
  auto exported = publish({kMiB});
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const base::UniqueFd receiver(ends[0]);
  base::UniqueFd sender(ends[1]);
  const std::byte byte{};
  const int fd = exported[0].get();
  ASSERT_EQ(os::send_with_fds(sender.get(), std::span(&byte, 1), std::span(&fd, 1)), 1);
  exported.clear();
  drop_layout();
  MemoryHolders found = find();
  EXPECT_THAT(found.holders, IsEmpty());
  EXPECT_EQ(found.unseen.allocations, 1u);
  EXPECT_EQ(found.unseen.bytes, 2 * kMiB);
  EXPECT_THAT(
      to_text(found),
      HasSubstr("\nmemory held by processes that are not visible: 2 MiB in 1 allocation\n"));
}

TEST_F(Holding, WhatTheKilledLeftBehindIsHeldByNobody) {
  start();
  static_cast<void>(publish({kMiB}));
  server_->child().signal(SIGKILL);
  ASSERT_EQ(server_->wait(), 128 + SIGKILL);
  // After the parent's death the server ends by itself; its memory is free a moment after its
  // descriptors are closed.
  const base::Deadline deadline = soon();
  MemoryHolders found;
  do {
    found = find();
  } while (found.no_layout.bytes + found.unseen.bytes > 0 && !deadline.expired());
  EXPECT_THAT(found.holders, IsEmpty());
  EXPECT_EQ(found.unseen.allocations, 0u);
}

TEST_F(Holding, WithoutAServerNothingBelongsToALayout) {
  start();
  const auto exported = publish({kMiB});
  server_->terminate();
  const MemoryHolders found = find();
  EXPECT_EQ(found.layout.allocations, 0u);
  ASSERT_THAT(found.holders, SizeIs(1));
  EXPECT_EQ(found.holders[0].no_layout.bytes, 2 * kMiB);
  EXPECT_THAT(found.servers.processes, IsEmpty());
  EXPECT_THAT(to_text(found), HasSubstr("\nno server is visible: "));
}

TEST_F(Holding, AnotherDevicesMemoryIsNotOurs) {
  start();
  const auto exported = publish({kMiB});
  EXPECT_THAT(find_memory_holders("sim", 1, {}, soon()).holders, IsEmpty());
}

TEST_F(Holding, LooksLeaveTheMemoryAloneHoweverManyThereAre) {
  start();
  auto exported = publish({kMiB});
  const os::Child other = os::fork_child([&] {
    for (int i = 0; i < 50; ++i) static_cast<void>(find());
    return 0;
  });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(find().layout.bytes, 2 * kMiB);
  EXPECT_EQ(other.wait(soon()), 0);
  RpcClient reader = enter(LockType::kRo);
  EXPECT_EQ(size_of(reader.export_allocation(reader.list_allocations()[0].allocation_id)),
            2 * kMiB);
}

TEST_F(Holding, JsonAndText) {
  start();
  const auto leaked = publish({kMiB});
  const auto published = publish({3 * kMiB});
  const base::Deadline deadline = soon();
  MemoryHolders found;
  do {
    found = find();
  } while (found.layout.allocations != 1 && !deadline.expired());
  const json out = json::parse(to_json(found));
  EXPECT_EQ(out["device"], 0);
  EXPECT_EQ(out["simulated"], true);
  EXPECT_EQ(out["layout"]["bytes"], 4 * kMiB);
  EXPECT_EQ(out["no_layout"]["bytes"], 2 * kMiB);
  EXPECT_EQ(out["holders"][0]["pid"], ::getpid());
  EXPECT_EQ(out["holders"][0]["is_server"], false);
  EXPECT_EQ(out["holders"][0]["no_layout"]["fds"], 1);
  EXPECT_EQ(out["holders"][1]["is_server"], true);
  const std::string text = to_text(found);
  EXPECT_THAT(text, HasSubstr("\nmemory of a layout: 4 MiB in 1 allocation\n"
                              "memory of no layout: 2 MiB in 1 allocation\n"));
  EXPECT_THAT(text,
              testing::ContainsRegex("gms_test +2 MiB    1         0   4 MiB    1         0\n"));
  EXPECT_THAT(text, HasSubstr("gms-serve (server)"));
}

TEST_F(Holding, NoSuchDeviceIsUnavailable) {
  const auto failure =
      test::failure_of([&] { static_cast<void>(find_memory_holders("sim", 7, {}, soon())); });
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_EQ(failure.message,
            "inspect simulated device '" + dir_ + "/sim/device-7': No such file or directory");
}

TEST_F(Holding, BookThatStaysLockedIsNotWaitedForForEver) {
  start();
  publish({kMiB});
  server_.reset();
  const std::string folder = dir_ + "/sim/device-0";
  // Unheld: only the book tells.
  std::ofstream(folder + "/mem-1") << "x";
  const os::Child locker = os::fork_child(
      [&] {
        const base::UniqueFd book(::open((folder + "/book").c_str(), O_RDWR | O_CLOEXEC));
        struct flock lock {};
        lock.l_type = F_WRLCK;
        if (::fcntl(book.get(), F_SETLKW, &lock) != 0) return 1;
        std::ofstream(path("locked"));
        for (;;) ::pause();
      },
      {.parent_death_signal = SIGKILL});
  test::await([&] { return fs::exists(path("locked")); });
  const auto failure = test::failure_of([&] {
    static_cast<void>(
        find_memory_holders("sim", 0, {}, base::Deadline::after(std::chrono::milliseconds(20))));
  });
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
  locker.signal(SIGKILL);
  EXPECT_EQ(locker.wait(soon()), 128 + SIGKILL);
  EXPECT_EQ(find_memory_holders("sim", 0, {}, soon()).unseen.allocations, 0u);
}

class ServerProcesses : public TestDevice {};

TEST_F(ServerProcesses, AreTheListenerAndItsChildrenOfTheSameProgram) {
  const GmsProcess bundle({"--socket-dir", dir_, "--devices", "0"});
  ASSERT_TRUE(bundle.is_ready());
  const Servers found =
      find_servers({dir_ + "/gms_0_weights.sock", dir_ + "/gms_none.sock"}, soon());
  const std::set<pid_t>& servers = found.processes;
  EXPECT_EQ(found.unseen, 0u);
  // A parent and a server for each of two tags.
  EXPECT_GE(servers.size(), 3u);
  EXPECT_TRUE(servers.contains(bundle.child().pid()));
  EXPECT_FALSE(servers.contains(::getpid()));
  EXPECT_THAT(uuid_of_socket(dir_ + "/gms_0_weights.sock"), testing::StartsWith("GPU-"));
}

TEST_F(ServerProcesses, OneThatCanNotBeAskedIsUnseen) {
  const std::string socket = path("full.sock");
  const base::UniqueFd listener = os::listen_unix(socket, 0600, 0);
  std::vector<base::UniqueFd> waiting;
  try {
    for (;;) waiting.push_back(os::connect_unix(socket, base::Deadline::after(base::Duration(0))));
  } catch (const base::Error& error) {
    ASSERT_EQ(error.status(), ExitStatus::kTryAgain);
  }
  const Servers found = find_servers({socket}, base::Deadline::after(base::Duration(0)));
  EXPECT_THAT(found.processes, IsEmpty());
  EXPECT_EQ(found.unseen, 1u);
}

// With a fake /proc.
class RealDevice : public test::FdCounting {
 protected:
  void process(int pid, const std::string& command, const std::vector<std::string>& files,
               const std::string& maps = "") const {
    const fs::path folder = proc_.path(std::to_string(pid));
    fs::create_directories(folder / "fd");
    std::ofstream(folder / "comm") << command << "\n";
    std::ofstream(folder / "cmdline") << command;
    std::ofstream(folder / "maps") << maps;
    int fd = 0;
    for (const std::string& file : files) {
      fs::create_symlink(file, folder / "fd" / std::to_string(fd++));
    }
  }
  void gpu(const std::string& bus, const std::string& uuid, int minor) const {
    const fs::path folder = proc_.path("driver/nvidia/gpus/" + bus);
    fs::create_directories(folder);
    std::ofstream(folder / "information")
        << "Model: \t\t NVIDIA H200\nIRQ:   \t\t 123\nGPU UUID: \t " << uuid
        << "\nBus Location: \t 0000:01:00.0\nDevice Minor: \t " << minor << "\n";
  }

  test::TempDir proc_;
};

TEST_F(RealDevice, UsersAreFoundByTheDevicesFile) {
  gpu("0000:01:00.0", "GPU-a", 1);
  gpu("0000:02:00.0", "GPU-b", 0);
  process(10, "gms-serve", {"/dev/null", "/dev/nvidiactl", "/dev/nvidia1", "/dev/nvidia1"});
  process(11, "engine", {"/dev/nvidiactl"},
          "7f0000000000-7f0000001000 rw-s 00000000 00:05 300    /dev/nvidia1\n"
          "7f0000001000-7f0000002000 rw-s 00000000 00:05 301    /dev/nvidia10\n");
  process(12, "elsewhere", {"/dev/nvidiactl", "/dev/nvidia0"});
  process(13, "leak", {"/dev/nvidiactl", "/dev/nvidiactl"});
  process(14, "shell", {"/dev/null", "/dev/nvidia-uvm"}, "garbage\n\n   \n");
  const DeviceUsers found = find_device_users(3, "GPU-a", {{10}, 0}, proc_.path());
  EXPECT_EQ(found.device_file, "/dev/nvidia1");
  ASSERT_THAT(found.users, SizeIs(3));
  EXPECT_EQ(found.users[0].process.command, "gms-serve");
  EXPECT_TRUE(found.users[0].process.is_server);
  EXPECT_EQ(found.users[0].device_fds, 2u);
  EXPECT_EQ(found.users[0].control_fds, 1u);
  EXPECT_EQ(found.users[1].process.pid, 11);
  EXPECT_EQ(found.users[1].mappings, 1u);
  EXPECT_EQ(found.users[2].process.command, "leak");
  EXPECT_EQ(found.users[2].control_fds, 2u);
  const json out = json::parse(to_json(found));
  EXPECT_EQ(out["device"], 3);
  EXPECT_EQ(out["simulated"], false);
  EXPECT_EQ(out["device_file"], "/dev/nvidia1");
  EXPECT_EQ(out["holders"][0]["device_fds"], 2);
  EXPECT_THAT(to_text(found), HasSubstr("device 3, /dev/nvidia1\n"));
}

TEST_F(RealDevice, OfAnUnknownDeviceAllUsersAreShown) {
  gpu("0000:01:00.0", "GPU-a", 0);
  process(10, "one\x1b[2J\xff", {"/dev/nvidia0"});
  process(11, "other", {"/dev/nvidia1"});
  const DeviceUsers found = find_device_users(0, "MIG-x", {}, proc_.path());
  EXPECT_EQ(found.device_file, "");
  EXPECT_THAT(found.users, SizeIs(2));
  EXPECT_TRUE(json::parse(to_json(found))["device_file"].is_null());
  EXPECT_THAT(to_text(found), HasSubstr("all processes are shown"));
  EXPECT_THAT(to_text(found), HasSubstr("one\\x1b[2J"));
}

TEST_F(RealDevice, NoDriverIsUnavailable) {
  const auto failure =
      test::failure_of([&] { static_cast<void>(find_device_users(0, "GPU-a", {}, proc_.path())); });
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_THAT(failure.message, HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace fo::gms
