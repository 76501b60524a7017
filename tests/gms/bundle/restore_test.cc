// Servers that start with an unusable stored layout after a crash, and servers whose failure does
// not end the others.
#include <sys/mman.h>

#include "gms/bundle/fd_store.h"
#include "gms/gms_process.h"
#include "gms/protocol/endpoint.h"
#include "gms/server/server.h"
#include "gms/server/server_counters.h"
#include "os/file/file.h"

namespace fo::gms {
namespace {

// A server in a child process, and its descriptor store in this one.
class SimulatedRestore : public OneServer {
 protected:
  // Starts with a stored layout of this record and without memory.
  os::Child serve(const std::string& record) {
    base::UniqueFd server_end = fd_store_.open();
    os::Child child = os::fork_child([&] {
      ServerCounters counters;
      ServerConfig config;
      config.driver = cuda::Driver::open("sim");
      config.device = cuda::device_info(*config.driver, base::DeviceOrdinal(0));
      config.listener = os::listen_unix(socket_, 0600);
      config.stop_fd = stop_.reader.get();
      stop_.writer.reset();
      config.fd_store = std::move(server_end);
      config.counters = &counters;
      config.stored_layout.emplace();
      config.stored_layout->record = base::UniqueFd(::memfd_create("record", MFD_CLOEXEC));
      os::write_all(config.stored_layout->record.get(), record, "write a record");
      run_server(std::move(config), [&] { os::write_all(ready_.writer.get(), ".", "be ready"); });
      return 0;
    });
    return child;
  }

  static bool is_readable(int fd, const base::Deadline& deadline) {
    pollfd event{fd, POLLIN, 0};
    return ::poll(&event, 1, deadline.poll_timeout()) == 1;
  }

  // Does what the parent does.
  void answer_fd_store() {
    ASSERT_TRUE(is_readable(fd_store_.fd(), soon()));
    fd_store_.serve();
    fd_store_.answer_drop();
  }

  FdBudget budget_{100, 0};
  FdStore fd_store_{budget_};
  os::Pipe ready_;
  os::Pipe stop_;
};

TEST_F(SimulatedRestore, LayoutThatCannotBeRestoredIsForgottenBeforeAnybodyIsServed) {
  for (const std::string& record : {std::string(), std::string("no record"), std::string("\x80")}) {
    const os::Child child = serve(record);
    ASSERT_TRUE(is_readable(fd_store_.fd(), soon()));
    EXPECT_FALSE(is_readable(ready_.reader.get(), base::Deadline::after(base::Duration::zero())));
    answer_fd_store();
    ASSERT_TRUE(is_readable(ready_.reader.get(), soon()));
    char mark = 0;
    ASSERT_EQ(::read(ready_.reader.get(), &mark, 1), 1);
    EXPECT_EQ(state().state, "EMPTY");
    {
      // A writer drops the old layout and is served as usual.
      RpcClient writer = connect();
      std::thread parent([this] { answer_fd_store(); });
      EXPECT_EQ(writer.request_lock(LockType::kRw, soon()).grant, Grant::kRw);
      parent.join();
      EXPECT_EQ(writer.allocate(kGranule, "t").layout_slot, 0);
    }
    stop_ = os::Pipe();
    child.signal(SIGKILL);
    ASSERT_TRUE(child.wait(soon()));
    fd_store_.close();
    std::filesystem::remove(socket_);
  }
}

TEST_F(SimulatedRestore, FailureOfTheKvServerLeavesTheWeightsAlone) {
  set("GMS_SIM_FAULTS", "cuMemCreate:3=999");
  GmsProcess both({"--socket-dir", dir_, "--devices", "0", "--tags", "weights,kv_cache"});
  unset("GMS_SIM_FAULTS");
  ASSERT_TRUE(both.is_ready());
  const auto enter_at = [this](const char* tag) {
    RpcClient client = RpcClient::connect(socket_link(dir_, base::DeviceOrdinal(0), tag), soon());
    EXPECT_EQ(client.request_lock(LockType::kRw, soon()).grant, Grant::kRw);
    return client;
  };
  RpcClient weights = enter_at("weights");
  weights.allocate(kGranule, "t");
  weights.commit();
  const auto state_of_weights = [this] {
    return RpcClient::connect(socket_link(dir_, base::DeviceOrdinal(0), "weights"), soon())
        .runtime_state();
  };
  const LayoutHash hash = state_of_weights().memory_layout_hash;
  // More failures than a server of weights may have.
  for (int failure = 0; failure < 3; ++failure) {
    RpcClient kv = enter_at("kv_cache");
    kv.allocate(kGranule, "t");
    kv.allocate(kGranule, "t");
    EXPECT_THROW(kv.allocate(kGranule, "t"), base::Error);
    EXPECT_EQ(state_of_weights().memory_layout_hash, hash);
  }
  EXPECT_EQ(both.terminate(), 0);
}

TEST_F(SimulatedRestore, FailureOfAServerEndsAllWhereNoWeightsAreServed) {
  set("GMS_SIM_FAULTS", "cuMemCreate:1=999");
  GmsProcess kv({"--socket-dir", dir_, "--devices", "0", "--tags", "kv_cache"});
  unset("GMS_SIM_FAULTS");
  RpcClient client =
      RpcClient::connect(socket_link(dir_, base::DeviceOrdinal(0), "kv_cache"), soon());
  ASSERT_TRUE(client.request_lock(LockType::kRw, soon()).grant);
  EXPECT_THROW(client.allocate(kGranule, "t"), base::Error);
  EXPECT_EQ(kv.wait(), 70);
}

}  // namespace
}  // namespace fo::gms
