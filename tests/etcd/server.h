// The real etcd server for tests, with its data in a temporary folder and ports of 127.0.0.1.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "http/client.h"
#include "os/file/file.h"
#include "os/process/process.h"
#include "os/process/sibling.h"
#include "support/await.h"
#include "support/must_run.h"
#include "support/ports.h"
#include "support/temp_dir.h"
#include "support/text_file.h"

namespace fo::test {

/// The command line of a server with its data in `folder` and these ports of 127.0.0.1.
inline std::vector<std::string> etcd_command(const std::string& folder, std::uint16_t client_port,
                                             std::uint16_t peer_port) {
  const std::string client = "http://127.0.0.1:" + std::to_string(client_port);
  const std::string peer = "http://127.0.0.1:" + std::to_string(peer_port);
  return {"etcd",
          "--data-dir=" + folder,
          "--listen-client-urls=" + client,
          "--advertise-client-urls=" + client,
          "--listen-peer-urls=" + peer,
          "--initial-advertise-peer-urls=" + peer,
          "--initial-cluster=default=" + peer,
          "--heartbeat-interval=10",
          "--election-timeout=100",
          "--unsafe-no-fsync",
          "--bcrypt-cost=4",
          "--logger=zap",
          "--log-level=warn"};
}

/// Whether the server on this port has a leader.
inline bool etcd_is_ready(std::uint16_t client_port) {
  try {
    const auto second = base::Deadline::after(std::chrono::seconds(1));
    const std::string url = "http://127.0.0.1:" + std::to_string(client_port) + "/health";
    return http::fetch("GET", url, second).status == 200;
  } catch (const base::Error&) {
    return false;
  }
}

class Etcd {
 public:
  /// `options` are added to the default ones.
  explicit Etcd(const TempDir& dir, std::vector<std::string> options = {})
      : Etcd(dir, std::vector<ReservedPort>(2), std::move(options)) {
    start();
  }
  /// `ports`: the one for clients and the one for peers. Does not start the server.
  Etcd(const TempDir& dir, std::vector<ReservedPort> ports, std::vector<std::string> options)
      : folder_(dir.path("etcd." + std::to_string(++count()))),
        options_(std::move(options)),
        ports_(std::move(ports)) {}
  Etcd(const Etcd&) = delete;
  Etcd& operator=(const Etcd&) = delete;
  ~Etcd() {
    if (child_) kill();
  }

  /// Returns when the server answers.
  void start() {
    launch();
    await_ready();
  }
  void launch() {
    std::vector<std::string> argv = etcd_command(folder_, ports_[0].number(), ports_[1].number());
    argv.insert(argv.end(), options_.begin(), options_.end());
    const base::UniqueFd log = os::open_file(folder_ + ".log", O_CREAT | O_WRONLY | O_APPEND);
    const os::SpawnOptions options{
        .parent_death_signal = SIGKILL, .stdout_fd = log.get(), .stderr_fd = log.get()};
    child_ = std::make_unique<os::Child>(os::spawn(argv, options));
  }
  void await_ready() const {
    const base::Deadline deadline = base::Deadline::after(kLong);
    while (!etcd_is_ready(port())) {
      ASSERT_FALSE(deadline.expired()) << slurp(folder_ + ".log");
      ASSERT_FALSE(child_->wait(base::Deadline::after(std::chrono::milliseconds(10))))
          << slurp(folder_ + ".log");
    }
  }
  void kill() {
    child_->signal(SIGKILL);
    ASSERT_TRUE(child_->wait(base::Deadline::after(kLong)));
    child_.reset();
  }
  void restart() {
    kill();
    start();
  }
  void start_without_data() {
    std::filesystem::remove_all(folder_);
    start();
  }
  /// Sends SIGSTOP or SIGCONT. After SIGSTOP, returns when all its threads are stopped.
  void signal(int signal) const {
    child_->signal(signal);
    siginfo_t stopped{};
    if (signal != SIGSTOP) return;
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(child_->pid()), &stopped, WSTOPPED), 0);
  }

  [[nodiscard]] std::uint16_t port() const { return ports_[0].number(); }
  [[nodiscard]] std::string url() const { return ports_[0].url(); }
  /// "HOST:PORT".
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port()); }
  /// How many watches of clients it serves.
  [[nodiscard]] int watchers() const {
    const auto deadline = base::Deadline::after(kLong);
    const std::string metrics = http::fetch("GET", url() + "/metrics", deadline).body;
    const std::string name = "\netcd_debugging_mvcc_watcher_total ";
    const std::size_t at = metrics.find(name);
    return at == std::string::npos ? 0 : std::stoi(metrics.substr(at + name.size()));
  }
  /// The command line of etcdctl for this server.
  [[nodiscard]] std::vector<std::string> etcdctl(const std::vector<std::string>& arguments) const {
    // etcdctl itself would give up after 5 s.
    std::vector<std::string> argv{"env", "ETCDCTL_API=3", "etcdctl", "--endpoints=" + url(),
                                  "--command-timeout=60s"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return argv;
  }
  /// Returns etcdctl's output; the test fails if etcdctl fails.
  std::string run_etcdctl(const std::vector<std::string>& arguments) const {
    const auto ended = os::run_captured(etcdctl(arguments), base::Deadline::after(kLong));
    EXPECT_TRUE(ended && ended->status == 0) << (ended ? ended->err : "it did not end");
    return ended ? ended->out : "";
  }

 private:
  static int& count() {
    static int count = 0;
    return count;
  }
  std::string folder_;
  std::vector<std::string> options_;
  // Reserved as long as this object exists, so that no other test gets them.
  std::vector<ReservedPort> ports_;
  std::unique_ptr<os::Child> child_;
};

