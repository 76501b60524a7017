// A certificate authority for a test, created with openssl(1) in its own folder.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "net/tls_files.h"
#include "os/file/file.h"
#include "os/process/sibling.h"
#include "support/temp_dir.h"

namespace fo::test {

class Authority {
 public:
  Authority() {
    openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc",
             "-config", config("CA:TRUE", "DNS:authority"), "-extensions", "issued", "-subj",
             "/CN=authority", "-days", "2", "-keyout", key_, "-out", ca_});
  }

  [[nodiscard]] std::string path(const std::string& name) const { return dir_.path(name); }
  [[nodiscard]] const std::string& ca() const { return ca_; }

  /// A new certificate, its key, and this authority. `names` has the form
  /// "DNS:localhost,IP:127.0.0.1"; -1 `days` make an expired one.
  [[nodiscard]] net::TlsFiles issue(const std::string& names, int days = 2) {
    const std::string number = std::to_string(++issued_);
    const net::TlsFiles files{ca_, path(number + ".pem"), path(number + ".key")};
    const std::string settings = config("CA:FALSE", names);
    const std::string request = path(number + ".csr");
    openssl({"req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc",
             "-config", settings, "-subj", "/CN=localhost", "-keyout", files.key, "-out", request});
    openssl({"x509", "-req", "-in", request, "-CA", ca_, "-CAkey", key_, "-set_serial", number,
             "-days", std::to_string(days), "-extfile", settings, "-extensions", "issued", "-out",
             files.certificate});
    return files;
  }

  static void openssl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "openssl");
    const auto ended = os::run_captured(arguments, base::Deadline::after(std::chrono::seconds(60)));
    ASSERT_TRUE(ended.has_value());
    ASSERT_EQ(ended->status, 0) << "openssl " << arguments[1];
  }

 private:
  std::string config(const std::string& constraints, const std::string& names) const {
    os::write_file_atomic(path("config"),
                          "[req]\ndistinguished_name=name\n[name]\n[issued]\n"
                          "basicConstraints=critical," +
                              constraints + "\nsubjectAltName=" + names + "\n");
    return path("config");
  }

  TempDir dir_;
  std::string key_ = path("ca.key");
  std::string ca_ = path("ca.pem");
  int issued_ = 0;
};

}  // namespace fo::test
