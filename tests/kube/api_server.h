// The stand-in API server bats/kube-api on a free port, with queries and changes that bypass the
// client under test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "http/client.h"
#include "net/tls_files.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "support/await.h"

namespace fo::test {

class KubeApi {
 public:
  /// A server with TLS and this certificate.
  static KubeApi over_tls(const net::TlsFiles& files) {
    KubeApi api({"--cert", files.certificate, "--key", files.key});
    api.authority_ = files.ca;
    return api;
  }
  /// Starts the server with these options; returns when it listens.
  explicit KubeApi(std::vector<std::string> options = {}) : options_(std::move(options)) {
    start();
  }
  KubeApi(KubeApi&&) = default;
  KubeApi& operator=(KubeApi&&) = delete;
  ~KubeApi() {
    if (child_) kill();
  }

  /// Its objects are lost.
  void kill() {
    child_->signal(SIGKILL);
    static_cast<void>(child_->wait(base::Deadline::after(kLong)));
    child_.reset();
  }
  /// Starts it again on the same port, after kill().
  void start() {
    os::Pipe pipe;
    std::vector<std::string> command{FO_SOURCE_DIR "/bats/kube-api"};
    command.insert(command.end(), options_.begin(), options_.end());
    if (!port_.empty()) command.insert(command.end(), {"--port", port_});
    os::SpawnOptions spawn;
    spawn.parent_death_signal = SIGKILL;
    spawn.stdout_fd = pipe.writer.get();
    child_ = std::make_unique<os::Child>(os::spawn(command, spawn));
    pipe.writer.reset();
    port_.clear();
    char digit = 0;
    while (::read(pipe.reader.get(), &digit, 1) == 1 && digit != '\n') port_ += digit;
    if (port_.empty()) throw std::runtime_error("bats/kube-api did not start");
  }

  [[nodiscard]] const std::string& port() const { return port_; }
  [[nodiscard]] std::string url(const std::string& host = "127.0.0.1") const {
    return (authority_.empty() ? "http://" : "https://") + host + ":" + port_;
  }

  /// The stored object; null if it does not exist.
  [[nodiscard]] nlohmann::json lease(const std::string& name = "pair") const {
    const http::Response answer = ask("GET", lease_path(name), "");
    return answer.status == 200 ? nlohmann::json::parse(answer.body) : nlohmann::json();
  }
  void create(const nlohmann::json& object) const {
    const http::Response answer = ask("POST", kLeases, object.dump());
    ASSERT_EQ(answer.status, 201) << answer.body;
  }
  /// Changes the Lease, and repeats that if its holder changes it meanwhile.
  void edit(const std::function<void(nlohmann::json& lease)>& change) const {
    int status = 409;
    while (status == 409) {
      nlohmann::json object = lease();
      change(object);
      status = ask("PUT", lease_path("pair"), object.dump()).status;
    }
    ASSERT_EQ(status, 200);
  }
  void set_holder(const std::string& identity) const {
    edit([&](nlohmann::json& lease) { lease["spec"]["holderIdentity"] = identity; });
  }
  void remove(const std::string& name = "pair") const {
    ASSERT_EQ(ask("DELETE", lease_path(name), "").status, 200);
  }

  /// Creates the EndpointSlice or ConfigMap in the namespace "ns", or replaces the present one.
  void put(nlohmann::json object) const {
    const std::string all = path_of(object["kind"]);
    const std::string name = object["metadata"]["name"];
    const http::Response present = ask("GET", all + "/" + name, "");
    const bool is_new = present.status == 404;
    if (!is_new) {
      object["metadata"]["resourceVersion"] =
          nlohmann::json::parse(present.body)["metadata"]["resourceVersion"];
    }
    const http::Response answer =
        ask(is_new ? "POST" : "PUT", is_new ? all : all + "/" + name, object.dump());
    ASSERT_EQ(answer.status, is_new ? 201 : 200) << answer.body;
  }
  void remove(const std::string& kind, const std::string& name) const {
    ASSERT_EQ(ask("DELETE", path_of(kind) + "/" + name, "").status, 200);
  }

  /// Injects a fault; bats/kube-api documents them.
  void fault(const nlohmann::json& what) const {
    ASSERT_EQ(ask("POST", "/faults", what.dump()).status, 200);
  }
  void mend() const { ASSERT_EQ(ask("DELETE", "/faults", "").status, 200); }
  void compact() const { ASSERT_EQ(ask("POST", "/compact", "").status, 200); }
  /// The number of requests with this verb.
  [[nodiscard]] int count(const std::string& verb) const {
    return nlohmann::json::parse(ask("GET", "/requests", "").body).value(verb, 0);
  }

 private:
  static constexpr const char* kLeases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
  static std::string lease_path(const std::string& name) {
    return std::string(kLeases) + "/" + name;
  }
  static std::string path_of(const std::string& kind) {
    return kind == "ConfigMap" ? "/api/v1/namespaces/ns/configmaps"
                               : "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices";
  }

  [[nodiscard]] http::Response ask(const std::string& method, const std::string& path,
                                   const std::string& body) const {
    http::FetchOptions options;
    options.body = body;
    options.headers = {{"X-Test", "1"}};
    if (!authority_.empty()) options.tls = net::TlsFiles{authority_, "", ""};
    return http::fetch(method, url() + path, base::Deadline::after(kLong), options);
  }

  std::vector<std::string> options_;
  std::unique_ptr<os::Child> child_;
  std::string port_;
  std::string authority_;
};

/// A Lease as client-go would write it.
inline nlohmann::json foreign_lease(const std::string& holder, int duration,
                                    const std::string& renewed = "2026-01-01T00:00:00.000000Z") {
  return {{"apiVersion", "coordination.k8s.io/v1"},
          {"kind", "Lease"},
          {"metadata", {{"name", "pair"}, {"labels", {{"team", "blue"}}}}},
          {"spec",
           {{"holderIdentity", holder},
            {"leaseDurationSeconds", duration},
            {"leaseTransitions", 6},
            {"acquireTime", renewed},
            {"renewTime", renewed}}}};
}

}  // namespace fo::test