/// A cluster of three servers.
class EtcdCluster {
 public:
  explicit EtcdCluster(const TempDir& dir) {
    std::vector<ReservedPort> clients(3);
    std::vector<ReservedPort> peers(3);
    std::string cluster;
    for (std::size_t i = 0; i < 3; ++i) {
      cluster += (i == 0 ? "m" : ",m") + std::to_string(i) + "=" + peers[i].url();
    }
    for (std::size_t i = 0; i < 3; ++i) {
      const std::vector<std::string> options{"--name=m" + std::to_string(i),
                                             "--initial-cluster=" + cluster,
                                             "--heartbeat-interval=50", "--election-timeout=500"};
      std::vector<ReservedPort> ports;
      ports.push_back(std::move(clients[i]));
      ports.push_back(std::move(peers[i]));
      members_.push_back(std::make_unique<Etcd>(dir, std::move(ports), options));
      members_.back()->launch();
    }
    for (const auto& member : members_) member->await_ready();
  }
  [[nodiscard]] Etcd& member(std::size_t index) { return *members_[index]; }
  /// The index of the leader.
  [[nodiscard]] std::size_t leader() const {
    const base::Deadline deadline = base::Deadline::after(kLong);
    while (!deadline.expired()) {
      for (std::size_t i = 0; i < members_.size(); ++i) {
        http::FetchOptions options;
        options.body = "{}";
        const std::string url = members_[i]->url() + "/v3/maintenance/status";
        const auto answer = nlohmann::json::parse(http::fetch("POST", url, deadline, options).body);
        if (answer.value("leader", "") == answer["header"].value("member_id", "?")) return i;
      }
    }
    throw std::runtime_error("no leader");
  }
  /// "HOST:PORT" of all members, beginning with member `first`.
  [[nodiscard]] std::string addresses(std::size_t first = 0) const {
    std::string all;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      all += (i == 0 ? "" : ",") + members_[(first + i) % members_.size()]->address();
    }
    return all;
  }

 private:
  std::vector<std::unique_ptr<Etcd>> members_;
};

inline bool has_etcd() {
  const auto ended = os::run_captured({"sh", "-c", "command -v etcd && command -v etcdctl"},
                                      base::Deadline::after(kLong));
  return ended && ended->status == 0;
}

/// A fixture whose tests are skipped if etcd is not installed, or fail if FO_MUST_RUN requires it.
class WithEtcd : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_etcd()) FO_SKIP("etcd", "etcd is not installed");
  }
};

}  // namespace fo::test
